"""Catalogue of the tables of the lake (SPEC T-03)."""

from __future__ import annotations

from typing import Final

from wanderbus.errors import WanderbusError
from wanderbus.pipeline.tables.bronze import QUARANTINE, RECORDS
from wanderbus.pipeline.tables.gold import GOLD_TABLES
from wanderbus.pipeline.tables.silver import DELIVERIES, EVENTS, NOTIFICATIONS, SCHEMAS, SESSIONS, SUBSCRIPTIONS
from wanderbus.pipeline.tables.specification import TableSpecification


class UnknownTable(WanderbusError):
    """The lake has no table of that name."""


TABLES: Final = (RECORDS, EVENTS, NOTIFICATIONS, DELIVERIES, SESSIONS, SUBSCRIPTIONS, SCHEMAS, QUARANTINE)
"""Tables that are made of the log; that of the events is without the columns of declared attributes."""

ALL_TABLES: Final = (*TABLES, *GOLD_TABLES)
"""These, and the gold tables, which are made of them."""


def named(name: str) -> TableSpecification:
    """Return the table of that name; :class:`UnknownTable` if there is none."""
    for table in ALL_TABLES:
        if table.name == name:
            return table
    raise UnknownTable(f"the lake has no table {name!r}; it has {', '.join(table.name for table in ALL_TABLES)}")
