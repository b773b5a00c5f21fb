"""Seeded worlds with servers that join and leave: nothing is lost, and a missing safeguard is noticed (SPEC J-11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.broker.servers import settled_interest
from wanderbus.broker.servers.interest_requests import InterestRequests
from wanderbus.broker.servers.settled_interest import SettledInterest
from wanderbus.broker.state import state as broker_state
from wanderbus.broker.state.rows import SettledRow
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.simulation.domain_changes.grown_scenario import GrownScenario
from wanderbus.simulation.scenario import Result

SEEDS = range(1, 9)
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [GrownScenario.run_seed(seed) for seed in SEEDS]


def test_j11_every_promise_holds(results: list[Result]) -> None:
    assert [(each.seed, each.problems) for each in results if each.problems] == []


def test_eight_seeds_have_enough_happening_in_them(results: list[Result]) -> None:
    for field, least in (
        ("joins", 8),
        ("leaves", 6),
        ("events", 800),
        ("notifications", 800),
        ("subscriptions", 50),
        ("crashes", 25),
    ):
        assert sum(result.counts[field] for result in results) >= least, field


def announce_at_once(patch: Patch) -> None:
    patch.setattr(SettledInterest, "is_joining", property(lambda self: False))
    add = InterestRequests.add

    def joined(self: InterestRequests, subscriptions: Any) -> None:
        unmet, self._unmet = self._unmet, {}
        add(self, subscriptions)
        self._unmet = unmet

    patch.setattr(InterestRequests, "add", joined)


def wait_for_nobody(patch: Patch) -> None:
    patch.setattr(settled_interest, "newcomers", lambda state, layout, others: frozenset(others))


def number_by_name(patch: Patch) -> None:
    make = DecentralisedChannels.__init__

    def by_name(self: Any, directory: Any, server: str, servers: Any, *rest: Any, **options: Any) -> None:
        make(self, directory, server, sorted(servers), *rest, **options)

    patch.setattr(DecentralisedChannels, "__init__", by_name)


def hold_interest_back_again(patch: Patch) -> None:
    def met(state: BrokerState, name: str) -> None:
        state.settled.put(name, SettledRow())

    patch.setattr(broker_state, "apply_met", met)


def wait_for_those_that_left(patch: Patch) -> None:
    patch.setattr(DecentralisedChannels, "present", property(lambda self: self.servers))


@pytest.mark.parametrize(
    ("break_product", "known", "problem"),
    [
        (announce_at_once, (33,), " has missed "),
        (wait_for_nobody, (33,), " has missed "),
        (number_by_name, (3, 4), " has missed "),
        (hold_interest_back_again, (200, 204), " has missed "),
        (wait_for_those_that_left, (1, 2), "subscriptions without an answer"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_missing_safeguard_is_noticed(
    monkeypatch: Patch, break_product: Callable[[Patch], None], known: tuple[int, ...], problem: str
) -> None:
    break_product(monkeypatch)
    assert is_noticed(GrownScenario.run_seed, known, problem)
