"""``python -m hostile.short_segments up ...``: wanderbus whose log begins a new segment every few seconds.

So the need for a new descriptor occurs often during an attack, rather than once in 64 MiB.
"""

from __future__ import annotations

from typing import Final

from wanderbus.cli import main
from wanderbus.runtime.files.server_files import ServerFiles

SEGMENT_BYTES_MAX: Final = 64 * 1024

if __name__ == "__main__":
    defaults = ServerFiles.open.__kwdefaults__
    assert defaults is not None
    assert defaults["segment_bytes_max"] > SEGMENT_BYTES_MAX
    defaults["segment_bytes_max"] = SEGMENT_BYTES_MAX
    main()
