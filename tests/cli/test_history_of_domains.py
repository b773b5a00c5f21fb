"""``wanderbus history`` over the lakes of domains that share events: each event once, with Spark and without."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.log_files import write_records
from tests.published import published
from wanderbus.broker.servers.server_users import domain_of
from wanderbus.cli.application import run
from wanderbus.cli.pipeline import past_events
from wanderbus.event import Event, EventId
from wanderbus.pipeline.history import lakes_batches
from wanderbus.pipeline.history.domain_lakes import KEY, DomainLake, keys_in, repeated_offsets
from wanderbus.pipeline.lake.jobs import ingest
from wanderbus.pipeline.lake.lake_parents import store_parents
from wanderbus.pipeline.lake.logs import LakeLogs
from wanderbus.records import Attached, Record, Started

START_US = 1_700_000_000_000_000
INCARNATIONS = {"a1": 7, "b1": 9, "d1": 11, "c1": 13}
Run = Callable[..., list[str]]
Accepted = tuple[str, int]
"""Server that accepted an event, and its number there."""


def record(domain: str, server: str, offset: int, second: float, of: Accepted, subject: str = "Price") -> Record:
    """The record of a server of a domain for an event that it accepted, or for one of a foreign domain."""
    event = Event(subject, {"Value": of[1], "Source": of[0]})
    id, at_us = EventId(server, INCARNATIONS[server], offset), START_US + int(second * 1e6)
    if of[0] == server:
        return published(event, number=offset, at_us=at_us, user=f"sip:desk@{domain}.example", id=id)
    user = f"sip:{DOMAINS[of[0]]}.example@domains.{domain}.example"
    device, epoch = f"{of[0]}/{subject}", INCARNATIONS[of[0]]
    return published(event, number=of[1], at_us=at_us, user=user, device=device, epoch=epoch, id=id)


DOMAINS = {"a1": "alpha", "b1": "beta", "d1": "delta", "c1": "gamma"}
LOGS: dict[str, list[tuple[float, Accepted]]] = {
    "a1": [(10, ("a1", 2)), (12, ("a1", 3)), (14, ("a1", 4))],
    # The lake of alpha is behind: it lacks the event 9. Nobody gives the lake of gamma, with c1.
    "b1": [(11, ("b1", 2)), (10.5, ("a1", 2)), (12.5, ("a1", 3)), (15, ("a1", 9)), (16, ("c1", 4))],
    "d1": [(12.6, ("a1", 3)), (17, ("c1", 4)), (18, ("d1", 4)), (19, ("a1", 9))],
}
"""Times and events of the log of each server, from offset 2 on."""


def records_of(server: str) -> list[Record]:
    domain = DOMAINS[server]
    other = "beta" if domain == "alpha" else "alpha"
    user = f"sip:{other}.example@domains.{domain}.example"
    begin: list[Record] = [
        Started(at_us=START_US, server=server, incarnation=INCARNATIONS[server]),
        Attached(at_us=START_US, user=user, session="import", device="import", epoch=1),
    ]
    own = (record(domain, server, offset, at, of) for offset, (at, of) in enumerate(LOGS[server], 2))
    return [*begin, *own]


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The lakes of alpha, beta and delta."""
    directory = tmp_path_factory.mktemp("lakes")
    for server, domain in list(DOMAINS.items())[:3]:
        log = write_records(directory / f"{domain}-data" / "log", records_of(server))
        ingest(spark, log, directory / domain, directory / f"{domain}-checkpoint")
    return {domain: directory / domain for domain in ("alpha", "beta", "delta")}


@pytest.fixture
def wanderbus(use_session: Callable[..., None], made: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command on lakes without Spark, and returns its lines; Spark gives the same."""
    use_session(past_events)

    def lines(*arguments: str, status: int) -> list[str]:
        assert run(["history", *arguments]) == status
        output = capsys.readouterr()
        return [line for line in (output.err if status else output.out).splitlines() if not line.endswith("tasks done")]

    def command(lakes: str, *arguments: str, status: int = 0) -> list[str]:
        where = [word for each in lakes.split() for word in ("--lake", str(made.get(each, each)))]
        found = lines(*arguments, *where, "--no-spark", status=status)
        assert lines(*arguments, *where, "--spark", status=status) == found
        return found

    return command


@pytest.mark.spark
def test_t04_an_event_counts_once_whichever_lakes_have_it(wanderbus: Run) -> None:
    assert [wanderbus(each, "count", "") for each in ("alpha", "beta", "delta")] == [["3"], ["5"], ["4"]]
    assert wanderbus("alpha beta", "count", "") == ["6"]
    assert wanderbus("beta delta", "count", "") == ["6"]
    assert wanderbus("alpha beta delta", "count", "") == wanderbus("delta beta alpha", "count", "") == ["7"]
    assert wanderbus("alpha beta delta", "count", "Source == a1", "--subject", "Price") == ["4"]
    assert wanderbus("alpha beta delta", "count", "", "--subject", "Other") == ["0"]


@pytest.mark.spark
def test_matches_name_the_domain_that_published_and_are_in_order_of_time(wanderbus: Run) -> None:
    lines = wanderbus("beta alpha delta", "match", "")
    assert [line.split(" ")[:2] for line in lines] == [
        ["alpha.example", "alpha.example/2"],
        ["beta.example", "beta.example/2"],
        ["alpha.example", "alpha.example/3"],
        ["alpha.example", "alpha.example/4"],
        ["alpha.example", "beta.example/5"],
        ["gamma.example", "beta.example/6"],
        ["delta.example", "delta.example/4"],
    ]
    assert [line.split(" ")[1] for line in wanderbus("delta beta", "match", "Source == c1")] == ["delta.example/3"]
    row = json.loads(wanderbus("alpha beta", "match", "Value == 9", "--json")[0])
    assert row == {
        "domain": "alpha.example",
        "lake": "beta.example",
        "offset": 5,
        "at_us": START_US + 15_000_000,
        "subject": "Price",
        "attributes": {"Value": 9, "Source": "a1"},
    }
    [alone] = wanderbus("beta", "match", "Value == 9")
    assert alone.startswith("5 ")


@pytest.mark.spark
def test_bounds_are_those_of_the_row_that_counts(wanderbus: Run) -> None:
    late = "2023-11-14T22:13:30.4Z"  # between the event 2 of a1 and its row in the lake of beta
    assert wanderbus("alpha beta", "count", "Value == 2 and Source == a1", "--from", late) == ["0"]
    assert wanderbus("beta", "count", "Value == 2 and Source == a1", "--from", late) == ["1"]
    assert wanderbus("alpha beta", "count", "", "--to", late) == ["1"]


@pytest.mark.spark
def test_samples_and_explanations_are_of_several_lakes_too(wanderbus: Run) -> None:
    drawn = wanderbus("alpha beta delta", "sample", "", "-n", "3")
    assert len(set(drawn)) == 3
    assert set(drawn) <= set(wanderbus("alpha beta delta", "match", ""))
    for place, value in (("alpha.example/3", 3), ("beta.example/4", 3), ("delta.example/4", 4)):
        words = "explain", f"Value == {value}", "--offset", place
        assert wanderbus("alpha beta delta", *words)[0].startswith("matches: ")
    row = json.loads(wanderbus("alpha beta", "explain", "Value > 2", "--offset", "beta.example/4", "--json")[0])
    assert (row["lake"], row["offset"], row["matches"]) == ("beta.example", 4, True)


@pytest.mark.spark
@pytest.mark.parametrize(("first", "second", "found"), [(4, 9, 1), (3, 3, 0)])
def test_a_pattern_over_several_lakes_takes_each_event_once(
    first: int,
    second: int,
    found: int,
    use_session: Callable[..., None],
    made: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    use_session(past_events)
    steps = f"match A: Price (Value == {first}) then B: Price (Value == {second}) within 2 hours"
    lakes = [word for name in ("alpha", "beta", "delta") for word in ("--lake", str(made[name]))]
    assert run(["pattern", "run", f"pattern p by Source {steps} emit done with source = A.Source", *lakes]) == 0
    assert len(capsys.readouterr().out.splitlines()) == found


@pytest.mark.spark
def test_events_of_subjects_below_count_once(wanderbus: Run, made: dict[str, Path], tmp_path: Path) -> None:
    lakes = [Path(shutil.copytree(made[name], tmp_path / name)) for name in ("alpha", "beta")]
    for lake in lakes:
        store_parents(lake, {"Price": "Anything"})
    assert wanderbus(" ".join(map(str, lakes)), "count", "", "--subject", "Anything") == ["6"]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("words", "reason", "status"),
    [
        (("count", "", "--server", "a1"), "those of one lake; give times", 2),
        (("count", "", "--from", "7"), "those of one lake; give times", 2),
        (("replay", "wb-1"), "give the lake of that domain alone", 2),
        (("explain", "", "--offset", "7"), "names none of the lakes alpha.example, beta.example", 2),
        (("explain", "", "--offset", "beta.example/x"), "invalid offset 'x'", 1),
        (("explain", "", "--offset", "beta.example/77"), "there is no event at offset", 1),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_questions_to_one_lake_are_refused_for_several(
    words: Sequence[str], reason: str, status: int, wanderbus: Run
) -> None:
    assert reason in wanderbus("alpha beta", *words, status=status)[-1]


@pytest.mark.spark
def test_the_domain_of_a_lake_can_be_given_but_not_another_one(wanderbus: Run, made: dict[str, Path]) -> None:
    alpha, beta = made["alpha"], made["beta"]
    assert wanderbus(f"alpha.example={alpha} {beta}", "count", "") == ["6"]
    wrong = wanderbus(f"gamma.example={alpha} {beta}", "count", "", status=2)
    assert f"{alpha} is the lake of alpha.example, not of gamma.example" in wrong[-1]
    assert "given twice" in wanderbus(f"{alpha} {beta} {beta}/../beta", "count", "", status=2)[-1]


@pytest.mark.spark
def test_a_lake_that_may_be_of_two_domains_has_to_be_named(
    wanderbus: Run, spark: SparkSession, made: dict[str, Path], tmp_path: Path
) -> None:
    guest = Attached(at_us=START_US, user="sip:bob@domains.guests.example", session="s", device="d", epoch=1)
    log = write_records(tmp_path / "data" / "log", [*records_of("b1"), guest])
    lake = tmp_path / "lake"
    ingest(spark, log, lake, tmp_path / "checkpoint")
    refused = wanderbus(f"alpha {lake}", "count", "", status=1)
    assert f"beta.example or guests.example; give the right one as --lake DOMAIN={lake}" in refused[-1]
    assert wanderbus(f"alpha beta.example={lake}", "count", "") == ["6"]


@pytest.mark.spark
def test_more_ids_than_fit_into_memory_are_compared_by_spark(
    use_session: Callable[..., None],
    made: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    use_session(past_events)
    monkeypatch.setattr(lakes_batches, "KEYS_BYTES_MAX", 100)
    words = ["history", "count", "", "--lake", str(made["alpha"]), "--lake", str(made["beta"])]
    assert run([*words, "--no-spark"]) == 1
    assert "the lakes have more than 0 MiB of ids; use --spark" in capsys.readouterr().err
    assert run(words) == 0
    assert capsys.readouterr().out == "6\n"


# Keys ----------------------------------------------------------------------------------------------------------------


def lake_of(domain: str, base: int = 0) -> DomainLake:
    return DomainLake(Path("lake"), domain, domain or "lake", base, LakeLogs(Path("lake"), ("a1-7",)))


def rows(*given: tuple[int, str, str, int]) -> pa.RecordBatch:
    """Rows of a server s1 at offsets, each with its publisher, device and number there."""
    offsets, users, devices, numbers = (list(column) for column in zip(*given, strict=True))
    length = len(offsets)
    columns = {
        "offset": offsets,
        "server": ["s1"] * length,
        "incarnation": [5] * length,
        "number": offsets,
        "user": users,
        "device": devices,
        "device_epoch": [6] * length,
        "device_number": numbers,
    }
    return pa.RecordBatch.from_pydict(columns)


def test_the_key_of_an_event_is_its_id_in_the_domain_that_published_it() -> None:
    batch = rows((3, "sip:bob@b", "tab/let", 1), (4, "sip:a@domains.b", "s9/A/B", 8), (5, "sip:a@domains.c", "s9/A", 8))
    found = keys_in(batch, lake_of("b", 1_000)).to_pylist()
    assert [(tuple(row[name] for name in KEY), row["offset"], row["is_foreign"]) for row in found] == [
        (("b", "s1", 5, 3), 1_003, False),
        (("a", "s9", 6, 8), 1_004, True),
        (("b", "s1", 5, 5), 1_005, False),
    ]
    assert [row["domain"] for row in keys_in(batch, lake_of("")).to_pylist()] == ["lake"] * 3


def test_the_row_of_the_own_domain_counts_and_otherwise_the_first() -> None:
    own = keys_in(rows((8, "sip:bob@a", "d", 1)), lake_of("a", 3_000))
    foreign = rows(
        (1, "sip:a@domains.b", "s1/X", 8), (2, "sip:a@domains.b", "s1/X", 9), (3, "sip:a@domains.b", "s1/X", 9)
    )
    # The epoch of the foreign rows is 6, and that of the own one 5: they are other events.
    assert repeated_offsets([keys_in(foreign, lake_of("b")), own]) == {3}
    same = foreign.set_column(6, "device_epoch", pa.array([5, 5, 5]))
    assert repeated_offsets([keys_in(same, lake_of("b")), own]) == {1, 3}
    assert repeated_offsets([keys_in(same, lake_of("c")), own]) == frozenset()
    assert repeated_offsets([]) == frozenset()


def test_a_foreign_domain_is_a_reserved_user_of_the_own_domain_only() -> None:
    assert domain_of("sip:a@domains.b", "b") == "a"
    assert domain_of("sip:a@domains.c", "b") is None
    assert domain_of("sip:a@domains.", "") is None
    assert lake_of("b").publishing_domain("sip:a@domains.b") == "a"
    assert lake_of("b").publishing_domain("sip:bob@elsewhere") == "b"
    assert lake_of("").publishing_domain("sip:bob@elsewhere") == "lake"
