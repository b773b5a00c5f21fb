"""Bronze tables that are written without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.lake.table_files import durable_file
from wanderbus.pipeline.source.record_columns import heads_of
from wanderbus.pipeline.tables import QUARANTINE, RECORDS
from wanderbus.segments import Frame, LogPlace, record_checksum


def write_bronze(
    lake: Path, frames: Sequence[Frame], identity: str = "wb-1", *, group_rows: int = 1_000, end: int | None = None
) -> None:
    """Add records to the lake in one file and one commit, up to offset ``end`` of the log."""
    target = LakeTable(lake, RECORDS)
    delta = target.create(identity)
    day = datetime.fromtimestamp(frames[0].at_us / 1e6, UTC).date()
    kinds = [head.kind for head in heads_of([frame.payload for frame in frames], {})]
    columns = {
        "offset": pa.array([frame.offset for frame in frames], pa.int64()),
        "at_us": pa.array([frame.at_us for frame in frames], pa.int64()),
        "kind": pa.array(kinds, pa.string()),
        **{name: pa.nulls(len(frames), pa.string()) for name in ("user", "session", "device", "subject")},
        "record": pa.array([frame.payload for frame in frames], pa.binary()),
        "date": pa.array([day] * len(frames), pa.date32()),
    }
    directory = target.directory / f"files-{frames[0].offset}"
    directory.mkdir()
    pq.write_table(pa.table(columns), directory / "part.parquet", row_group_size=group_rows)
    file = durable_file(target.directory, f"{directory.name}/part.parquet", {"date": day.isoformat()})
    application = f"{identity}/{RECORDS.name}"
    last = max(frames)
    checksum = record_checksum(*last[:3]) if end in (None, last.offset + 1) else None
    place = LogPlace(last.offset + 1 if end is None else end, checksum)
    target.commit(delta, [file], ends={application: place})


def quarantine(lake: Path, offsets: Iterable[int], identity: str = "wb-1") -> None:
    """Add records to the quarantine of the lake."""
    target = LakeTable(lake, QUARANTINE)
    delta = target.create(identity)
    rows = [{"table": "records", "offset": offset, "reason": "damaged"} for offset in offsets]
    schema = pa.schema(
        [
            ("table", pa.string()),
            ("offset", pa.int64()),
            ("path", pa.string()),
            ("byte", pa.int64()),
            ("reason", pa.string()),
            ("record", pa.binary()),
        ]
    )
    directory = target.directory / "files-q"
    directory.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema), directory / "part.parquet")
    target.commit(delta, [durable_file(target.directory, "files-q/part.parquet", {"table": "records"})])
