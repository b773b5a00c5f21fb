"""Seeded worlds of decentralised channels: every promise holds, and a missing safeguard is noticed (SPEC K-04)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from wanderbus.broker.messages import SendOnLink
from wanderbus.broker.servers.direct_events import DirectEvents
from wanderbus.broker.servers.route_index import RouteIndex
from wanderbus.broker.state.direct_state import DirectState
from wanderbus.broker.state.journal import Journal
from wanderbus.channels.causal.header import Header
from wanderbus.channels.direct_channels import CAUSAL_PREFIX, DirectChannels
from wanderbus.domain.servers.direct_interest import DirectInterest
from wanderbus.simulation.domains.direct_scenario import DirectScenario, run_direct_seed

SEEDS = range(1, 13)
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def results() -> list[Any]:
    return [run_direct_seed(seed) for seed in SEEDS]


def test_every_promise_holds(results: list[Any]) -> None:
    assert [(each.seed, each.problems) for each in results if each.problems] == []


def test_a_dozen_seeds_have_enough_happening_in_them(results: list[Any]) -> None:
    for field, least in (
        ("events", 500),
        ("notifications", 800),
        ("replies", 100),
        ("subscriptions", 80),
        ("crashes", 15),
        ("partitions", 4),
    ):
        assert sum(getattr(result, field) for result in results) > least, field


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (DirectScenario(3, keep_trace=True) for _ in range(2))
    assert first.run() == second.run()
    assert first.world.trace == second.world.trace


def forget_what_arrived(patch: Patch) -> None:
    """Do not restore the cursor from the record of an arrival."""
    patch.setattr(DirectState, "arrived", lambda self, record: self._is_behind())


def apply_records_twice(patch: Patch) -> None:
    patch.setattr(DirectEvents, "_ahead", lambda self, outputs: None)


def keep_no_routes(patch: Patch) -> None:
    """Do not restore routes from their records."""
    patch.setattr(DirectState, "route", lambda self, record: None)


def confirm_routes_that_are_not_used(patch: Patch) -> None:
    patch.setattr(RouteIndex, "change", lambda self, route, taken: None)


def answer_subscriptions_at_once(patch: Patch) -> None:
    patch.setattr(DirectInterest, "_counts", lambda self, versions: True)


def send_before_it_is_durable(patch: Patch) -> None:
    emit = Journal.emit

    def emitted(self: Journal, output: Any, size_bytes: int = 0) -> None:
        if isinstance(output, SendOnLink) and output.payload.startswith(CAUSAL_PREFIX):
            self.emit_now(output)
        else:
            emit(self, output, size_bytes)

    patch.setattr(Journal, "emit", emitted)


def send_directly_and_by_sessions(patch: Patch) -> None:
    """Let the sessions of servers get direct events, too."""
    patch.setattr(DirectEvents, "excluded", frozenset())


def ignore_causes(patch: Patch) -> None:
    causes_at = Header.causes_at
    patch.setattr(Header, "causes_at", lambda self, server: causes_at(self, server)[:-1])


def leave_out_every_subject(patch: Patch) -> None:
    """Treat a subscription to every subject as one to an unknown subject."""
    patch.setattr(DirectChannels, "concerns", lambda self, subject: subject != "*" and self.takes(subject))


@pytest.mark.parametrize(
    ("sabotage", "problem", "seeds"),
    [
        (forget_what_arrived, "other causal_counters", range(1, 4)),
        (apply_records_twice, "KeyError", range(1, 4)),
        (keep_no_routes, "other routes", range(1, 4)),
        (confirm_routes_that_are_not_used, "is lost for", range(1, 4)),
        (answer_subscriptions_at_once, "is lost for", range(4, 12)),
        (send_before_it_is_durable, "was not sent to it", range(35, 40)),
        (send_directly_and_by_sessions, "twice", range(1, 4)),
        (ignore_causes, "before its cause", range(1, 4)),
        (leave_out_every_subject, "is lost for", range(1, 4)),
    ],
)
def test_a_server_without_a_safeguard_is_noticed(
    monkeypatch: Patch, sabotage: Callable[[Patch], None], problem: str, seeds: range
) -> None:
    sabotage(monkeypatch)
    assert any(problem in each for seed in seeds for each in run_direct_seed(seed).problems)
