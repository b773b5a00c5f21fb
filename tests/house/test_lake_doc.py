"""docs/lake.md lists exactly the tables of the pipeline, with their columns and checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from wanderbus.pipeline.tables.catalogue import ALL_TABLES
from wanderbus.pipeline.tables.page import BEGIN, END, with_tables


def test_the_page_has_the_tables_as_specified(root: Path) -> None:
    page = (root / "docs" / "lake.md").read_text(encoding="utf-8")
    assert with_tables(page, ALL_TABLES) == page, "run python -m wanderbus.pipeline.tables docs/lake.md"


def test_tables_take_the_place_of_the_former() -> None:
    page = with_tables(f"before\n{BEGIN}former\n{END}after\n", ALL_TABLES[:1])
    assert page.startswith(f"before\n{BEGIN}\n### records\n")
    assert page.endswith(f"{END}after\n")
    assert "former" not in page


def test_a_page_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match="the page has no place for the tables: add <!-- tables"):
        with_tables("a page\n", ALL_TABLES)
