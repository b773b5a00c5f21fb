"""Seeded worlds whose channel groups move: nothing is lost, and a missing safeguard is noticed (SPEC J-08)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.groups.group_move import GroupMove
from wanderbus.broker.groups.groups import Groups
from wanderbus.broker.groups.known_leaders import KnownLeaders
from wanderbus.broker.groups.replaced_leaders import ReplacedLeaders
from wanderbus.broker.history.seams import Seams
from wanderbus.broker.publish.publishing import Publishing
from wanderbus.broker.servers.arrivals import Arrivals
from wanderbus.broker.servers.interest_requests import InterestRequests
from wanderbus.broker.servers.settled_interest import SettledInterest
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.simulation.domains import engines
from wanderbus.simulation.domains.group_scenario import GroupScenario
from wanderbus.simulation.layers import Layer, replay_command
from wanderbus.simulation.scenario import Result

SEEDS = (*range(1, 11), 68, 104, 128)
"""In the last three, leaders are replaced by force; in the last two, and in the second, servers have engines."""
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [GroupScenario.run_seed(seed) for seed in SEEDS]


def test_every_promise_holds(results: list[Result]) -> None:
    failed = {each.seed: each.problems for each in results if each.problems}
    assert failed == {}, [replay_command(Layer.GROUPS, seed) for seed in failed]


def test_the_seeds_have_enough_happening_in_them(results: list[Result]) -> None:
    for field, least in (
        ("moves", 8),
        ("stays", 10),
        ("replaced", 3),
        ("pasts", 40),
        ("seams", 8),
        ("listed", 2_000),
        ("events", 3_000),
        ("notifications", 3_000),
        ("crashes", 30),
    ):
        assert sum(result.counts.get(field, 0) for result in results) > least, field


def fence_at_once(patch: Patch) -> None:
    patch.setattr(GroupMove, "_awaited", lambda self, move: "")


def prepare_at_once(patch: Patch) -> None:
    def go_on(self: KnownLeaders) -> None:
        for group in list(self._preparing):
            self._preparing.pop(group).report("")

    patch.setattr(KnownLeaders, "go_on", go_on)


def share_rows_among_groups(patch: Patch) -> None:
    patch.setattr(Publishing, "_publisher", lambda self, source, subject: self._state.publishers.get(source.key))


def forget_what_was_published(patch: Patch) -> None:
    patch.setattr(Publishing, "leader_changed", lambda self, group: None)


def accept_in_the_pause(patch: Patch) -> None:
    patch.setattr(SettledInterest, "is_paused", lambda self, subject: False)


def want_nothing_at_the_target(patch: Patch) -> None:
    patch.setattr(OwnChannels, "other_leaders", lambda self, subjects: self.leaders(subjects) - {self.server})


def never_stay(patch: Patch) -> None:
    patch.setattr(KnownLeaders, "stay", lambda self, group: self._go_on_with(group))


def deliver_late_events(patch: Patch) -> None:
    patch.setattr(Arrivals, "_is_late", lambda self, given: False)


def replace_leaders_without_a_gap(patch: Patch) -> None:
    patch.setattr(ReplacedLeaders, "replace", lambda self, led: None)


def join_at_once(patch: Patch) -> None:
    patch.setattr(engines, "SHARE", 0.0)  # only few worlds show it, and the known one has no engines
    patch.setattr(KnownLeaders, "_join", lambda self, given, led, head: self.adopt(led))


def wait_for_no_engine(patch: Patch) -> None:
    patch.setattr(EngineEvents, "lag", lambda self, offset: "")


def greet_behind_events(patch: Patch) -> None:
    patch.setattr(Groups, "greet", lambda self, link: None)


def read_before_it_counts(patch: Patch) -> None:
    patch.setattr(InterestRequests, "is_effective", lambda self, subscription: True)


def read_the_own_log_to_its_end(patch: Patch) -> None:
    patch.setattr(Seams, "end_here", lambda self, row: None)


@pytest.mark.parametrize(
    ("break_product", "problem", "known"),
    [
        (fence_at_once, " after a later event of ", (5, 30)),
        (prepare_at_once, " has missed ", (5, 19)),
        (share_rows_among_groups, " was accepted as ", (5,)),
        (forget_what_was_published, " answers of ", (11, 14)),
        (accept_in_the_pause, "", (1, 11)),
        (want_nothing_at_the_target, " has missed ", (5, 11)),
        (never_stay, " still prepares ", (1, 2)),
        (deliver_late_events, " has missed ", (8,)),
        (replace_leaders_without_a_gap, " has no gap ", (16, 32)),
        (join_at_once, " has missed ", (104,)),
        (wait_for_no_engine, " after a later event of ", (55, 72)),
        (greet_behind_events, " know different leaders", (32, 16)),
        (read_before_it_counts, " lacks ", (7, 3)),
        (read_the_own_log_to_its_end, " lacks ", (7,)),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_missing_safeguard_is_noticed(
    monkeypatch: Patch, break_product: Callable[[Patch], None], problem: str, known: tuple[int, ...]
) -> None:
    break_product(monkeypatch)
    assert is_noticed(GroupScenario.run_seed, known, problem)
