"""The ways of sessions between domains, compared with the plan; their drawing; the verdict (SPEC L-01)."""

from __future__ import annotations

from typing import Any

import pytest

from demo.domains_audit import drawn, handovers, strayed
from demo.html_report import page
from demo.log_audit import LogAudit
from demo.plan import Action, Step
from demo.users import User
from demo.verdict import verdict
from tests.demo.test_display_and_report import EVIDENCE, result

ANA = User("ana", domain="a")
PLAN = [
    Step(0.1, Action.MOVE, "ana", "aboard"),
    Step(0.2, Action.SWITCH_ON, "ana", "b"),
    Step(0.3, Action.TAKE_SESSION, "ana", "a"),
    Step(0.3, Action.TAKE_SESSION, "bob", "c"),
]


def walk(source: str, target: str, at_us: int = 0, user: str = ANA.uri) -> dict[str, Any]:
    times = {"fenced_us": at_us, "imported_us": at_us + 1, "gap_us": 2_000}
    return {"user": user, "source": source, "target": target, "cause": "user", **times}


OUT, ON, BACK = walk("a/s1", "b/s1", 10), walk("b/s1", "b/s2", 20), walk("b/s2", "a/s1", 30)


@pytest.mark.parametrize(
    ("walks", "way"),
    [
        ([OUT, ON, BACK], None),
        ([OUT, BACK, walk("a/s1", "c/s1", user="sip:eve@a")], None),
        ([], "nowhere"),
        ([ON], "nowhere"),
        ([OUT], "to b"),
        ([OUT, BACK, OUT], "to b, a, b"),
    ],
    ids=["as planned", "another user", "none", "within a domain", "not back", "once more"],
)
def test_l01_a_session_goes_to_the_domains_of_the_plan_in_turn(walks: list[dict[str, Any]], way: str | None) -> None:
    faults = [] if way is None else [f"the session of ana went {way}, and should have gone to b, a"]
    assert strayed([ANA], PLAN, walks) == faults


def test_a_session_that_should_stay_stays() -> None:
    assert strayed([ANA], [], []) == []
    assert strayed([ANA], [], [OUT]) == ["the session of ana went to b, and should have gone nowhere"]


def test_walks_within_a_domain_are_none_between_domains() -> None:
    found = handovers([OUT, ON, BACK])
    assert (found["moved"], found["between_domains"]) == (3, 2)


@pytest.mark.parametrize(("moved", "words"), [(1, "1 move of sessions"), (0, "0 moves of sessions")])
def test_the_verdict_counts_the_moves_between_domains(moved: int, words: str) -> None:
    found = result()
    assert "between domains" not in verdict(found)
    for each in (found, {**found, "good": False}):
        assert verdict({**each, "handovers": {"between_domains": moved}}).endswith(f"; {words} between domains")


def test_the_report_draws_the_walks_between_domains() -> None:
    hosts = {"a/s1": "east", "b/s1": "north", "b/s2": "south"}
    user = EVIDENCE["expected"][0]["user"]
    walks = [{**each, "user": user} for each in (OUT, ON, BACK)]
    drawing = drawn(LogAudit(walks, [], {}, {user: "a/s1", "sip:other@a": "b/s2"}), hosts, [user])
    assert drawing["homes"] == [{"user": user, "server": "east"}]
    found = {**result(), "handovers": handovers(walks), "domains": [], "cuts": []}
    html = page(found, {**EVIDENCE, "cuts": [], "deliveries": [], **drawing})
    part = html[html.index("Where the sessions were") : html.index("Between the domains")]
    for name, kind in (("east", "n0"), ("north", "n1"), ("south", "n2")):
        assert f"<i class='at {kind}'></i>session at {name}" in part
        assert f"class='at {kind}' style=" in part
    assert "3 walks" in part
    assert "2 of them between domains" in part
    assert "server drains" not in part
