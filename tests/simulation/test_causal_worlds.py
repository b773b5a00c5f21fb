"""Seeded worlds of causal order: every promise holds, and a server that lacks a safeguard is noticed (SPEC K-06)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.channels.causal.header import Header, bitmap
from wanderbus.channels.causal.knowledge import Knowledge
from wanderbus.channels.causal.out_link import OutLink
from wanderbus.channels.causal.server import CausalServer
from wanderbus.simulation.domains.causal_node import CausalNode
from wanderbus.simulation.domains.causal_scenario import CausalScenario
from wanderbus.simulation.scenario import Result

SEEDS = range(1, 16)
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [CausalScenario.run_seed(seed) for seed in SEEDS]


def test_every_promise_holds(results: list[Result]) -> None:
    assert [(each.seed, each.problems) for each in results if each.problems] == []


def test_fifteen_seeds_have_enough_happening_in_them(results: list[Result]) -> None:
    for field, least in (
        ("events", 1_000),
        ("deliveries", 3_000),
        ("replies", 500),
        ("crashes", 20),
        ("wipes", 3),
        ("partitions", 10),
        ("moves", 3),
        ("joins", 3),
        ("leaves", 3),
        ("gaps", 10),
    ):
        assert sum(result.counts[field] for result in results) > least, field


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (CausalScenario(7, keep_trace=True) for _ in range(2))
    assert first.run() == second.run()
    assert first.world.trace == second.world.trace


def ignore_one_cause(patch: Patch) -> None:
    causes_at = Header.causes_at
    patch.setattr(Header, "causes_at", lambda self, server: causes_at(self, server)[:-1])


def forget_a_changed_entry(patch: Patch) -> None:
    """Leave out what changed since the event before, for servers that do not get this one."""
    publish = Knowledge.publish

    def published(self: Knowledge, origin: Any, number: int, befores: Any) -> Any:
        entries = publish(self, origin, number, befores)
        return tuple(entry for entry in entries if entry.servers & bitmap(befores))

    patch.setattr(Knowledge, "publish", published)


def acknowledge_one_too_many(patch: Patch) -> None:
    acknowledge = OutLink.acknowledge
    patch.setattr(OutLink, "acknowledge", lambda self, number: acknowledge(self, number + 1))


def forget_the_matrix_at_a_restart(patch: Patch) -> None:
    start = CausalNode.start

    def started(self: CausalNode) -> None:
        start(self)
        self.machine.knowledge = self.machine.state.knowledge = Knowledge(self.server)

    patch.setattr(CausalNode, "start", started)


def forget_the_cursors_at_a_restart(patch: Patch) -> None:
    start = CausalNode.start

    def started(self: CausalNode) -> None:
        start(self)
        self.machine.delivered.clear()

    patch.setattr(CausalNode, "start", started)


def never_give_up_a_lost_log(patch: Patch) -> None:
    patch.setattr(CausalServer, "_is_ended", lambda self, origin: False)


@pytest.mark.parametrize(
    ("sabotage", "problem", "seeds"),
    [
        (ignore_one_cause, "before its cause", range(1, 5)),
        (forget_a_changed_entry, "before its cause", range(1, 16)),
        (acknowledge_one_too_many, "was lost", range(1, 5)),
        (forget_the_matrix_at_a_restart, "before its cause", range(10, 11)),
        (forget_the_cursors_at_a_restart, "twice", range(1, 16)),
        (never_give_up_a_lost_log, "still holds", range(1, 40)),
    ],
)
def test_a_server_without_a_safeguard_is_noticed(
    monkeypatch: Patch, sabotage: Callable[[Patch], None], problem: str, seeds: range
) -> None:
    sabotage(monkeypatch)
    assert is_noticed(CausalScenario.run_seed, seeds, problem)
