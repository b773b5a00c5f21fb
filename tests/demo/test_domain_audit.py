"""The audit of a run without Spark: its counts against runs that went wrong in one way each."""

from __future__ import annotations

from typing import Any

import pytest

from demo import ARRIVAL, DEPARTURE
from demo.domain_audit import journeys

USER = "sip:ana@localhost"
Key = tuple[str, int]
DUE: list[Key] = [(DEPARTURE, 1), (ARRIVAL, 1), (DEPARTURE, 4), (DEPARTURE, 7)]


def audited(taken: list[Key], order_of: dict[Key, str] | None = None) -> dict[str, Any]:
    """The result of a traveller who took these events in this order, a microsecond apart."""
    evidence: dict[str, list[dict[str, Any]]] = {
        "expected": [{"user": USER, "subject": subject, "row": row} for subject, row in DUE],
        "taken": [
            {"user": USER, "subject": subject, "seq": seq, "row": row, "at_us": seq}
            for seq, (subject, row) in enumerate(taken, 1)
        ],
        "moves": [
            {"user": USER, "moved_us": 0, "healed_us": 50_000, "address": "10.0.0.1"},
            {"user": USER, "moved_us": 60_000, "healed_us": None, "address": "10.0.0.2"},
        ],
        "away": [{"user": USER, "from_us": 0, "to_us": 1_500_000, "why": "killed"}],
        "kills": [],
    }
    return journeys(evidence, 9, {(subject, row): row - 1_000 for subject, row in DUE}, 0, order_of)


def counts(line: dict[str, Any]) -> tuple[int, ...]:
    return tuple(line[name] for name in ("expected", "delivered", "lost", "repeated", "out_of_order", "unexpected"))


@pytest.mark.parametrize(
    ("taken", "found"),
    [
        (DUE, (4, 4, 0, 0, 0, 0)),
        ([DUE[0], *DUE[2:], DUE[1]], (4, 4, 0, 0, 0, 0)),  # subjects have no common order
        (DUE[:3], (4, 3, 1, 0, 0, 0)),
        ([*DUE, DUE[0]], (4, 4, 0, 1, 0, 0)),
        ([DUE[2], DUE[0], DUE[1], DUE[3]], (4, 4, 0, 0, 1, 0)),
        ([*DUE, (ARRIVAL, 9)], (4, 4, 0, 0, 0, 1)),
    ],
)
def test_each_fault_is_counted(taken: list[Key], found: tuple[int, ...]) -> None:
    assert counts(audited(taken)["travellers"][0]) == found


def test_moves_and_times_away_are_measured() -> None:
    [line] = audited(DUE)["travellers"]
    assert (line["moves"], line["healed"], line["healing_p50_ms"], line["away_s"]) == (2, 1, 50.0, 1.5)


def test_the_latency_is_that_of_the_first_commit_of_each_event() -> None:
    result = audited([(ARRIVAL, 9), DUE[2], DUE[1], DUE[0], DUE[0]])
    departures, arrivals = result["subjects"]
    assert [(line["published"], line["takings"]) for line in (departures, arrivals)] == [(3, 3), (1, 2)]
    assert (arrivals["latency_p50_ms"], arrivals["latency_max_ms"]) == (1.002, 1.002)
    assert (departures["latency_p50_ms"], departures["latency_max_ms"]) == (pytest.approx(1.0005), 1.003)
    assert result["totals"]["latency_p50_ms"] == result["travellers"][0]["latency_p50_ms"] == 1.002


def test_events_of_different_domains_have_no_common_order() -> None:
    swapped = [DUE[2], DUE[0], DUE[1], DUE[3]]
    of_two = {(DEPARTURE, 1): "a", (DEPARTURE, 4): "b", (DEPARTURE, 7): "a", (ARRIVAL, 1): "a arrival"}
    assert audited(swapped, of_two)["travellers"][0]["out_of_order"] == 0
    assert audited(swapped, {**of_two, (DEPARTURE, 4): "a"})["travellers"][0]["out_of_order"] == 1
