"""Mark in a data directory that was restored from a backup: what was acknowledged since is lost (decision 0108).

The server takes it for a proof, begins another epoch of its log, and removes the mark once that is durable. Whoever
replaces the data by hand can make the file, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

FILE_NAME: Final = "restored"

_REASON_CHARACTERS_MAX: Final = 200


def restored_reason(data_dir: Path) -> str:
    """Return what the mark says, in one line; "" if there is none."""
    try:
        text = (data_dir / FILE_NAME).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    line = " ".join(text.split())
    return line[:_REASON_CHARACTERS_MAX] or f"the file {FILE_NAME} says so"


def remove_mark(data_dir: Path) -> None:
    """Remove the mark; it may be absent."""
    (data_dir / FILE_NAME).unlink(missing_ok=True)
