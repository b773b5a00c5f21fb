"""Notifications that cross between domains: what waited, and how long; the plots and the tile of a cut."""

from __future__ import annotations

import re
from typing import Any

import pytest

from demo.crossings import Delivery, Stays, cut_result, deliveries, domain_result, misnamed, most_waiting, waiting
from demo.html_domains import SLICES, highest
from demo.html_report import page
from demo.traveller_results import Taken
from demo.verdict import headline
from tests.demo.test_display_and_report import EVIDENCE, result

CUT = {"who": "b", "from_us": 2_000_000, "to_us": 3_000_000}


def delivery(published_s: float, taken_s: float | None, origin: str = "a", place: str = "b") -> Delivery:
    return Delivery(place, origin, int(published_s * 1e6), None if taken_s is None else int(taken_s * 1e6))


def walk(imported_us: int, to: str, user: str = "sip:ana@b") -> dict[str, Any]:
    """Return a walk of a session to a domain."""
    return {"user": user, "source": "x/s1", "target": f"{to}/s1", "imported_us": imported_us}


def test_deliveries_have_the_first_taking_and_the_domain_of_the_row() -> None:
    due = [{"user": "sip:ana@b", "subject": "D", "row": row} for row in (2, 1, 3)]
    taken = [{"user": "sip:ana@b", "subject": "D", "row": 1, "seq": seq, "at_us": 100 + seq} for seq in (2, 1)]
    found = deliveries({"expected": due, "taken": taken}, {("D", 1): 10, ("D", 2): 20}, {1: "a", 2: "b", 3: "a"})
    assert found == [Delivery("b", "a", 10, 101), Delivery("b", "b", 20, None)]
    assert [each.crosses for each in found] == [True, False]


def test_the_domain_that_an_application_sees_is_that_which_published_the_event() -> None:
    def taken(row: int, origin: str) -> Taken:
        return Taken(row, "D", row, 0, 0, 0, 1, 0, origin)

    origin_of, stays = {1: "a", 2: "b", 3: "c"}, Stays("sip:ana@b")
    assert misnamed(stays, [taken(1, "a"), taken(2, ""), taken(3, "c")], origin_of, {}) == 0
    assert misnamed(stays, [taken(1, ""), taken(2, "a"), taken(3, "a"), taken(4, "")], origin_of, {}) == 4


def test_an_event_without_a_domain_is_of_one_that_had_the_session_since_it_was_published() -> None:
    def taken(row: int, at_us: int) -> Taken:
        return Taken(row, "D", row, at_us, 0, 0, 1, 0)

    stays, origin_of = Stays("sip:ana@b", [walk(50, "a"), walk(60, "b", user="sip:bob@b")]), {1: "b", 2: "a"}
    assert misnamed(stays, [taken(1, 40), taken(2, 50)], origin_of, {}) == 0
    assert misnamed(stays, [taken(1, 50), taken(2, 49)], origin_of, {}) == 2
    assert misnamed(stays, [taken(1, 50)], origin_of, {("D", 1): 49}) == 0, "it has waited for the move"
    assert misnamed(stays, [taken(1, 50)], origin_of, {("D", 1): 50}) == 1


def test_an_event_crosses_if_another_domain_has_the_session_as_it_is_published() -> None:
    due = [{"user": "sip:ana@b", "subject": "D", "row": row} for row in (1, 2)]
    times = {("D", 1): 10, ("D", 2): 20}
    found = deliveries({"expected": due, "taken": []}, times, {1: "a", 2: "a"}, [walk(15, "a")])
    assert [(each.place, each.crosses) for each in found] == [("b", True), ("a", False)]


def test_notifications_wait_from_publishing_to_the_taking() -> None:
    several = [delivery(1, 3), delivery(2, 5), delivery(4, None)]
    assert waiting(several, 9_000_000) == [
        *((1_000_000, 1), (2_000_000, 2), (3_000_000, 1), (4_000_000, 2), (5_000_000, 1), (9_000_000, 1)),
    ]
    assert (most_waiting(several), most_waiting([])) == (2, 0)


def test_a_cut_counts_what_waited_for_its_end_and_how_long_that_took() -> None:
    waited = [delivery(2.1, 3.5), delivery(2.9, 3.2), delivery(2.8, 3.9, origin="b", place="a")]
    others = [delivery(1.0, 1.5), delivery(3.5, 9.0), delivery(2.5, 2.6, place="a"), delivery(2.5, 2.6, origin="b")]
    found = cut_result(CUT, [*waited, *others])
    assert found == {
        "domain": "b",
        "ms": 1_000.0,
        "waited": 3,
        "waiting_max": 3,
        "caught_up_ms": 900.0,
        "passed": 0,
        "is_complete": True,
    }


@pytest.mark.parametrize(
    ("more", "passed", "is_complete"),
    [(delivery(2.6, 2.7), 1, True), (delivery(2.1, 2.2), 0, True), (delivery(2.6, None), 0, False)],
)
def test_a_cut_shows_what_passed_and_what_never_came(more: Delivery, passed: int, is_complete: bool) -> None:
    found = cut_result(CUT, [delivery(2.1, 3.5), more])
    assert (found["passed"], found["is_complete"]) == (passed, is_complete)


def test_a_domain_has_figures_of_its_own_events_and_of_those_of_others() -> None:
    found = domain_result("b", ["b1"], [delivery(1, 1.5), delivery(1, None), delivery(1, 3, origin="b")], 7)
    assert (found["published"], found["servers"]) == (7, ["b1"])
    assert found["own"]["latency_ms"] == {"p50": 2_000.0, "p95": 2_000.0, "max": 2_000.0}
    assert (found["foreign"]["due"], found["foreign"]["delivered"], found["foreign"]["waiting_max"]) == (2, 1, 2)


def test_a_line_has_the_highest_point_of_each_slice() -> None:
    points = [(0.0, 1.0), (0.1, 5.0), (50.0, 2.0), (100.0, 3.0)]
    assert highest(points) == [(0.1, 5.0), (50.0, 2.0), (100.0, 3.0)]
    assert len(highest((each / 100, 1.0) for each in range(10_000))) == SLICES


def of_domains() -> dict[str, list[dict[str, Any]]]:
    """Evidence of a run in which b was cut off for a second."""
    several = [delivery(1, 1.1), delivery(2.2, 3.4), delivery(2.2, 2.3, origin="b"), delivery(4, 4.1, place="a")]
    return {**EVIDENCE, "cuts": [CUT], "deliveries": [each._asdict() for each in several]}


def served() -> dict[str, Any]:
    evidence = of_domains()
    every = [Delivery(**line) for line in evidence["deliveries"]]
    domains = [domain_result(name, [name], every, 4) for name in ("a", "b")]
    return {"engine": "domain", "domains": domains, "cuts": [cut_result(CUT, every)]}


def test_the_report_draws_the_cut_in_both_plots_and_in_time() -> None:
    html = page(result(**served()), of_domains())
    part = html[html.index("Between the domains") : html.index("Healing after")]
    assert part.count("b cut off for 1.0 s") == 2
    assert part.count("class='band cut'") == 4  # two domains in two plots
    assert "seconds since the first event" in part
    assert re.findall(r"<div class='name'>(\w)<br><small>([^<]+)<", part) == [
        *(("a", "up to 0.1 s"), ("b", "up to 1.2 s"), ("a", "up to 1"), ("b", "up to 1")),
    ]
    assert "1 notifications to and from it waited for the end of the cut" in part
    assert "came 0.4 s after its end" in part
    before = html[: html.index("Between the domains")]
    assert "title='b cut off'" in before
    assert "Spark down" not in before
    assert "Between the domains" not in page(result(), EVIDENCE)


def test_the_last_tile_is_what_waited_for_a_domain() -> None:
    assert headline(result(**served()))[-1] == (1, "waited while b was cut off for 1 s", True)
    cut = {**served()["cuts"][0], "is_complete": False}
    assert not headline(result(**{**served(), "cuts": [cut]}))[-1].good
