"""Seeded worlds with a server that is restored from a copy: nothing is missing without a gap; faults are noticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.broker.rollback.rollback import Rollback
from wanderbus.broker.servers.arrivals import Arrivals
from wanderbus.broker.servers.settled_interest import SettledInterest
from wanderbus.broker.state.rows import SessionRow
from wanderbus.channels.causal.state import CausalState
from wanderbus.client.machine.conversation import Conversation
from wanderbus.client.machine.subscription_records import SubscriptionReader
from wanderbus.peers.leader_interest import LeaderInterest
from wanderbus.peers.leader_session import LeaderSession
from wanderbus.protocol import Attachment
from wanderbus.protocol.session_stream import SessionStream
from wanderbus.simulation.domains.restore_scenario import RestoreScenario
from wanderbus.simulation.scenario import Result

SEEDS = range(1, 25)
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [RestoreScenario.run_seed(seed) for seed in SEEDS]


def test_every_promise_holds(results: list[Result]) -> None:
    assert [(each.seed, each.problems) for each in results if each.problems] == []


def test_two_dozen_seeds_have_enough_happening_in_them(results: list[Result]) -> None:
    for field, least in (("events", 2_000), ("due", 5_000), ("in_gaps", 50), ("restores", 20), ("noticed", 15)):
        assert sum(result.counts[field] for result in results) > least, field
    assert {RestoreScenario(seed).model for seed in SEEDS} == {"ordered", "decentralised", "both"}


def test_the_same_seed_gives_the_same_history() -> None:
    assert RestoreScenario.run_seed(5) == RestoreScenario.run_seed(5)
    assert RestoreScenario(5, keep_trace=True).run().fingerprint == RestoreScenario.run_seed(5).fingerprint


def believe_every_position(patch: Patch) -> None:
    patch.setattr(SessionRow, "has", lambda self, position: True)
    patch.setattr(SessionRow, "in_common", lambda self, position: min(position.number, self.next - 1))


def leave_no_gap(patch: Patch) -> None:
    patch.setattr(Rollback, "_lose", lambda self, several, rolled_back: None)


def keep_what_arrived_behind_the_fork(patch: Patch) -> None:
    """The agent takes the numbers of the restored log for those of the lost one."""
    patch.setattr(SubscriptionReader, "keep", lambda self, in_common: None)


def take_an_event_twice(patch: Patch) -> None:
    patch.setattr(SubscriptionReader, "has_had", lambda self, event: False)


def resubmit_without_a_gap(patch: Patch) -> None:
    succeed = Conversation._succeed

    def silently(self: Conversation, over: Any) -> None:
        succeed(self, over)

    patch.setattr(Conversation, "_succeed", silently)


def go_on_where_the_leader_was(patch: Patch) -> None:
    """A server keeps its position in a session of its leader that was rolled back."""
    patch.setattr(Arrivals, "rewind", lambda self, given: None)


def keep_the_incarnation_of_the_causal_order(patch: Patch) -> None:
    patch.setattr(CausalState, "begin_again", lambda self, origin, marked: None)


def leave_the_gap_before_what_is_published_again(patch: Patch) -> None:
    begin_again = CausalState.begin_again
    patch.setattr(CausalState, "begin_again", lambda self, origin, marked: begin_again(self, origin))


def accept_events_before_the_interest_is_known_again(patch: Patch) -> None:
    patch.setattr(SettledInterest, "begin_again", lambda self: None)


def hide_that_a_leader_has_lost_interest(patch: Patch) -> None:
    patch.setattr(LeaderInterest, "take_lost", lambda self: False)


def report_no_interest_again(patch: Patch) -> None:
    """A server does not ask what its leader still has."""
    take = LeaderSession._on_attachment

    def once(self: LeaderSession, attachment: Attachment) -> None:
        if self._is_attached:
            self._stream.replaced_by(attachment)
        else:
            take(self, attachment)

    patch.setattr(LeaderSession, "_on_attachment", once)


def trust_positions_of_the_present_epoch(patch: Patch) -> None:
    """Epochs are not compared: only a position beyond the end is noticed."""
    patch.setattr(SessionRow, "has", lambda self, position: position.number < self.next)
    patch.setattr(SessionRow, "in_common", lambda self, position: min(position.number, self.next - 1))


def forget_in_common(patch: Patch) -> None:
    patch.setattr(SessionStream, "number", lambda self, position: 0 if position is None else position.number)


SABOTAGES: list[tuple[Callable[[Patch], None], str, Sequence[int]]] = [
    (believe_every_position, "vanished", range(1, 2)),
    (trust_positions_of_the_present_epoch, "vanished", range(7, 8)),
    (leave_no_gap, "vanished", range(42, 43)),
    (keep_what_arrived_behind_the_fork, "vanished", range(1, 2)),
    (take_an_event_twice, "twice", range(18, 19)),
    (resubmit_without_a_gap, "vanished", range(1, 2)),
    (go_on_where_the_leader_was, "vanished", range(58, 59)),
    (keep_the_incarnation_of_the_causal_order, "", range(1, 2)),
    (leave_the_gap_before_what_is_published_again, "vanished", (54, 35)),
    (accept_events_before_the_interest_is_known_again, "vanished", range(329, 330)),
    (hide_that_a_leader_has_lost_interest, "vanished", range(329, 330)),
    (report_no_interest_again, "waits for answers", (58, 95)),
    (forget_in_common, "vanished", range(1, 2)),
]


@pytest.mark.parametrize(("sabotage", "problem", "seeds"), SABOTAGES)
def test_a_server_or_agent_without_a_safeguard_is_noticed(
    monkeypatch: Patch, sabotage: Callable[[Patch], None], problem: str, seeds: Sequence[int]
) -> None:
    sabotage(monkeypatch)
    assert is_noticed(RestoreScenario.run_seed, seeds, problem)
