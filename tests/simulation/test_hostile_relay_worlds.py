"""Seeded worlds of a relay that wants to harm: every promise holds, and an end that lacks a safeguard is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.test_rudp_worlds import (
    believe_any_reset,
    challenge_without_measure,
    deliver_out_of_order,
    deliver_repeated_frames,
    ignore_tags,
    learn_paths_without_challenge,
    never_retransmit,
    never_say_where_we_are,
)
from wanderbus.rudp import Endpoint
from wanderbus.rudp.frames import encode_reset
from wanderbus.rudp.sealing import Sealer
from wanderbus.simulation.relay.hostile_scenario import HostileRelayScenario

SEEDS = range(1, 16)
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds(seed: int, monkeypatch: Patch) -> None:
    """Once and in order, no bystander is sent more than came in its name, and one look at each datagram."""
    opened = 0
    opening = Sealer.open

    def counted(self: Sealer, packet: bytes, number: int, epoch: int) -> bytes | None:
        nonlocal opened
        opened += 1
        return opening(self, packet, number, epoch)

    monkeypatch.setattr(Sealer, "open", counted)
    result = HostileRelayScenario.run_seed(seed)
    assert result.problems == []
    assert opened <= result.counts["datagrams"]


def test_fifteen_seeds_have_enough_happening_in_them() -> None:
    results = [HostileRelayScenario.run_seed(seed) for seed in SEEDS]
    for field, least in (
        ("messages", 2_000),
        ("harmed", 3_000),
        ("flooded", 5_000),
        ("forged", 5_000),
        ("learnt", 5),
        ("to_bystanders", 5_000),
    ):
        assert sum(result.counts[field] for result in results) > least, field


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (HostileRelayScenario(7, keep_trace=True) for _ in range(2))
    assert first.run() == second.run()
    assert first.world.trace == second.world.trace


def answer_strangers_at_length(patch: Patch) -> None:
    at_length: Callable[..., bytes] = lambda *given: encode_reset(*given) + bytes(1_000)  # noqa: E731
    patch.setattr("wanderbus.rudp.endpoint.encode_reset", at_length)
    patch.setattr(Endpoint, "_take_datagram", _answer_all(Endpoint._take_datagram))


def _answer_all(take: Callable[..., None]) -> Callable[..., None]:
    def taken(self: Any, item: Any, now: float, outputs: Any, touched: Any) -> None:
        forged = self.counters.forged
        take(self, item, now, outputs, touched)
        if self.counters.forged > forged:
            self._answer_unknown(item, (1, 1, 1), outputs)

    return taken


@pytest.mark.parametrize(
    ("sabotage", "problem"),
    [
        (deliver_repeated_frames, "not once and in order"),
        (deliver_out_of_order, "not once and in order"),
        (never_retransmit, "after all was mended"),
        (ignore_tags, ""),
        (believe_any_reset, "reset the connection"),
        (learn_paths_without_challenge, "was sent"),
        (challenge_without_measure, "was sent"),
        (answer_strangers_at_length, "was sent"),
        (never_say_where_we_are, "after all was mended"),
    ],
)
def test_an_end_without_a_safeguard_is_noticed(
    monkeypatch: Patch, sabotage: Callable[[Patch], None], problem: str
) -> None:
    sabotage(monkeypatch)
    problems = (each for seed in SEEDS for each in HostileRelayScenario.run_seed(seed).problems)
    assert any(problem in each for each in problems)
