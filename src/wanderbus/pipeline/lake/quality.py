"""Checks of a table's rows: counted, taken out for the quarantine, or the end of the job (SPEC T-03)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.errors import WanderbusError
from wanderbus.pipeline.lake.records import ERROR, MISFITS
from wanderbus.pipeline.tables import Check, Table

REJECTED: Final = "_rejected"
"""Column with the reason for which a row goes to the quarantine; null for all others."""

_ROWS, _REJECTED, _MISFITS, _UNMET = "rows", "rejected", "misfits", "unmet_"


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


def judged(rows: DataFrame, table: Table) -> DataFrame:
    """Return the rows with the column :data:`REJECTED`: the error of the record, or the first unmet check that drops.

    A row whose record has an error is not checked.
    """
    reasons = [F.when(~_met(check), F.lit(unmet_text(check))) for check in table.all_checks if check.action == "drop"]
    error = [F.col(ERROR)] if ERROR in rows.columns else []
    return rows.withColumn(REJECTED, F.coalesce(*error, *reasons, F.lit(None)).cast("string"))


def observed(rows: DataFrame, table: Table, observation: Observation) -> DataFrame:
    """Return judged rows that are counted by ``observation`` as they pass."""
    has_error = F.col(ERROR).isNotNull() if ERROR in rows.columns else F.lit(False)
    misfits = F.sum(MISFITS) if MISFITS in rows.columns else F.lit(0)
    checks = [check for check in table.checks if check.action != "drop"]
    unmet = [F.count_if(~has_error & ~_met(check)).alias(_UNMET + check.name) for check in checks]
    return rows.observe(
        observation,
        F.count_if(F.col(REJECTED).isNull()).alias(_ROWS),
        F.count_if(F.col(REJECTED).isNotNull()).alias(_REJECTED),
        F.coalesce(misfits, F.lit(0)).alias(_MISFITS),
        *unmet,
    )


def counted(found: Mapping[str, Any]) -> TableCounts:
    """Return the counts that an observation of :func:`observed` has."""
    unmet = {name.removeprefix(_UNMET): int(count) for name, count in found.items() if name.startswith(_UNMET)}
    return TableCounts(
        int(found[_ROWS]), int(found[_REJECTED]), int(found[_MISFITS]), {name: n for name, n in unmet.items() if n}
    )


def require(counts: TableCounts, table: Table, place: str) -> None:
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


def _met(check: Check) -> Column:
    return F.coalesce(F.expr(check.condition), F.lit(False))
