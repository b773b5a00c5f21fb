"""Seeded worlds whose channels change model and leader: nothing is lost, and a missing safeguard is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.broker.servers.settled_interest import SettledInterest
from wanderbus.broker.state.decentralised_state import DecentralisedState
from wanderbus.broker.state.state import BrokerState
from wanderbus.peers.leader_interest import LeaderInterest
from wanderbus.peers.leader_sessions import LeaderSessions
from wanderbus.simulation.domain_changes import moved_scenario
from wanderbus.simulation.domain_changes.moved_scenario import Layout, MovedScenario
from wanderbus.simulation.domains.links import DomainLinks
from wanderbus.simulation.scenario import Result

SEEDS = range(1, 13)
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [MovedScenario.run_seed(seed) for seed in SEEDS]


def test_every_promise_holds(results: list[Result]) -> None:
    assert [(each.seed, each.problems) for each in results if each.problems] == []


def test_a_dozen_seeds_have_enough_happening_in_them(results: list[Result]) -> None:
    for field, least in (
        ("changes", 15),
        ("mistakes", 2),
        ("events", 1_000),
        ("notifications", 1_000),
        ("subscriptions", 80),
        ("crashes", 50),
    ):
        assert sum(result.counts[field] for result in results) > least, field


def test_the_same_seed_gives_the_same_history() -> None:
    assert MovedScenario.run_seed(2).fingerprint == MovedScenario.run_seed(2).fingerprint


def accept_at_once(patch: Patch) -> None:
    patch.setattr(SettledInterest, "refusal", lambda self, subject: None)


def keep_routes(patch: Patch) -> None:
    patch.setattr(DecentralisedState, "forget_routes", lambda self: None)


def keep_settled(patch: Patch) -> None:
    make = SettledInterest.__init__

    def with_former(self: SettledInterest, broker_state: BrokerState, *others: Any) -> None:
        make(self, broker_state, *others)
        self.missing = [each for each in self.missing if each not in broker_state.settled]

    patch.setattr(SettledInterest, "__init__", with_former)


def count_at_once(patch: Patch) -> None:
    make = SettledInterest.__init__

    def without(self: SettledInterest, *arguments: Any) -> None:
        make(self, *arguments)
        self.unmet = []

    patch.setattr(SettledInterest, "__init__", without)


def settle_too_early(patch: Patch) -> None:
    patch.setattr(LeaderInterest, "is_complete", property(lambda self: self._is_ready))


def stop_sending_directly(patch: Patch) -> None:
    channels = Layout.channels

    def without(self: Layout, server: str, servers: list[str], *, has_sent_decentralised: bool) -> Any:
        return channels(self, server, servers, has_sent_decentralised=False)

    patch.setattr(Layout, "channels", without)


def leave_former_leaders(patch: Patch) -> None:
    make = LeaderSessions.__init__

    def without(self: LeaderSessions, channels: Any, *, have_moved: bool = False, **options: Any) -> None:
        make(self, channels, have_moved=False, **options)

    patch.setattr(LeaderSessions, "__init__", without)


def link_whatever_differs(patch: Patch) -> None:
    patch.setattr(moved_scenario._Links, "_may_open", DomainLinks._may_open)


@pytest.mark.parametrize(
    ("break_product", "known"),
    [
        (accept_at_once, (1, 2)),
        (keep_routes, (1, 11)),
        (keep_settled, (4, 6)),
        (count_at_once, (41,)),
        (settle_too_early, (66,)),
        (stop_sending_directly, (19, 12)),
        (leave_former_leaders, (13, 16)),
        (link_whatever_differs, (8, 0)),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_missing_safeguard_is_noticed(
    monkeypatch: Patch, break_product: Callable[[Patch], None], known: tuple[int, ...]
) -> None:
    break_product(monkeypatch)
    assert is_noticed(MovedScenario.run_seed, known, " has missed ")
