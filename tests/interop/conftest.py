"""Marks for every test of this directory: its row of the table, and that it is an integration test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.table import Unmarked, row_of

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Hold every test here to its marker, and tell its row to whoever makes the table."""
    for item in items:
        if _HERE not in item.path.parents:
            continue
        try:
            item.user_properties.append(("interop", row_of(item)))
        except Unmarked as error:
            raise pytest.UsageError(str(error)) from None
        item.add_marker(pytest.mark.integration)
