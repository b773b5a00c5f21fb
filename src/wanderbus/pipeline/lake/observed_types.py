"""Types of the attributes that events of a subject had, counted in the bronze records without Spark (SPEC T-03).

Bronze records have the published values. A column of the events may have widened ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from wanderbus.event import TypeName
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.source.record_columns import content_of
from wanderbus.pipeline.tables import RECORDS

_NAMES: Final[Mapping[type, TypeName]] = {
    str: "String",
    int: "Integer",
    float: "Double",
    bool: "Boolean",
    datetime: "Date",
}


class Observed(msgspec.Struct, frozen=True):
    """Number of events, and the count of values of each type by attribute; a list counts as ``List``."""

    events: int
    types: Mapping[str, Mapping[str, int]]


def observed_types(
    lake: Path, subject: str, on_progress: Callable[[int, int], None] = lambda _done, _files: None
) -> Observed:
    """Count the types in the events of ``subject``; ``on_progress`` gets the files read and the number of all."""
    target = LakeTable(lake, RECORDS)
    types: dict[str, Counter[str]] = {}
    events = 0
    files = target.files(target.load())
    for done, file in enumerate(files, 1):
        wanted = [("kind", "=", "published"), ("subject", "=", subject)]
        rows: pa.Table = pq.read_table(
            target.directory / file.path, columns=["record"], filters=wanted, partitioning=None
        )
        for record in rows.column("record").to_pylist():
            events += 1
            for name, value in content_of(record).attributes.items():
                types.setdefault(name, Counter())[_NAMES.get(type(value), "List")] += 1
        on_progress(done, len(files))
    return Observed(events, types)
