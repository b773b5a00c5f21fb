"""The identity of a log is read from its first records alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from wanderbus.pipeline.lake.log_identity import log_identity
from wanderbus.records import Record
from wanderbus.segments import segment_name


def test_a_segment_behind_the_first_records_is_not_read(
    write_log: Callable[..., Path], every_record: Callable[[int], list[Record]]
) -> None:
    later = every_record(12)[1]
    log = write_log([*every_record(12), *[later] * 5_000], per_segment=5_000)
    (log / segment_name(5_000)).unlink()
    (log / segment_name(5_000)).mkdir()
    assert log_identity(log) == "wb-7"
