"""Load of a domain from two readings of its servers, and the moves that share it (SPEC J-08)."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from wanderbus.broker.servers.server_users import server_user
from wanderbus.cli.application import run
from wanderbus.cli.domain.balance import rebalance
from wanderbus.cli.domain.balance.load import DomainLoad, ServerCounts, balancing_steps, load_between, percent
from wanderbus.cli.domain.balance.steps import Step, Steps
from wanderbus.cli.domain.servers_asked import ServerAnswer
from wanderbus.operator_rows import GroupLoadInfo, ProcessInfo, SessionInfo
from wanderbus.planning.loads import WEIGHTS
from wanderbus.runtime.files.domain_file import create_domain

LEADERS = ("s1", "s1", "s2")
BOB, CAROL = "sip:bob@localhost", "sip:carol@localhost"
EVENT, NOTIFICATION = WEIGHTS.event_us, WEIGHTS.notification_us


def counts(
    events: Mapping[int | None, int] | None = None, generated: Mapping[str, int] | None = None, *, started_us: int = 1
) -> ServerCounts:
    rows = [GroupLoadInfo(group, count, 0, 0) for group, count in (events or {}).items()]
    sessions = [SessionInfo(user, "s", "CONNECTED", 1, 0, 0, generated=n) for user, n in (generated or {}).items()]
    return ServerCounts(ProcessInfo("?", "1", started_us, 1), rows, [], sessions)


def load(before: Mapping[str, ServerCounts], after: Mapping[str, ServerCounts], over_s: float = 1.0) -> DomainLoad:
    return load_between(before, after, over_s, LEADERS, "localhost")


def test_sessions_of_servers_and_foreign_domains_do_not_move() -> None:
    reserved = {"sip:s2@servers.localhost": 5, "sip:beta@domains.localhost": 5}
    assert load({"s1": counts()}, {"s1": counts({}, {BOB: 1, **reserved})}).sessions.keys() == {(BOB, "s")}


def test_a_load_is_what_was_counted_between_two_readings_for_each_second() -> None:
    found = load(
        {"s1": counts({0: 100, None: 7}, {BOB: 10}), "s2": counts()},
        {"s1": counts({0: 300, None: 17}, {BOB: 40}), "s2": counts({2: 20}, {CAROL: 6})},
        2.0,
    )
    assert {group: item.load_us for group, item in found.groups.items()} == {0: 100 * EVENT, 1: 0, 2: 10 * EVENT}
    assert found.fixed_us == {"s1": 5 * EVENT, "s2": 0}
    assert {key[0]: (item.server, item.load_us) for key, item in found.sessions.items()} == {
        BOB: ("s1", 15 * NOTIFICATION),
        CAROL: ("s2", 3 * NOTIFICATION),
    }
    assert found.by_server() == {
        "s1": 105 * EVENT + 15 * NOTIFICATION,
        "s2": 10 * EVENT + 3 * NOTIFICATION,
    }
    moved = found.after({"0": "s2", f"{BOB}/s": "s2"})
    assert moved.by_server() == {"s1": 5 * EVENT, "s2": 110 * EVENT + 18 * NOTIFICATION}
    assert percent(10_000) == 1.0


def test_a_server_that_was_restarted_counts_from_its_start() -> None:
    found = load({"s1": counts({0: 500}), "s2": counts()}, {"s1": counts({0: 20}, started_us=2), "s2": counts()})
    assert found.groups[0].load_us == 20 * EVENT


def test_a_group_or_session_that_has_moved_meanwhile_has_the_load_of_both_servers() -> None:
    before = {"s1": counts({2: 10}, {BOB: 10}), "s2": counts()}
    after = {"s1": counts({2: 15}), "s2": counts({2: 3}, {BOB: 30})}
    found = load(before, after)
    assert (found.groups[2].server, found.groups[2].load_us) == ("s2", 8 * EVENT)
    bob = found.sessions[BOB, "s"]
    assert (bob.server, bob.load_us) == ("s2", 20 * NOTIFICATION)


def test_sessions_of_other_servers_and_past_ones_have_no_load() -> None:
    past = SessionInfo(BOB, "", "DISCONNECTED", 0, 0, 0, generated=9)
    server = SessionInfo(server_user("s2", "localhost"), "default", "CONNECTED", 1, 0, 0, generated=9)
    assert load({}, {"s1": counts()._replace(sessions=[past, server])}).sessions == {}


def test_j08_groups_move_first_and_sessions_only_if_that_does_not_suffice() -> None:
    empty = {"s1": counts(), "s2": counts()}
    groups = load(empty, {"s1": counts({0: 100, 1: 100}, {BOB: 20}), "s2": counts()})
    assert [str(step) for step in balancing_steps(groups, ("s1", "s2"), ("s1", "s2"))] == [
        "channel group 0 from s1 to s2"
    ]
    sessions = load(empty, {"s1": counts({}, {BOB: 100, CAROL: 90}), "s2": counts()})
    assert balancing_steps(sessions, ("s1", "s2"), ("s1", "s2")) == [Step("s1", "s2", user=CAROL, session="s")]


def test_items_that_stay_and_servers_without_the_role_take_no_part() -> None:
    found = load(
        {"s1": counts(), "s2": counts()}, {"s1": counts({0: 100, 1: 100}, {BOB: 90, CAROL: 90}), "s2": counts()}
    )
    assert [step.name for step in balancing_steps(found, ("s1", "s2"), ("s1",), staying=("0",))] == ["1"]
    assert [step.user for step in balancing_steps(found, ("s1",), ("s1", "s2"))] == [BOB, CAROL]


def words(file: Path) -> list[str]:
    """Return options for a short measurement."""
    return ["--over", "0.1", "--json", "--event-domain", str(file), "--user", "sip:a@localhost", "--password", "x"]


def test_something_else_moves_instead_of_what_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = create_domain(tmp_path / "domain", "localhost", 2)
    users = {f"sip:u{number}@localhost": 1000 + number for number in range(4)}
    readings = [{"s1": counts({}, dict.fromkeys(users, 0)), "s2": counts()}, {"s1": counts({}, users), "s2": counts()}]
    refused: list[str] = []

    async def ask_all(*_: object) -> dict[str, ServerAnswer[ServerCounts]]:
        return {server: ServerAnswer(server, "?", found=found) for server, found in readings.pop(0).items()}

    async def perform(steps: Steps, wanted: Sequence[Step]) -> list[Step]:
        failed = wanted[: 1 - len(refused)]
        refused.extend(step.user for step in failed)
        steps.done.extend(wanted[len(failed) :])
        return list(failed)

    monkeypatch.setattr(rebalance, "ask_all", ask_all)
    monkeypatch.setattr(Steps, "perform", perform)
    assert run(["domain", "rebalance", *words(file)]) == 1
    first, ended, again, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["ratio"], ended, last) == (2.0, {"moves": 1, "failed": 1}, {"moves": 1, "failed": 0})
    assert again["ratio"] > 1.2 > again["expected_ratio"], "the next choice knows what has moved"


def test_a_watched_group_stays_for_five_rounds_and_servers_without_an_answer_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, leader, number = create_domain(tmp_path / "domain", "localhost", 2), ["s1"], itertools.count()
    monkeypatch.setattr(rebalance, "present_leaders", lambda *_: [leader[0], *["s1"] * 63])
    moved: list[int] = []
    rounds = -1

    async def ask_all(*_: object) -> dict[str, ServerAnswer[ServerCounts]]:
        nonlocal rounds
        reading = next(number)
        if reading == 0:
            return {"s1": ServerAnswer("s1", "?", error="it is being restarted")}
        rounds += reading % 2
        if rounds == 8:
            raise asyncio.CancelledError
        # Once group 0 has moved, its next server has another load too, so that it would go back at once.
        events: dict[int | None, int] = {0: 600 * reading, 1: 600 * reading}
        if leader[0] == "s2":
            events = {0: 1000 * reading}
        found = {"s1": counts(events), "s2": counts({None: 900 * reading} if leader[0] == "s2" else {})}
        return {server: ServerAnswer(server, "?", found=each) for server, each in found.items()}

    async def perform(steps: Steps, wanted: Sequence[Step]) -> list[Step]:
        moved.extend(rounds for step in wanted if step.group == 0)
        leader[0] = wanted[0].target if wanted else leader[0]
        steps.done.extend(wanted)
        return []

    monkeypatch.setattr(rebalance, "ask_all", ask_all)
    monkeypatch.setattr(Steps, "perform", perform)
    assert run(["domain", "rebalance", "--watch", *words(file)]) == 130
    assert moved == [0, 6]
    assert "it is being restarted; all servers of the domain have to run; measuring again" in capsys.readouterr().err
