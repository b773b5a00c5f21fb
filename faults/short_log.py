"""``python -m faults.short_log up ...``: wanderbus whose log has short segments, which are removed at once.

So the steps of retention occur in every life of a server that is killed, rather than once in 64 MiB.
"""

from __future__ import annotations

from typing import Final

from wanderbus.cli import main
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.server import storage

SEGMENT_BYTES_MAX: Final = 8 * 1024
SAVE_S: Final = 0.1
RETAIN_S: Final = 0.05


def shorten() -> None:
    """Give the servers of this process short segments, which are removed as soon as nobody needs them."""
    defaults = ServerFiles.open.__kwdefaults__
    assert defaults is not None
    assert defaults["segment_bytes_max"] >= SEGMENT_BYTES_MAX
    defaults["segment_bytes_max"] = SEGMENT_BYTES_MAX
    vars(storage).update(SAVE_S=SAVE_S, RETAIN_S=RETAIN_S)


if __name__ == "__main__":
    shorten()
    main()
