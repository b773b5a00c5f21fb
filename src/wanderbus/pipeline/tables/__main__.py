"""Program that writes the reference part of ``docs/lake.md``: ``python -m wanderbus.pipeline.tables PAGE``."""

from __future__ import annotations

import sys
from pathlib import Path

from wanderbus.pipeline.tables.catalogue import ALL_TABLES
from wanderbus.pipeline.tables.page import with_tables

if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_tables(page.read_text(encoding="utf-8"), ALL_TABLES), encoding="utf-8")
