"""Logs of the tests of operation."""

from __future__ import annotations

from tests.spark.lake.conftest import START_US, departure, every_record
from wanderbus.event import DeclaredAttribute
from wanderbus.records import Record, SchemaDeclared

__all__ = ["every_record", "records"]


def records(count: int = 8) -> list[Record]:
    """Return a declaration and departures."""
    delay = SchemaDeclared(
        at_us=START_US,
        subject="Departure",
        version=1,
        attributes=(DeclaredAttribute("Delay", "Integer"),),
        by="sip:a@b",
    )
    return [delay, *(departure(number, START_US + number, Delay=number) for number in range(1, count))]
