"""Helper that writes records as the log of a server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wanderbus.records import Record, encode_record
from wanderbus.segments import HEADER, HIGH_WATER, pack_frame, pack_mark, segment_name


def write_records(
    directory: Path, records: Sequence[Record], *, per_segment: int = 1_000_000, durable: int | None = None
) -> Path:
    """Write records as a log, some per segment, and publish the mark; return its directory, which is made."""
    directory.mkdir(parents=True, exist_ok=True)
    for first in range(0, len(records), per_segment):
        packed = b"".join(
            pack_frame(offset, record.at_us, encode_record(record))
            for offset, record in enumerate(records[first : first + per_segment], first)
        )
        (directory / segment_name(first)).write_bytes(HEADER + packed)
    (directory / HIGH_WATER).write_bytes(pack_mark(len(records) if durable is None else durable))
    return directory
