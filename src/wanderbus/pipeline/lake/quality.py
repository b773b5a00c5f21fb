"""Checks of a table's rows: counted, taken out for the quarantine, or the end of the job (SPEC T-03)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from wanderbus.errors import WanderbusError
from wanderbus.pipeline.tables import Check, TableSpecification


class CheckFailed(WanderbusError):
    """Rows do not meet a check that stops the job."""


class TableCounts(msgspec.Struct, frozen=True):
    """Counts of the rows that a job made for one table; ``unmet`` are those of checks that warn.

    The quarantine has the reason for each row of ``rejected``. ``misfits`` are values of declared attributes that have
    another type than their column, so they are in the variant.
    """

    rows: int = 0
    rejected: int = 0
    misfits: int = 0
    unmet: Mapping[str, int] = {}

    def __add__(self, other: TableCounts) -> TableCounts:
        names = sorted({*self.unmet, *other.unmet})
        return TableCounts(
            self.rows + other.rows,
            self.rejected + other.rejected,
            self.misfits + other.misfits,
            {name: self.unmet.get(name, 0) + other.unmet.get(name, 0) for name in names},
        )


class Judged(NamedTuple):
    """The rows that a table takes, the reason for each of the others, by its place, and the counts of all."""

    rows: pa.RecordBatch
    rejected: Mapping[int, str]
    counts: TableCounts


def judged(rows: pa.RecordBatch, table: TableSpecification) -> Judged:
    """Check the rows; the reason for which one is rejected is the first unmet check that drops."""
    rejected: dict[int, str] = {}
    unmet: dict[str, int] = {}
    for check in table.all_checks:
        met = check.condition.met(rows)
        if met.true_count == len(rows):
            continue
        places = np.flatnonzero(~met.to_numpy(zero_copy_only=False)).tolist()
        if check.action == "drop":
            rejected |= {place: unmet_text(check) for place in places if place not in rejected}
        else:
            unmet[check.name] = len(places)
    if rejected:
        rows = rows.take(pa.array([place for place in range(len(rows)) if place not in rejected], pa.int64()))
    return Judged(rows, rejected, TableCounts(len(rows), len(rejected), unmet=unmet))


def require(counts: TableCounts, table: TableSpecification, place: str) -> None:
    """Raise :class:`CheckFailed` if rows do not meet a check that stops the job; ``place`` names the input."""
    for check in table.checks:
        if check.action == "fail" and counts.unmet.get(check.name):
            raise CheckFailed(
                f"{place}: {counts.unmet[check.name]} rows of the table {table.name!r} do not meet the check "
                f"{check.name!r}: {check.meaning}"
            )


def unmet_text(check: Check) -> str:
    """Return the reason for the rows that do not meet a check."""
    return f"check {check.name}: {check.meaning}"
