"""Seeded worlds whose sessions move from domain to domain: each event once, and a missing safeguard is noticed.

SPEC L-01, L-05.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.broker.history import catch_up
from wanderbus.broker.publish import delivery
from wanderbus.broker.sessions.far_heads import FarHeads
from wanderbus.broker.sessions.handover import Handover
from wanderbus.peers.handover.far_moves import FarMoves
from wanderbus.simulation.federation.moving_scenario import MovingScenario
from wanderbus.simulation.layers import Layer, replay_command
from wanderbus.simulation.scenario import Result

SEEDS = range(1, 25)
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [MovingScenario.run_seed(seed) for seed in SEEDS]


def test_l01_every_promise_holds(results: list[Result]) -> None:
    """At rest, all domains also have the interest of those in which the sessions are then (SPEC L-05)."""
    failed = [each for each in results if each.problems]
    replays = [replay_command(Layer.FEDERATION_HANDOVER, each.seed) for each in failed]
    assert [(replay, each.problems) for replay, each in zip(replays, failed, strict=True)] == []


def test_two_dozen_seeds_have_enough_happening_in_them(results: list[Result]) -> None:
    for field, least in (
        ("domains", 50),
        ("events", 12_000),
        ("notifications", 25_000),
        ("subscriptions", 150),
        ("requested", 200),
        ("moves", 80),
        ("crashes", 60),
        ("breaks", 40),
        ("partitions", 40),
    ):
        assert sum(result.counts[field] for result in results) > least, field


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (MovingScenario(4, keep_trace=True) for _ in range(2))
    assert first.run() == second.run()
    assert first.world.trace == second.world.trace


def pass_over_nothing(patch: Patch) -> None:
    for module in (catch_up, delivery):
        patch.setattr(module, "is_read_elsewhere", lambda *_, **__: False)


def cut_at_the_heads(patch: Patch) -> None:
    """Let the next owner read what came here after the heads."""
    init = Handover.__init__

    def without(self: Handover, *arguments: Any) -> None:
        init(self, *arguments)
        self._origins = ()  # type: ignore[assignment]

    patch.setattr(Handover, "__init__", without)


def take_the_heads_before_this_domain_has_what_was_sent(patch: Patch) -> None:
    patch.setattr(FarHeads, "_waits_below", lambda self, session, number: False)


def ask_no_other_domain(patch: Patch) -> None:
    ready = FarMoves.ready

    def none(self: FarMoves, leaving: Any, wanted: Any) -> None:
        foreign, self.domains = self.domains, msgspec.structs.replace(self.domains, foreign={})
        ready(self, leaving, wanted)
        self.domains = msgspec.structs.replace(self.domains, foreign=foreign.foreign)

    patch.setattr(FarMoves, "ready", none)


SABOTAGES: Sequence[tuple[Callable[[Patch], None], str, Sequence[int]]] = (
    (pass_over_nothing, "twice", (1,)),
    (cut_at_the_heads, "twice", (1,)),
    (take_the_heads_before_this_domain_has_what_was_sent, "missed", (1,)),
    (ask_no_other_domain, "missed", (2,)),
)


@pytest.mark.parametrize(
    ("sabotage", "problem", "known"), SABOTAGES, ids=[sabotage.__name__ for sabotage, *_ in SABOTAGES]
)
def test_a_missing_safeguard_is_noticed(
    monkeypatch: Patch, sabotage: Callable[[Patch], None], problem: str, known: Sequence[int]
) -> None:
    sabotage(monkeypatch)
    assert is_noticed(MovingScenario.run_seed, known, problem)
