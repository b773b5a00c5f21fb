"""Seeded worlds of the media relay: every promise holds, seeds repeat themselves, and a broken relay is noticed.

Each sabotage takes one safeguard out of the relay; the problem that the worlds then report has to name it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from wanderbus.machine import Address
from wanderbus.relay import Relay, Side
from wanderbus.relay.description import Medium
from wanderbus.relay.ports import PortPool
from wanderbus.relay.reply_cache import ReplyCache
from wanderbus.simulation.relay.scenario import RelayScenario

SEEDS = range(1, 31)
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds(seed: int) -> None:
    """SPEC I-01, I-07, U-07: once and in order through NATs and moves; strangers get no data."""
    assert RelayScenario.run_seed(seed).problems == []


def test_thirty_seeds_have_enough_happening_in_them() -> None:
    results = [RelayScenario.run_seed(seed) for seed in SEEDS]
    for field, least in (
        ("messages", 500),
        ("moves", 30),
        ("rebindings", 10),
        ("restarts", 10),
        ("learnt", 20),
        ("injected", 3_000),
        ("refused", 1_000),
    ):
        assert sum(result.counts[field] for result in results) > least, field


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (RelayScenario(7, keep_trace=True) for _ in range(2))
    assert first.run() == second.run()
    assert first.world.trace == second.world.trace


def believe_anybody(patch: Patch) -> None:
    def believes(self: Side, source: Address, data: bytes) -> bool:
        self.source = source
        return True

    patch.setattr(Side, "_accepts_new_source", believes)


def believe_nobody(patch: Patch) -> None:
    patch.setattr(Side, "_accepts_new_source", lambda self, source, data: False)


def forget_what_was_learnt(patch: Patch) -> None:
    announce = Side.announce

    def announced(self: Side, medium: Medium) -> None:
        announce(self, medium)
        self.ids = ()

    patch.setattr(Side, "announce", announced)


def send_to_the_wrong_side(patch: Patch) -> None:
    take = Side.take
    patch.setattr(Side, "take", lambda self, *given: self.source if take(self, *given) else None)


def never_answer_the_same_again(patch: Patch) -> None:
    answer: Callable[..., None] = Relay._answer

    def answered(self: Relay, *given: Any) -> None:
        answer(self, *given)
        self._replies = ReplyCache(1)

    patch.setattr(Relay, "_answer", answered)
    patch.setattr(Relay, "_delete", lambda self, *given: {"n": self.counters.commands})


def keep_ports(patch: Patch) -> None:
    patch.setattr(Relay, "_close", lambda self, *given: None)


def hand_a_port_out_twice(patch: Patch) -> None:
    patch.setattr(PortPool, "take", lambda self: self._free[0])


@pytest.mark.parametrize(
    ("sabotage", "problem"),
    [
        (believe_anybody, "the stranger was sent"),
        (believe_nobody, "messages, or not in order"),
        (forget_what_was_learnt, "the stranger was sent"),
        (send_to_the_wrong_side, "messages, or not in order"),
        (never_answer_the_same_again, "answers"),
        (keep_ports, "something left"),
        (hand_a_port_out_twice, ""),
    ],
)
def test_a_broken_relay_is_noticed(monkeypatch: Patch, sabotage: Callable[[Patch], None], problem: str) -> None:
    sabotage(monkeypatch)
    assert any(problem in each for seed in SEEDS for each in RelayScenario.run_seed(seed).problems)
