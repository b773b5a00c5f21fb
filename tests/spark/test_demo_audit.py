"""Each defect in hand-made evidence is counted, and nothing else is (SPEC T-08)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from demo import SUBJECTS
from demo.audit import (
    DECLARED,
    JourneysResult,
    SubjectResult,
    Traveller,
    away_facts,
    journeys,
    read_evidence,
    taking_facts,
)
from tests.published import published
from wanderbus.errors import StorageError
from wanderbus.event import Event
from wanderbus.pipeline.lake import ingest
from wanderbus.records import Notified, encode_record
from wanderbus.segments import HEADER, HIGH_WATER, pack_frame, pack_mark, segment_name

Lines = Sequence[Mapping[str, Any]]
Evidence = Mapping[str, Lines]

START_US = 1_700_000_000_000_000
EVIDENCE_NAMES = ("expected", "taken", "moves", "away")
pytestmark = pytest.mark.spark

ENGINES = {"Departure": "broker", "Arrival": "spark"}
PUBLISHED = "subject string, row bigint, engine string, offset bigint, published_us bigint"

CASES: Mapping[str, tuple[Sequence[int], Sequence[int], tuple[int, ...]]] = {
    "a-fine": ([1, 3, 5], [1, 3, 5], (3, 3, 0, 0, 0, 0)),
    "b-lost": ([1, 2, 3], [1, 3], (3, 2, 1, 0, 0, 0)),
    "c-repeated": ([1, 2, 3], [1, 2, 1, 2, 1, 3], (3, 3, 0, 3, 0, 0)),
    "d-out-of-order": ([1, 2, 3, 4], [1, 4, 2, 3], (4, 4, 0, 0, 2, 0)),
    "e-unexpected": ([1, 2], [1, 2, 5], (2, 2, 0, 0, 0, 1)),
    "f-never-published": ([1, 2], [1, 77, 2], (2, 2, 0, 0, 0, 1)),
    "g-nothing-taken": ([1, 2], [], (2, 0, 2, 0, 0, 0)),
    "h-nothing-expected": ([], [3, 3], (0, 0, 0, 1, 0, 1)),
    "i-all-at-once": ([1, 2, 3], [3, 3, 1, 6], (3, 2, 1, 1, 1, 1)),
}
"""By user: expected rows, taken rows, and the counts expected, delivered, lost, repeated, out_of_order, unexpected."""

HEALING_MS: Mapping[str, Sequence[int | None]] = {
    "a-fine": [100, 200, 300, 400, None],
    "b-lost": [None],
    "c-repeated": [50],
}
AWAY_S = {"a-fine": [(0, 10), (5, 8), (7, 12), (20, 21)], "b-lost": [(0, 3)]}


def expected(user: str, rows: Sequence[int]) -> Lines:
    return [{"user": user, "subject": "Departure", "row": row} for row in rows]


def taken(user: str, rows: Sequence[int], latency_us: int = 4_500) -> Lines:
    """Every first taking is ``latency_us`` after the publication, every other one long after."""
    return [
        {
            **{"user": user, "subject": "Departure", "seq": seq, "row": row},
            "at_us": START_US + row * 1_000 + latency_us + (10**9 if row in rows[: seq - 1] else 0),
        }
        for seq, row in enumerate(rows, 1)
    ]


def moves(user: str, healing_ms: Sequence[int | None]) -> Lines:
    move = {"user": user, "moved_us": START_US, "address": "127.0.0.7:1"}
    return [{**move, "healed_us": ms and START_US + ms * 1_000} for ms in healing_ms]


def away(user: str, spans: Sequence[tuple[int, int]]) -> Lines:
    return [
        {"user": user, "why": "tunnel", "from_us": START_US + low * 1_000_000, "to_us": START_US + high * 1_000_000}
        for low, high in spans
    ]


def write_evidence(directory: Path, evidence: Evidence) -> Path:
    directory.mkdir(exist_ok=True)
    for name in EVIDENCE_NAMES:
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in evidence.get(name, [])))
    return directory


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows 1 to 6 as departures, row 1 as an arrival too, and an event of another subject; each notified to a traveller
    and a stranger.
    """
    work = tmp_path_factory.mktemp("journeys")
    log = work / "log"
    log.mkdir()
    users = ("a-fine", "stranger")
    events = [*(("Departure", row) for row in range(1, 7)), ("Arrival", 1), ("Weather", 1)]
    records = [
        published(
            Event(subject, {"Row": row}, published_us=START_US + row * 1_000),
            at_us=START_US + row * 1_000 + 300,
            user="sip:airline@localhost",
            device="d",
            epoch=1,
            number=number,
            notified=tuple(Notified(user, "default", number, ("north-1",)) for user in users),
        )
        for number, (subject, row) in enumerate(events, 1)
    ]
    packed = b"".join(pack_frame(offset, 0, encode_record(record)) for offset, record in enumerate(records))
    (log / segment_name(0)).write_bytes(HEADER + packed)
    (log / HIGH_WATER).write_bytes(pack_mark(len(records)))
    counts = ingest(spark, log, work / "lake", work / "checkpoint", declared=DECLARED)
    assert counts["records"].rows == 8
    return work / "lake"


@pytest.fixture(scope="module")
def result(spark: SparkSession, lake: Path, tmp_path_factory: pytest.TempPathFactory) -> JourneysResult:
    evidence = {
        "expected": [line for user, (rows, _, _) in CASES.items() for line in expected(user, rows)],
        "taken": [line for user, (_, rows, _) in CASES.items() for line in taken(user, rows)],
        "moves": [line for user, healing in HEALING_MS.items() for line in moves(user, healing)],
        "away": [line for user, spans in AWAY_S.items() for line in away(user, spans)],
    }
    return journeys(spark, lake, write_evidence(tmp_path_factory.mktemp("evidence"), evidence), ENGINES)


@pytest.fixture
def travellers(result: JourneysResult) -> dict[str, Traveller]:
    return {traveller.user: traveller for traveller in result.travellers}


def test_every_defect_is_counted_where_it_is_and_only_there(travellers: dict[str, Traveller]) -> None:
    found = {
        user: (*(t.expected, t.delivered, t.lost), *(t.repeated, t.out_of_order, t.unexpected))
        for user, t in travellers.items()
    }
    assert found == {user: counts for user, (_, _, counts) in CASES.items()}
    assert list(found) == sorted(CASES)


def test_totals_are_the_sums_and_account_for_every_taking(result: JourneysResult) -> None:
    totals = result.totals
    sums = tuple(sum(counts[place] for _, _, counts in CASES.values()) for place in range(6))
    assert (totals.expected, totals.delivered, totals.lost) == sums[:3]
    assert (totals.repeated, totals.out_of_order, totals.unexpected) == sums[3:]
    assert totals.delivered + totals.repeated + totals.unexpected == sum(len(rows) for _, rows, _ in CASES.values())
    assert result.published == 7


def test_healing_is_given_in_exact_percentiles(result: JourneysResult, travellers: dict[str, Traveller]) -> None:
    a, b, c = (travellers[user] for user in HEALING_MS)
    assert (a.moves, a.healed, a.healing_p50_ms, a.healing_max_ms) == (5, 4, 250.0, 400.0)
    assert a.healing_p95_ms == pytest.approx(385.0)
    assert (b.moves, b.healed, b.healing_p50_ms, b.healing_p95_ms, b.healing_max_ms) == (1, 0, None, None, None)
    assert (c.healing_p50_ms, c.healing_p95_ms, c.healing_max_ms) == (50.0, 50.0, 50.0)
    assert (result.totals.moves, result.totals.healed, result.totals.healing_p50_ms) == (7, 5, 200.0)


def test_overlapping_times_away_count_once(result: JourneysResult, travellers: dict[str, Traveller]) -> None:
    assert [travellers[user].away_s for user in AWAY_S] == [13.0, 3.0]
    assert result.totals.away_s == 16.0


def test_a_time_away_inside_an_earlier_longer_one_adds_nothing(spark: SparkSession, tmp_path: Path) -> None:
    lines = away("a", [(0, 100), (10, 20), (30, 40), (90, 101)])
    table = read_evidence(spark, write_evidence(tmp_path, {"away": lines}), "away")
    assert sorted(row["away_s"] for row in away_facts(table).collect()) == [0.0, 0.0, 1.0, 100.0]


def test_notifications_are_counted_from_the_lake_for_the_travellers_alone(
    result: JourneysResult, travellers: dict[str, Traveller]
) -> None:
    assert (travellers["a-fine"].notified, travellers["b-lost"].notified, result.totals.notified) == (7, 0, 7)


def test_latency_runs_from_publication_to_the_first_taking(
    result: JourneysResult, travellers: dict[str, Traveller]
) -> None:
    assert travellers["c-repeated"].latency_max_ms == travellers["c-repeated"].latency_p50_ms == 4.5
    assert travellers["g-nothing-taken"].latency_max_ms is None
    departures, arrivals = result.subjects
    assert (departures.subject, departures.engine, departures.published) == ("Departure", "broker", 6)
    assert departures.latency_p50_ms == departures.latency_max_ms == 4.5
    assert departures.takings == sum(len(set(rows) - {77}) for _, rows, _ in CASES.values())
    assert arrivals == SubjectResult(subject="Arrival", engine="spark", published=1)


def test_order_is_that_of_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """Rows published as 2, 1, 3 and taken so are in order; taken as 1, 2, 3 they are not."""
    evidence = {"taken": [*taken("a", [2, 1, 3]), *taken("b", [1, 2, 3])], "expected": expected("a", [1])}
    write_evidence(tmp_path, evidence)
    rows = [("Departure", row, "broker", offset, 0) for row, offset in ((2, 10), (1, 11), (3, 12))]
    facts = taking_facts(
        read_evidence(spark, tmp_path, "taken"),
        read_evidence(spark, tmp_path, "expected"),
        spark.createDataFrame(rows, PUBLISHED),
    )
    assert {tuple(row) for row in facts.groupBy("user").sum("out_of_order").collect()} == {("a", 0), ("b", 1)}


@pytest.mark.parametrize(("engine", "late"), [("broker", 0), ("spark", 1)])
def test_order_is_promised_among_the_events_of_one_engine(
    spark: SparkSession, tmp_path: Path, engine: str, late: int
) -> None:
    """An arrival that Spark matched may come after a later departure of the server, not after one of Spark."""
    lines = [{**line, "subject": subject} for line, subject in zip(taken("a", [2, 1]), SUBJECTS, strict=True)]
    taking = read_evidence(spark, write_evidence(tmp_path, {"taken": lines}), "taken")
    expected_ = taking.select("user", "subject", "row")
    rows = [("Departure", 2, engine, 11, 0), ("Arrival", 1, "spark", 10, 0)]
    facts = taking_facts(taking, expected_, spark.createDataFrame(rows, PUBLISHED))
    assert facts.groupBy().sum("out_of_order").collect()[0][0] == late


def test_a_departure_and_an_arrival_of_one_row_are_two_events(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    arrival: Mapping[str, Any] = {**taken("a", [1])[0], "subject": "Arrival"}
    evidence = {"expected": [*expected("a", [1]), {**expected("a", [1])[0], "subject": "Arrival"}], "taken": [arrival]}
    (found,) = journeys(spark, lake, write_evidence(tmp_path, evidence), ENGINES).travellers
    assert (found.expected, found.delivered, found.lost, found.repeated, found.unexpected) == (2, 1, 1, 0, 0)


def test_no_evidence_at_all_is_a_result_of_zeros(spark: SparkSession, lake: Path, tmp_path: Path) -> None:
    result = journeys(spark, lake, write_evidence(tmp_path, {}), ENGINES)
    assert (result.published, result.travellers) == (7, ())
    assert [(each.published, each.takings, each.latency_max_ms) for each in result.subjects] == [
        (6, 0, None),
        (1, 0, None),
    ]
    assert (result.totals.expected, result.totals.away_s, result.totals.healing_p50_ms) == (0, 0.0, None)


def test_the_result_is_plain_enough_for_json(result: JourneysResult) -> None:
    plain = json.loads(json.dumps(result.as_dict()))
    assert plain["subjects"][0]["subject"] == "Departure"
    assert plain["travellers"][0]["user"] == "a-fine"
    assert plain["travellers"][0]["delivered"] == 3
    assert plain["travellers"][1]["healing_p50_ms"] is None
    assert plain["totals"]["lost"] == 4


@pytest.mark.parametrize(
    "line",
    [
        '{"user":"a","subject":"s","seq":2,"row":1}',
        "not json",
        '{"user":"a","subject":"s","seq":"x","row":1,"at_us":1}',
        '{"user":"a","seq":2,"row":1,"at_us":1}',
    ],
)
def test_unusable_evidence_is_named_in_one_line(spark: SparkSession, tmp_path: Path, line: str) -> None:
    write_evidence(tmp_path, {"taken": taken("a", [1])})
    (tmp_path / "taken.jsonl").open("a").write(line + "\n")
    with pytest.raises(
        StorageError, match=r"taken.jsonl has 1 lines that cannot be used; each needs user, subject, seq, row"
    ):
        read_evidence(spark, tmp_path, "taken")


def test_missing_evidence_is_named_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"moves.jsonl is missing: it belongs to the evidence of a run"):
        read_evidence(spark, tmp_path, "moves")
