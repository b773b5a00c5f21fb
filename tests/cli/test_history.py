"""``wanderbus history`` over a server's log and its lake, with Spark and without."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.log_files import write_records
from tests.published import published
from wanderbus.cli.application import run
from wanderbus.cli.pipeline import past_events
from wanderbus.errors import ConfigurationError
from wanderbus.event import Event
from wanderbus.pipeline.history import local_batches, local_history
from wanderbus.pipeline.lake.jobs import ingest
from wanderbus.records import Changed, Record, Subscribed, Unsubscribed
from wanderbus.runtime.segment_files import segment_paths
from wanderbus.subscription import Custom, Interval, Subscription

START_US = 1_700_000_000_000_000
"""14 November 2023, 22:13:20 UTC."""

Run = Callable[..., list[str]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The data directory of a server: twenty events, with a subscription from the sixth to the fifteenth."""
    until = (Interval(START_US, START_US + 10_000_000),)
    subscription = Subscription("wb-1-5", "sip:a@b", "s", "Departure", "Delay > 3", restrictions=until)
    events = [published(_event(number), number=number, at_us=_at(number)) for number in range(20)]
    records: list[Record] = [
        *events[:5],
        Subscribed(at_us=_at(5), subscription=subscription, number=1),
        *events[5:15],
        Unsubscribed(at_us=_at(15), user="sip:a@b", subscription="wb-1-5", reason="asked"),
        *events[15:],
    ]
    return write_records(tmp_path / "data" / "log", records).parent


def _event(number: int) -> Event:
    return Event("Departure" if number % 2 else "Arrival", {"Delay": number, "Dest": "IAH\x1b"})


def _at(number: int) -> int:
    return START_US + number * 1_000_000


@pytest.fixture
def wanderbus(use_session: Callable[..., None], log: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command on the log without Spark, and returns its lines; Spark gives the same."""
    use_session(past_events)

    def lines(*arguments: str, status: int) -> list[str]:
        where = [] if {"--log", "--lake"} & set(arguments) else ["--log", str(log)]
        assert run(["history", *arguments, *where]) == status
        output = capsys.readouterr()
        return [line for line in (output.err if status else output.out).splitlines() if not line.endswith("tasks done")]

    def command(*arguments: str, status: int = 0) -> list[str]:
        found = lines(*arguments, "--no-spark", status=status)
        assert lines(*arguments, "--spark", status=status) == found
        return found

    return command


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a command that starts Spark fail."""

    def session(*_: object) -> None:
        raise ConfigurationError("Spark is started")

    monkeypatch.setattr(past_events, "session", session)


@pytest.mark.spark
def test_matching_events_are_printed(wanderbus: Run) -> None:
    lines = wanderbus("match", "Delay >= 16")
    assert [line.split(" ")[0] for line in lines] == ["18", "19", "20", "21"]
    assert lines[0].startswith("18 2023-11-14 22:13:36Z Arrival")
    assert "\x1b" not in lines[0]
    [row] = wanderbus("match", "Delay >= 16 and Delay < 18", "--subject", "Departure", "--json")
    assert json.loads(row) == {
        "offset": 19,
        "at_us": _at(17),
        "subject": "Departure",
        "attributes": {"Delay": 17, "Dest": "IAH\x1b"},
    }


@pytest.mark.spark
def test_undecided_events_are_counted_and_named(wanderbus: Run, capsys: pytest.CaptureFixture[str]) -> None:
    costly = ("UPPER(Dest) = 'X' OR Delay > 3", "--language", "cesql")
    [row] = wanderbus("count", *costly, "--json")
    assert json.loads(row) == {"events": 16, "undecided": 0}
    for command in (["match"], ["count"], ["sample", "-n", "3"]):
        [line] = wanderbus(*command, *costly, "--filter-work-max", "20", status=3)
        assert "20 events are undecided: the filter takes too much work for them; the limit is 20" in line


@pytest.mark.spark
def test_bounds_are_offsets_or_times(wanderbus: Run) -> None:
    assert wanderbus("count", "") == ["20"]
    assert wanderbus("count", "", "--from", "5", "--to", "8") == ["2"]
    assert wanderbus("count", "", "--from", "2023-11-14T22:13:22Z", "--to", "2023-11-14T23:13:25+01:00") == ["3"]
    assert wanderbus("count", "", "--from", "2023-11-15", "--json") == ['{"events":0,"undecided":0}']
    assert wanderbus("count", "Delay = 1 AND Dest LIKE 'I%'", "--language", "cesql") == ["1"]


@pytest.mark.spark
def test_samples_are_repeatable(wanderbus: Run) -> None:
    lines = wanderbus("sample", "Delay > 3", "-n", "3", "--seed", "7")
    assert len(lines) == 3
    assert wanderbus("sample", "Delay > 3", "-n", "3", "--seed", "7") == lines


@pytest.mark.spark
def test_an_explanation_names_the_part_that_failed(wanderbus: Run) -> None:
    assert wanderbus("explain", "Delay > 3 and Dest == X", "--offset", "1") == [
        "does not match: Delay > 3 is false: Delay is 1"
    ]
    assert wanderbus("explain", "", "--offset", "1", "--subject", "Arrival") == [
        "does not match: the subject of the event is 'Departure', not 'Arrival'"
    ]
    assert wanderbus("explain", "", "--offset", "5", status=1) == [
        "wanderbus: there is no event at offset 5; check the offset, and the subject"
    ]


@pytest.mark.spark
def test_a_replay_tells_notifications_from_blocked_ones(wanderbus: Run) -> None:
    lines = wanderbus("replay", "wb-1-5")
    assert [line.split(" ", 3)[::3] for line in lines] == [
        ["6", "notified"],
        ["8", "notified"],
        ["10", "notified"],
        ["12", "blocked by restriction 1"],
        ["14", "blocked by restriction 1"],
    ]
    assert wanderbus("replay", "wb-1-6", status=1) == ["wanderbus: there is no subscription wb-1-6; check the id"]


@pytest.mark.spark
def test_windows_of_a_replay_use_the_wall_clock_at_receipt_in_a_log_and_in_a_lake(
    wanderbus: Run, spark: SparkSession, tmp_path: Path
) -> None:
    until = (Interval(START_US, _at(3)),)
    subscription = Subscription("wb-1-0", "sip:a@b", "s", "Departure", "", restrictions=until)
    event = Event("Departure", {})
    records: list[Record] = [
        Subscribed(at_us=_at(0), subscription=subscription, number=1),
        published(event, number=1, at_us=_at(1)),
        published(event, number=2, at_us=_at(2), received_us=_at(5)),  # its clock is 3 s ahead and is set back
        published(event, number=3, at_us=_at(4), received_us=_at(2)),
    ]
    log, lake = write_records(tmp_path / "set" / "log", records), tmp_path / "lake"
    ingest(spark, log, lake, tmp_path / "checkpoint")
    for place in (["--log", str(log)], ["--lake", str(lake)]):
        lines = wanderbus("replay", "wb-1-0", *place)
        assert [line.split(" ", 3)[3] for line in lines] == ["notified", "blocked by restriction 1", "notified"]


def test_a_replay_of_a_log_that_has_lost_its_begin_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subscription = Subscription("wb-1-0", "sip:a@b", "s", "Departure", "")
    records: list[Record] = [
        Subscribed(at_us=_at(0), subscription=subscription, number=1),
        published(Event("Departure", {}), number=1, at_us=_at(1)),
        Changed(at_us=_at(2), subscription=subscription),
        published(Event("Departure", {}), number=2, at_us=_at(3)),
    ]
    log = write_records(tmp_path / "log", records, per_segment=1)
    segment_paths(log)[0].unlink()
    for identity, status, said in (
        ("wb-1-0", 0, "the log begins at record 1: earlier versions of wb-1-0 and absences are not known"),
        ("wb-1-9", 1, "there is no subscription wb-1-9 in this log, which begins at record 1; check the id"),
    ):
        assert run(["history", "replay", identity, "--log", str(log)]) == status
        output = capsys.readouterr()
        assert [line.split(" ")[0] for line in output.out.splitlines()] == ["3"][status:]
        assert output.err == f"wanderbus: {said}\n"


@pytest.mark.spark
def test_a_restriction_of_the_operator_is_refused_because_only_the_server_decides_it(
    wanderbus: Run, tmp_path: Path
) -> None:
    subscription = Subscription("wb-1-0", "sip:a@b", "s", "Departure", "", restrictions=(Custom("few", {}),))
    log = write_records(tmp_path / "own" / "log", [Subscribed(at_us=_at(0), subscription=subscription, number=1)])
    [line] = wanderbus("replay", "wb-1-0", "--log", str(log), status=1)
    assert line.startswith("wanderbus: the restriction 'few' is of the server's operator")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Delay >", "--log", "x"], "expected a value"),
        ([""], "give the events either with --lake or with --log"),
        (["", "--log", "x", "--lake", "y"], "give the events either with --lake or with --log"),
        (["", "--log", "x", "--from", "yesterday"], "--from: invalid bound 'yesterday'"),
        (["", "--log", "x", "--to", "2026-01-01T00:00:00"], "--to: the time 2026-01-01T00:00:00 has no time zone"),
    ],
)
def test_unusable_arguments_are_refused_before_spark_starts(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["history", "count", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none", "is not a directory; give the data directory of a server"),
        ("", "holds no event log that a server has opened; give a server's data directory"),
    ],
)
def test_a_log_that_is_not_there_is_one_line(wanderbus: Run, tmp_path: Path, name: str, said: str) -> None:
    lines = wanderbus("count", "", "--log", str(tmp_path / name), status=1)
    assert lines == [f"wanderbus: {tmp_path / name} {said}"]


@pytest.mark.spark
def test_a_lake_gives_what_its_log_gives(wanderbus: Run, spark: SparkSession, log: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    ingest(spark, log / "log", lake, tmp_path / "checkpoint", declared={"Departure": {"Delay": "Double"}})
    for command in (
        ["match", "Delay >= 16"],
        ["match", "Delay >= 16 and Dest prefix IAH", "--subject", "Departure", "--from", "18"],
        ["count", "LENGTH(Dest) = 4", "--language", "cesql"],
        ["match", "Delay / 2 = 8 OR Delay = '13'", "--language", "cesql", "--json"],
        ["match", "Delay >= 0", "--from", "18", "--to", "2023-11-14T22:13:38Z"],
        ["match", "Delay >= 0", "--from", "2023-11-14T22:13:22Z", "--to", "8", "--json"],
        ["count", "", "--from", "2023-11-15"],
        ["sample", "Delay > 3", "-n", "3", "--seed", "7"],
        ["explain", "Delay > 3 and Dest == X", "--offset", "1"],
        ["replay", "wb-1-5"],
        ["replay", "wb-1-5", "--from", "7", "--to", "13"],
    ):
        assert wanderbus(*command, "--lake", str(lake)) == wanderbus(*command), command
    missed = ["explain", "", "--offset", "5", "--lake", str(lake)]
    assert wanderbus(*missed, status=1) == wanderbus(*missed[:-2], status=1)
    program = f"""
import sys
from wanderbus.cli.application import run
status = run(["history", "match", "Delay >= 16", "--lake", {str(lake)!r}])
print(status, [name for name in sys.modules if name.partition(".")[0] in ("pyspark", "py4j")])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [*wanderbus("match", "Delay >= 16"), "0 []"]


@pytest.mark.usefixtures("no_spark")
def test_few_events_are_read_without_spark_and_many_with_it(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = ["history", "count", "", "--log", str(log)]
    assert run(count) == 0
    assert run([*count, "--spark"]) == 2
    assert run([*count, "--master", "spark://h:7077"]) == 2
    assert capsys.readouterr() == ("20\n", "wanderbus: Spark is started\n" * 2)
    assert run([*count, "--no-spark", "--master", "spark://h:7077"]) == 2
    assert "there is no cluster without Spark" in capsys.readouterr().err
    size = sum(segment.stat().st_size for segment in (log / "log").glob("*.seg"))
    monkeypatch.setattr(local_batches, "LOG_BYTES_MAX", size)
    assert run(count) == 0
    monkeypatch.setattr(local_batches, "LOG_BYTES_MAX", size - 1)
    assert (run(count), run([*count, "--no-spark"])) == (2, 0)
    explain = ["history", "explain", "", "--offset", "1", "--log", str(log)]
    assert (run(explain), run([*explain, "--spark"])) == (0, 2)


@pytest.mark.spark
def test_one_event_of_a_large_lake_is_read_from_its_file_without_spark(
    wanderbus: Run, spark: SparkSession, tmp_path: Path
) -> None:
    subjects = ("Arrival", "Arrival", "Departure", "Departure")
    events = [published(Event(each, {"n": n}), number=n, at_us=_at(n)) for n, each in enumerate(subjects)]
    lake = tmp_path / "lake"
    ingest(spark, write_records(tmp_path / "few" / "log", events), lake, tmp_path / "checkpoint")
    explain = ["explain", "n == 1", "--lake", str(lake), "--offset"]
    assert wanderbus(*explain, "1") == ["matches: n == 1 is true: n is 1"]
    program = f"""
import sys
from wanderbus.cli.application import run
from wanderbus.pipeline.history import local_batches
local_batches.LAKE_BYTES_MAX = 0
status = [run(["history", *{explain!r}, offset]) for offset in ("1", "4")]
print(status, [name for name in sys.modules if name.partition(".")[0] in ("pyspark", "py4j")])
"""
    for file in (lake / "silver" / "events").rglob("*.parquet"):
        if pq.read_table(file, columns=["offset"])["offset"][0].as_py() >= 2:
            file.unlink()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["matches: n == 1 is true: n is 1", "[0, 1] []"]
    assert "there is no event at offset 4" in done.stderr
    [line] = wanderbus(*explain, "2", status=1)
    assert "silver/events" in line


@pytest.mark.spark
def test_spark_gives_an_answer_that_is_too_large_for_this_process(
    wanderbus: Run, log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = wanderbus("match", ""), wanderbus("replay", "wb-1-5")
    monkeypatch.setattr(local_history, "ANSWER_BYTES_MAX", 100)
    where = ["--log", str(log)]
    for command, lines in zip((["match", ""], ["replay", "wb-1-5"]), expected, strict=True):
        assert run(["history", *command, *where, "--no-spark"]) == 1
        assert "MiB; answer with --spark" in capsys.readouterr().err
        assert run(["history", *command, *where]) == 0
        assert capsys.readouterr().out.splitlines() == lines
