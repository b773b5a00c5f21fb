"""File of the report: a browser that opens it while it is replaced sees the former page or the new one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from wanderbus.errors import StorageError


def write_page(path: Path, text: str) -> None:
    """Write or replace a file in one step; ``StorageError`` if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).chmod(0o644)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}; give another file with --out") from None
