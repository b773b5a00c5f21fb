"""Room that deleted rows leave in a SQLite file: a file that was long and is short again is compacted.

SQLite keeps the pages of deleted rows for later ones. ``VACUUM`` copies the rows that stay, so its work depends on
these alone, and both files and rows are as before if it fails or the power does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

SPARE_BYTES_MAX: Final = 8 * 2**20
"""Room of deleted rows that a file may keep: compaction costs more than a few pages are worth."""

COPIED_BYTES_MAX: Final = 16 * 2**20
"""Rows of at most this much are copied, in memory and to the disk; a longer file is compacted once it is shorter."""


def compact(execute: Callable[[str], Any], spare_bytes_max: int = SPARE_BYTES_MAX) -> bool:
    """Give room to the system if there is more than ``spare_bytes_max``; return whether that was done.

    ``execute`` is that of a connection of ``apsw`` or ``sqlite3``, outside of a transaction; its errors are raised.
    """
    page_bytes, pages, spare_pages = (
        int(execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_size", "page_count", "freelist_count")
    )
    if spare_pages * page_bytes <= spare_bytes_max or (pages - spare_pages) * page_bytes > COPIED_BYTES_MAX:
        return False
    execute("VACUUM")
    return True
