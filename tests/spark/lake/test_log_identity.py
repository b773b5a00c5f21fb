"""The identity of a log is read from its first records alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.lake.conftest import USER, departure
from wanderbus.errors import StorageError
from wanderbus.pipeline.lake.log_identity import log_identity
from wanderbus.records import Attached, Record, Started
from wanderbus.segments import segment_name

ATTACHED = Attached(at_us=1, user=USER, session="default", device="d", epoch=4)
START = Started(at_us=2, server="other", incarnation=3)
EVENT = departure(3, 3)


def test_a_segment_behind_the_first_records_is_not_read(
    write_log: Callable[..., Path], every_record: Callable[[int], list[Record]]
) -> None:
    later = every_record(12)[1]
    log = write_log([*every_record(12), *[later] * 5_000], per_segment=5_000)
    (log / segment_name(5_000)).unlink()
    (log / segment_name(5_000)).mkdir()
    assert log_identity(log) == "wb-7"


@pytest.mark.parametrize(
    ("records", "identity"),
    [
        ([ATTACHED, START], "other-3"),
        ([ATTACHED, EVENT], "wb-7"),
        ([START, EVENT], "other-3"),
        ([EVENT, START], "wb-7"),
        ([Started(at_us=2, server="other", incarnation=4)], "other-4"),
    ],
)
def test_the_first_start_or_event_names_server_and_incarnation(
    write_log: Callable[..., Path], records: list[Record], identity: str
) -> None:
    assert log_identity(write_log(records)) == identity


def test_a_log_without_either_is_refused(write_log: Callable[..., Path]) -> None:
    with pytest.raises(StorageError, match="has no record that names its server"):
        log_identity(write_log([ATTACHED]))
