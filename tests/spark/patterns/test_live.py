"""A live pattern on Spark finds in a growing log what the automaton alone finds (SPEC T-07)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.published import published
from tests.spark.patterns.streams import START_US, expected, random_stream
from wanderbus.errors import StorageError
from wanderbus.event import Event, EventId
from wanderbus.patterns import AcceptedEvent, Counts, Detection, compile_pattern
from wanderbus.pipeline.engine import SETTINGS
from wanderbus.pipeline.patterns import LivePattern
from wanderbus.pipeline.patterns.live_job import PatternFailed, add_counts
from wanderbus.records import Record, Started
from wanderbus.runtime.log_readers import load_reader, reader_files

pytestmark = pytest.mark.spark

ABOTHER = """pattern absent by k match A: event (kind == a) then not B: event (kind == b)
within 2 seconds on publication time lateness 3 seconds select every"""
OTHER = "pattern other by k match A: event (kind == a) then B: event (kind == b) within 2 seconds"
LATE_US = START_US + 10**11
"""Time after which the last two events of the stream come; the second one is late."""


@pytest.fixture
def quick(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with the manager of checkpoints that the command uses."""
    name = "spark.sql.streaming.checkpointFileManagerClass"
    spark.conf.set(name, SETTINGS[name])
    yield spark
    spark.conf.unset(name)


class Taken:
    """Batches that a job has handed on."""

    def __init__(self) -> None:
        self.batches: dict[int, Sequence[Detection]] = {}
        self.counts = Counts()
        self.fails_at: int | None = None

    def take(self, batch: int, detections: Sequence[Detection], refused: Counts) -> None:
        self.batches.setdefault(batch, detections)
        assert self.batches[batch] == detections
        if batch == self.fails_at:
            raise StorageError("killed here")
        add_counts(self.counts, refused)

    @property
    def ids(self) -> list[str]:
        return sorted(each.id for several in self.batches.values() for each in several)


def records_of(several: Sequence[AcceptedEvent]) -> list[Record]:
    records: list[Record] = [Started(at_us=START_US, server="s", incarnation=1)]
    for each in several:
        id = EventId("s", 1, each.offset)
        records.append(published(each.event, number=each.offset, id=id, at_us=each.received_us))
    return records


def test_a_log_that_grows_between_runs_has_the_detections_of_the_whole(
    quick: SparkSession, write_log: Callable[..., Path], tmp_path: Path
) -> None:
    pattern, several = compile_pattern(ABOTHER), random_stream(900, 7)[1:]
    after = Event("event", {"k": "x", "kind": "a"}, LATE_US)
    several += [
        AcceptedEvent(after, 900, LATE_US, "s-1-900"),
        AcceptedEvent(Event("event", {}), 901, LATE_US, "s-1-901"),
    ]
    late = AcceptedEvent(Event("event", {"k": "x", "kind": "b"}, START_US), 902, LATE_US, "s-1-902")
    records, taken = records_of([*several, late]), Taken()
    log = write_log(records, per_segment=400, durable=500)
    job = LivePattern(quick, log, tmp_path / "c", pattern, taken.take, records_per_batch=300)
    taken.fails_at = 1
    with pytest.raises(StorageError, match="killed here"):
        job.run()
    taken.fails_at = None
    [reader] = [load_reader(path) for path in reader_files(log)]
    assert reader is not None
    assert (reader.name.split("-")[0], reader.offset) == ("pattern", 0)
    for durable in (901, None, None):
        write_log(records, per_segment=400, durable=durable)
        LivePattern(quick, log, tmp_path / "c", pattern, taken.take).run()
        [again] = [load_reader(path) for path in reader_files(log)]
        assert again is not None
        assert (again.offset, again.updated_us > reader.updated_us) == (durable or len(records), True)
        reader = again
    wanted = [each.id for each in expected(pattern, several) if each.at_us < LATE_US]
    assert len(wanted) > 50
    assert taken.ids == sorted(wanted)
    assert taken.counts.late == 1


@pytest.mark.parametrize(("begin_us", "name"), [(-(10**12), "a%20b\\c"), (-62_135_596_800_000_000, "ü {d}[e]*?#")])
def test_events_before_1970_are_found_and_a_checkpoint_is_anywhere(
    quick: SparkSession, write_log: Callable[..., Path], tmp_path: Path, begin_us: int, name: str
) -> None:
    pattern, early = compile_pattern(ABOTHER), []
    for each in random_stream(41, 7)[1:]:
        published_us = begin_us + each.received_us - START_US + 3_000_000
        early.append(
            msgspec.structs.replace(each, event=Event(each.event.subject, each.event.attributes, published_us))
        )
    log, taken = write_log(records_of(early[:30])), Taken()
    job = LivePattern(quick, log, tmp_path / name, pattern, taken.take, records_per_batch=10)
    job.run()
    write_log(records_of(early))
    LivePattern(quick, log, tmp_path / name, pattern, taken.take).run()
    latest_us = max(seen.time_us for seen in pattern.classify(early))
    certain = pattern.advance(pattern.start(), pattern.classify(early), pattern.watermark_us(latest_us))[1]
    assert len(certain) >= 3
    assert taken.ids == sorted(each.id for each in certain)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(["log", name])


def test_a_checkpoint_belongs_to_one_log_and_one_pattern(
    quick: SparkSession, write_log: Callable[..., Path], tmp_path: Path
) -> None:
    log = write_log(records_of([]))
    other = write_log([Started(at_us=START_US, server="t", incarnation=1)], name="other")
    checkpoint, pattern, taken = tmp_path / "c", compile_pattern(ABOTHER), Taken()
    LivePattern(quick, log, checkpoint, pattern, taken.take).run()
    with pytest.raises(StorageError, match="the checkpoint of the log s-1, not of t-1"):
        LivePattern(quick, other, checkpoint, pattern, taken.take).run()
    for different in (compile_pattern(OTHER), compile_pattern(ABOTHER, partial_matches_max=7)):
        with pytest.raises(StorageError, match="the checkpoint of another pattern"):
            LivePattern(quick, log, checkpoint, different, taken.take).run()
    write_log([Started(at_us=START_US + 1, server="s", incarnation=1)])
    with pytest.raises(PatternFailed, match="is not the log that the checkpoint has read: record 0 is another one"):
        LivePattern(quick, log, checkpoint, pattern, taken.take).run()
    (checkpoint / "pattern.json").write_text("{")
    with pytest.raises(StorageError, match="is damaged"):
        LivePattern(quick, log, checkpoint, pattern, taken.take).run()
