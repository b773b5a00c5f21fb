"""Seeded worlds behind NATs: every promise holds, seeds repeat themselves, and a broken way through is noticed.

Each sabotage takes one part out of the way through a NAT; the problem that the worlds then report has to name it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from wanderbus.client.machine.data_path import PathChoice
from wanderbus.machine import Output
from wanderbus.relay.ng_client import RelayDriver
from wanderbus.simulation.nat.firewall_tour import RELAY_IP
from wanderbus.simulation.nat.scenario import NATScenario
from wanderbus.sip.proxy import nat_contacts
from wanderbus.sip.proxy.anchoring import Describe, Described
from wanderbus.sip.proxy.media_queue import MediaQueue
from wanderbus.sip.proxy.request_preparation import PathMarks
from wanderbus.sip.proxy.target_selection import TargetSelector

SEEDS = range(1, 21)
FEW = range(1, 7)
Patch = pytest.MonkeyPatch

result_of = functools.cache(NATScenario.run_seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds(seed: int) -> None:
    """SPEC I-01, I-07, I-08, U-07: nothing lost, repeated or reordered by moves between NATs and firewalls."""
    assert result_of(seed).problems == []


def test_twenty_seeds_have_enough_happening_in_them() -> None:
    results = [result_of(seed) for seed in SEEDS]
    for field, least in (
        ("notifications", 2_000),
        ("moves_into_nat", 15),
        ("moves_out_of_nat", 10),
        ("moves_behind_firewall", 50),
        ("nat_restarts", 15),
        ("relay_restarts", 5),
        ("server_crashes", 10),
        ("relayed", 5_000),
        ("filtered", 100),
        ("dropped", 1_000),
    ):
        assert sum(result.counts[field] for result in results) > least, field


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (NATScenario(7, keep_trace=True) for _ in range(2))
    assert first.run() == second.run()
    assert first.world.trace == second.world.trace


def write_no_alias(patch: Patch) -> None:
    patch.setattr(nat_contacts, "marked", lambda message, source, transport: message)


def follow_no_alias(patch: Patch) -> None:
    patch.setattr(TargetSelector, "_followed", lambda self, aims: tuple(aims))


def step_aside(patch: Patch) -> None:
    patch.setattr(PathMarks, "record_routes", lambda self, *given: ())


def describe_nothing(patch: Patch) -> None:
    def step(self: RelayDriver, inputs: list[object], now: float) -> list[Output]:
        return [Described(each.key, each.sdp) for each in inputs if isinstance(each, Describe)]

    patch.setattr(RelayDriver, "step", step)


def lose_what_waits(patch: Patch) -> None:
    patch.setattr(MediaQueue, "release", lambda self, report: [])


def relay_no_answers(patch: Patch) -> None:
    patch.setattr("wanderbus.sip.proxy.response_forwarding.describes", lambda message: False)


def never_let_go(patch: Patch) -> None:
    for name in ("proxy", "response_forwarding"):
        patch.setattr(f"wanderbus.sip.proxy.{name}.release_of", lambda message: [])
    patch.setattr("wanderbus.simulation.nat.scenario.RelayLimits", lambda: type("Limits", (), {"idle_s": 0.0}))


def fall_back_on_nothing(patch: Patch) -> None:
    patch.setattr(PathChoice, "failed", lambda self, reason="": False)


def stay_with_what_worked(patch: Patch) -> None:
    patch.setattr(PathChoice, "moved", lambda self, host, now: None)


def ask_for_no_relay(patch: Patch) -> None:
    patch.setattr("wanderbus.sip.proxy.target_selection.wants_relay", lambda request: False)


@pytest.mark.parametrize(
    ("sabotage", "problem"),
    [
        (write_no_alias, "cannot be called"),
        (follow_no_alias, "cannot be called"),
        (step_aside, ""),
        (describe_nothing, "the broker sends to"),
        (lose_what_waits, ""),
        (relay_no_answers, f"and not to {RELAY_IP}"),
        (never_let_go, "calls when all are gone"),
        (fall_back_on_nothing, "behind a firewall: its stream does not go on"),
        (stay_with_what_worked, "in an open network: it takes"),
        (ask_for_no_relay, "it takes tcp and not udp-relay"),
    ],
)
def test_a_broken_way_is_noticed(monkeypatch: Patch, sabotage: Callable[[Patch], None], problem: str) -> None:
    sabotage(monkeypatch)
    assert any(problem in each for seed in FEW for each in NATScenario.run_seed(seed).problems)
