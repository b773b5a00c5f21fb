"""Backfill: a silver table made again of the bronze records, compared with the present one, and swapped (SPEC T-03).

The new rows are written into files of their own. One commit replaces the files of the table by them, so a reader sees
either all old rows or all new ones, and the versions before stay readable.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's custom)

from wanderbus.errors import ConfigurationError
from wanderbus.pipeline.lake.decoding import PassPlan, PassTarget, decode_bronze
from wanderbus.pipeline.lake.delta import LakeTable, application_of
from wanderbus.pipeline.lake.jobs import DECODINGS, declared_events, ends_of, own_ends, write_versions
from wanderbus.pipeline.lake.lifetimes import CHANGES
from wanderbus.pipeline.lake.logs import logs_in
from wanderbus.pipeline.lake.quarantine import replace_rejected
from wanderbus.pipeline.lake.reading import table
from wanderbus.pipeline.lake.records import Decoding
from wanderbus.pipeline.lake.schema_rows import SCHEMA_KINDS, schema_decoder
from wanderbus.pipeline.lake.table_files import LakeFile, new_attempt
from wanderbus.pipeline.lake.writing import WrittenFiles
from wanderbus.pipeline.tables import QUARANTINE, RECORDS, SUBSCRIPTIONS, Column, named
from wanderbus.pipeline.tables.silver import EVENTS
from wanderbus.segments import LogPlace

_MODULUS: Final = 1 << 61
"""Bound of the checksum of a row, so that the sum of as many rows as a table can have fits a decimal number."""


class Sums(msgspec.Struct, frozen=True):
    """Number of rows, and the sum of their checksums over some columns."""

    rows: int
    checksum: int


class Backfilled(msgspec.Struct, frozen=True):
    """Result of a backfill: the present table and the new one, over the fixed columns and over all.

    Attributes of events have no fixed place: they move to columns as they are declared.
    """

    table: str
    present: Sums
    rebuilt: Sums
    is_equal: bool
    """All columns are equal, so there is nothing to swap."""
    is_equal_in_fixed: bool
    """The columns that no declaration changes are equal."""
    is_swapped: bool


def backfill(spark: SparkSession, lake: Path, name: str, *, is_forced: bool = False) -> Backfilled:
    """Make a silver table again, and swap it in if only the places of attributes differ, or if ``is_forced``.

    ``ConfigurationError`` for a table that is not silver.
    """
    target, written, ends = _rebuilt(spark, lake, name)
    quarantine = LakeTable(lake, QUARANTINE)
    try:
        result = _compared(spark, target, written.files)
        is_wanted = not result.is_equal and (result.is_equal_in_fixed or is_forced)
        if is_wanted:
            misfits = written.counts.misfits
            own = {application_of(log, target.table): end for log, end in ends.items()}
            target.commit(target.load(), written.files, replaces=True, ends=own, misfits=misfits)
    except BaseException:
        target.discard(written.files)
        quarantine.discard(written.quarantine)
        raise
    if not is_wanted:
        target.discard(written.files)
    if is_wanted or result.is_equal:
        replace_rejected(lake, target.table, written.quarantine, ends)
    else:
        quarantine.discard(written.quarantine)
    return msgspec.structs.replace(result, is_swapped=is_wanted)


def _rebuilt(spark: SparkSession, lake: Path, name: str) -> tuple[LakeTable, WrittenFiles, dict[str, LogPlace]]:
    """Return the table with its columns as they are declared now, the rows decoded again, and its end in each log."""
    specified = named(name)
    if specified.layer != "silver":
        raise ConfigurationError(f"{name} is a {specified.layer} table; only silver tables can be made again")
    events, decoding, _ = declared_events(lake, {})
    decodings = (decoding, Decoding(SCHEMA_KINDS, schema_decoder), *DECODINGS)
    logs, bronze = logs_in(lake), LakeTable(lake, RECORDS)
    target = LakeTable(lake, events if specified is EVENTS else specified)
    present = target if not target.exists else LakeTable(lake, specified)
    delta = target.create(logs.first) if present is target else present.load()
    stored = ends_of(lake, bronze.load(), RECORDS)
    ends = {base: end if end > base else stored[base] for base, end in ends_of(lake, delta, specified).items()}
    decoded = CHANGES if specified is SUBSCRIPTIONS else target.table
    wanted = [each for each in decodings if name in each.kinds.values()]
    plan = PassPlan(lake, new_attempt(), {name: PassTarget(decoded, 0, quarantined=0)}, wanted)
    written = decode_bronze(spark, bronze.paths(bronze.load()), ends, plan).get(name, WrittenFiles())
    if specified is SUBSCRIPTIONS and written.files:
        versions = write_versions(spark, target, [], written.files)
        written = WrittenFiles(versions.files, written.quarantine, versions.counts)
    return target, written, own_ends(lake, ends)


def _compared(spark: SparkSession, target: LakeTable, files: Sequence[LakeFile]) -> Backfilled:
    """Compare the new files with the table as it is."""
    present = table(spark, target.lake, target.table.name)
    rebuilt = target.rows(spark, files)
    fixed = [column for column in named(target.table.name).columns if column.type != "variant"]
    has_types = _types(present) == _types(rebuilt)
    choices = [fixed, target.table.columns] if has_types else [fixed]
    (sums, *every), (new_sums, *new_every) = _sums(present, choices), _sums(rebuilt, choices)
    is_equal_in_fixed = sums == new_sums
    is_equal = is_equal_in_fixed and has_types and every == new_every
    return Backfilled(target.table.name, sums, new_sums, is_equal, is_equal_in_fixed, is_swapped=False)


def _types(rows: DataFrame) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in rows.schema}


def _sums(rows: DataFrame, choices: Sequence[Sequence[Column]]) -> list[Sums]:
    """Return the sums over each choice of columns, in one pass over the rows."""
    checksums = [F.sum(_checksum(columns)) for columns in choices]
    count, *found = rows.agg(F.count("*"), *checksums).collect()[0]
    return [Sums(int(count), int(each or 0)) for each in found]


def _checksum(columns: Sequence[Column]) -> SparkColumn:
    values = [
        F.col(f"`{each.name}`").cast("string") if each.type == "variant" else F.col(f"`{each.name}`")
        for each in columns
    ]
    return F.pmod(F.xxhash64(*values), F.lit(_MODULUS)).cast("decimal(38,0)")
