"""Results, evidence and audit: the travellers' files, and the verdict drawn from them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from demo import ARRIVAL, DEPARTURE
from demo.evidence import Away, Move, PlannedEnd, away_times, healed_us, read_lines, write_evidence
from demo.expected import Due
from demo.traveller_results import Entry, Results, read_journal, read_taken
from demo.users import User
from demo.verdict import make_result, verdict

ANA = "sip:ana@localhost"


def test_a_result_and_its_position_are_committed_together(tmp_path: Path) -> None:
    path = tmp_path / "ana.sqlite"
    with Results(path) as results:
        assert results.position() is None
        results.take(DEPARTURE, 12, 1_000, (1, 1), 2, False)
        results.take(ARRIVAL, 15, 2_000, (1, 2), 1, True)
    with Results(path) as results:
        assert results.position() == (1, 2)
        assert results.count() == 2
    assert [(taken.seq, taken.subject, taken.row, taken.redelivered) for taken in read_taken(path)] == [
        (1, DEPARTURE, 12, 0),
        (2, ARRIVAL, 15, 1),
    ]


def test_neither_is_kept_when_the_position_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "ana.sqlite"
    with Results(path) as results:
        with sqlite3.connect(path) as other:
            other.execute("create trigger no before insert on position begin select raise(abort, 'no'); end")
        with pytest.raises(sqlite3.IntegrityError):
            results.take(DEPARTURE, 12, 1_000, (1, 1), 1, False)
        assert results.count() == 0
    assert read_taken(path) == []


def test_a_traveller_that_never_began_has_no_results(tmp_path: Path) -> None:
    assert read_taken(tmp_path / "none.sqlite") == []
    assert read_journal(tmp_path / "none.sqlite") == []


def test_a_move_heals_at_the_first_connected_with_the_new_address() -> None:
    journal = [
        Entry(10, "CONNECTED", "10.0.0.1", ""),
        Entry(20, "DISCONNECTED", "10.0.0.1", "moved"),
        Entry(25, "CONNECTED", "10.0.0.1:4000", ""),
        Entry(30, "CONNECTED", "10.0.0.2:4000", ""),
        Entry(40, "CONNECTED", "10.0.0.2:4000", ""),
    ]
    assert healed_us(Move(ANA, 15, "10.0.0.2"), journal) == 30
    assert healed_us(Move(ANA, 15, "10.0.0.2"), journal, before_us=30) is None
    assert healed_us(Move(ANA, 15, "10.0.0.3"), journal) is None
    assert healed_us(Move(ANA, 5, "10.0.0.1"), journal) == 10


def test_away_is_from_the_first_sign_to_the_next_connected() -> None:
    journal = [
        Entry(1, "DISCONNECTED", "", "not yet"),
        Entry(5, "CONNECTED", "a", ""),
        Entry(20, "DISCONNECTED", "a", "no answer"),
        Entry(30, "CONNECTED", "a", ""),
        Entry(52, "DISCONNECTED", "a", "closed"),
        Entry(60, "started", "", ""),
        Entry(70, "CONNECTED", "a", ""),
        Entry(90, "DISCONNECTED", "a", "no answer"),
    ]
    planned_ends = [PlannedEnd(ANA, 50, "switched off")]
    assert away_times(journal, planned_ends, 100) == [
        Away(20, 30, "no answer"),
        Away(50, 70, "switched off"),
        Away(90, 100, "no answer"),
    ]
    assert away_times(journal, planned_ends, 60)[-1] == Away(50, 60, "switched off")


def test_the_four_files_hold_what_was_seen(tmp_path: Path) -> None:
    path = tmp_path / "ana.sqlite"
    with Results(path) as results:
        results.note(5, "CONNECTED", "a")
        results.take(ARRIVAL, 3, 9, (1, 1), 1, False)
        results.note(12, "CONNECTED", "b")
    moves = [Move(ANA, 10, "b"), Move(ANA, 20, "c")]
    write_evidence(
        tmp_path / "out",
        {ANA: [Due(ARRIVAL, 3)]},
        {ANA: read_taken(path)},
        {ANA: read_journal(path)},
        moves,
        [PlannedEnd(ANA, 15, "off")],
        30,
    )
    assert read_lines(tmp_path / "out" / "expected.jsonl") == [{"user": ANA, "subject": ARRIVAL, "row": 3}]
    assert read_lines(tmp_path / "out" / "taken.jsonl") == [
        {"user": ANA, "subject": ARRIVAL, "seq": 1, "row": 3, "at_us": 9}
    ]
    assert read_lines(tmp_path / "out" / "moves.jsonl") == [
        {"user": ANA, "moved_us": 10, "healed_us": 12, "address": "b"},
        {"user": ANA, "moved_us": 20, "healed_us": None, "address": "c"},
    ]
    assert read_lines(tmp_path / "out" / "away.jsonl") == [{"user": ANA, "from_us": 15, "to_us": 30, "why": "off"}]


def job(**changes: int) -> dict[str, Any]:
    healing = {"healing_p50_ms": 20.0, "healing_p95_ms": 40.0, "healing_max_ms": 41.0}
    counts = dict.fromkeys(("lost", "repeated", "out_of_order", "unexpected"), 0)
    line = {"expected": 5, "delivered": 5, **counts, "notified": 5, "moves": 2, "healed": 2, "away_s": 1.5, **healing}
    latency = {"latency_p50_ms": 3.0, "latency_p95_ms": 5.0, "latency_max_ms": 9.0}
    subjects = [
        {"subject": DEPARTURE, "engine": "broker", "published": 5, "takings": 3, **latency},
        {"subject": ARRIVAL, "engine": "spark", "published": 4, "takings": 2, **latency},
    ]
    return {
        "published": 9,
        "quarantined_own_records": 0,
        "totals": healing,
        "travellers": [{"user": ANA, **line, **changes}],
        "subjects": subjects,
    }


SLICE: dict[str, Any] = {"first_row": 3, "rows": 5, "events": 9, "engine": "both", "address_mode": "netns"}


def reckoned(found: dict[str, Any]) -> dict[str, Any]:
    users = [User("ana", ("Dest == IAH",), ("ArrDelay > 30",))]
    return make_result(found, users, **SLICE, killed=["server", "ana", "spark"])


def test_the_result_has_the_form_that_was_promised() -> None:
    result = reckoned(job())
    assert {
        "travellers",
        "published",
        "slice",
        "address_changes",
        "kills",
        "healing_ms",
        "address_mode",
    } <= result.keys()
    (line,) = result["travellers"]
    promised = {"user", "subscriptions", "expected", "delivered", "lost", "repeated", "out_of_order"}
    assert promised <= line.keys()
    assert result["slice"] == {"first_row": 3, "rows": 5, "events": 9}
    assert result["kills"] == {"agent": 1, "server": 1, "spark": 1}
    assert list(zip(line["subjects"], line["subscriptions"], strict=True)) == [
        (DEPARTURE, "Dest == IAH"),
        (ARRIVAL, "ArrDelay > 30"),
    ]
    assert [(each["subject"], each["engine"], each["latency_ms"]["p95"]) for each in result["subjects"]] == [
        (DEPARTURE, "broker", 5.0),
        (ARRIVAL, "spark", 5.0),
    ]
    assert result["address_changes"] == 2
    assert result["healing_ms"] == {"p50": 20.0, "p95": 40.0, "max": 41.0}
    assert result["good"]
    assert verdict(result).startswith("good")


@pytest.mark.parametrize("fault", ["lost", "repeated", "out_of_order", "unexpected"])
def test_any_fault_is_not_good(fault: str) -> None:
    result = reckoned(job(**{fault: 1}))
    assert not result["good"]
    assert f"1 {fault.replace('_', ' ')}" in verdict(result)


def test_a_record_in_the_quarantine_is_not_good() -> None:
    result = reckoned({**job(), "quarantined_own_records": 2})
    assert not result["good"]
    assert "NOT good: 2 records in the quarantine of the lake" in verdict(result)
    assert [(each["name"], each["value"], each["met"]) for each in result["goals"]] == [
        ("quarantined_own_records", 2, False)
    ]


def test_a_traveller_the_job_knows_nothing_of_or_an_event_too_many_is_not_hidden() -> None:
    assert not reckoned({**job(), "published": 10})["good"]
    troubled = make_result(job(), [], **SLICE, killed=[], trouble=["ana had failed"])
    assert not troubled["good"]
    assert "ana had failed" in verdict(troubled)
    nobody = reckoned({**job(), "travellers": []})
    assert nobody["travellers"][0]["expected"] == 0
