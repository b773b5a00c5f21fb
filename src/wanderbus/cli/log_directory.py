"""Directory of an event log, from the directory that a command is given."""

from __future__ import annotations

from pathlib import Path


def log_directory(directory: Path) -> Path:
    """Return the subdirectory ``log`` of a server's data directory; a directory without one is the log itself."""
    inner = directory / "log"
    return inner if inner.is_dir() else directory
