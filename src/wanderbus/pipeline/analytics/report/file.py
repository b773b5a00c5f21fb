"""File of the report: a browser that opens it while it is replaced sees the former page or the new one.

It names users and shows their filters, so a new file is readable by its owner only. A file that is replaced keeps its
mode.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from wanderbus.errors import StorageError
from wanderbus.runtime.files.file_modes import make_private_directory


def write_page(path: Path, text: str) -> None:
    """Write or replace a file in one step; ``StorageError`` if it cannot be written."""
    try:
        make_private_directory(path.parent)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            if path.exists():
                Path(name).chmod(path.stat().st_mode & 0o777)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}; give another file with --out") from None
