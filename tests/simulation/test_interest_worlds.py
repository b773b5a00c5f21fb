"""Simulated worlds of interest hold their promises, and notice broken machines (DESIGN rule 3)."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.simulation.pending_sabotage import EffectiveAtOnce
from wanderbus.channels.interest import incoming_streams, outgoing_stream, proxy_channels
from wanderbus.channels.interest.covering_set import CoveringSet
from wanderbus.simulation.domains.interest_scenario import InterestScenario

Patch = pytest.MonkeyPatch
SEEDS = range(1, 9)


@pytest.mark.parametrize("seed", SEEDS)
def test_interest_spreads(seed: int) -> None:
    assert InterestScenario.run_seed(seed).problems == []


def test_a_seed_repeats_itself() -> None:
    scenarios = [InterestScenario(3) for _ in range(2)]
    assert scenarios[0].run() == scenarios[1].run()
    assert scenarios[0].world.fingerprint() == scenarios[1].world.fingerprint()


def ignore_gaps(patch: Patch) -> None:
    patch.setattr(incoming_streams._Table, "follows", lambda self, message: self.filters.keys() >= set(message.removed))


def count_at_once(patch: Patch) -> None:
    patch.setattr(outgoing_stream.OutgoingStream, "effective", math.inf)


def forget_what_was_covered(patch: Patch) -> None:
    patch.setattr(CoveringSet, "exposed", lambda self: [])


def never_repeat(patch: Patch) -> None:
    patch.setattr(outgoing_stream.OutgoingStream, "repeat", lambda self, now: [])
    patch.setattr(outgoing_stream.OutgoingStream, "repeat_at", lambda self: None)


def send_what_is_covered(patch: Patch) -> None:
    patch.setattr(CoveringSet, "coverer", lambda self, interest, work: None)
    patch.setattr(CoveringSet, "_place", _place_uncovered)


def _place_uncovered(self: CoveringSet, interest: object, _work: object) -> None:
    self._attached[interest] = {}  # type: ignore[index]
    self._index.add(interest)  # type: ignore[arg-type]
    self._note(interest, is_added=True)  # type: ignore[arg-type]


def find_no_overlap(patch: Patch) -> None:
    patch.setattr(
        proxy_channels, "overlap", lambda one, other, lineage: one.subject == other.subject and one.covers(other)
    )


def confirm_before_the_proxies_have_it(patch: Patch) -> None:
    patch.setattr(proxy_channels, "Pending", EffectiveAtOnce)


@pytest.mark.parametrize(
    "sabotage",
    [
        ignore_gaps,
        count_at_once,
        forget_what_was_covered,
        never_repeat,
        send_what_is_covered,
        find_no_overlap,
        confirm_before_the_proxies_have_it,
    ],
)
def test_the_simulator_notices(sabotage: Callable[[Patch], None], monkeypatch: Patch) -> None:
    sabotage(monkeypatch)
    for seed in range(1, 31):
        try:
            problems = InterestScenario.run_seed(seed).problems
        except KeyError:
            return
        if problems:
            return
    pytest.fail(f"{sabotage.__name__} was not noticed")
