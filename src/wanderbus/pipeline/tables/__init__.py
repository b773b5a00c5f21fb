"""Tables of the lake, each specified once (SPEC T-03).

From a :class:`TableSpecification` come its schema in Spark and in Delta, its checks, the page ``docs/lake.md`` and its
contract.
"""

from __future__ import annotations

from wanderbus.pipeline.tables.bronze import QUARANTINE, RECORDS
from wanderbus.pipeline.tables.catalogue import ALL_TABLES, TABLES, named
from wanderbus.pipeline.tables.silver import SCHEMAS, SUBSCRIPTIONS
from wanderbus.pipeline.tables.specification import Check, Column, TableSpecification

__all__ = [
    "ALL_TABLES",
    "QUARANTINE",
    "RECORDS",
    "SCHEMAS",
    "SUBSCRIPTIONS",
    "TABLES",
    "Check",
    "Column",
    "TableSpecification",
    "named",
]
