"""Seeded worlds of ordered domains: every promise holds, and a server that lacks a safeguard is noticed (SPEC K-02)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from tests.simulation.noticing import is_noticed
from tests.simulation.pending_sabotage import EffectiveAtOnce
from wanderbus import protocol
from wanderbus.broker.engine import matched_delivery
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.history import leader_pieces
from wanderbus.broker.history.asked_piece import AskedPiece
from wanderbus.broker.history.catch_up import CatchUp
from wanderbus.broker.history.channel_history import ChannelHistory
from wanderbus.broker.history.page_rows import Rows
from wanderbus.broker.interest.leader_filters import LeaderFilters
from wanderbus.broker.interest.lease_marks import LeaseMarks
from wanderbus.broker.interest.matcher import Matcher
from wanderbus.broker.interest.publisher_filters import PublisherFilters
from wanderbus.broker.messages import (
    ArrivalsTaken,
    EventsRead,
    EventsWanted,
    FiltersArrived,
    HistoryRead,
    HistoryWanted,
)
from wanderbus.broker.publish import acceptance, delivery, outbox_orders
from wanderbus.broker.queues.queue_limits import QueueLimits
from wanderbus.broker.servers.forwarding import Forwarding
from wanderbus.broker.servers.interest_requests import InterestRequests
from wanderbus.broker.state import engine_events, replays, state
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.rows import LeaderRow, SubscriptionRow
from wanderbus.broker.state.state import BrokerState
from wanderbus.client.machine.publisher_filter import PublisherFilter
from wanderbus.event import EventId
from wanderbus.peers import leader_sessions
from wanderbus.peers.leader_interest import LeaderInterest
from wanderbus.peers.leader_session import LeaderSession
from wanderbus.protocol.outbox_order import OutboxOrder
from wanderbus.records import Cut, Matched
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.domains.ordered_scenario import OrderedScenario
from wanderbus.simulation.layers import Layer, replay_command
from wanderbus.simulation.scenario import Result

SEEDS = range(1, 13)
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [OrderedScenario.run_seed(seed) for seed in SEEDS]


def test_every_promise_holds(results: list[Result]) -> None:
    failed = [each for each in results if each.problems]
    replays = [replay_command(Layer.ORDERED, each.seed) for each in failed]
    assert [(replay, each.problems) for replay, each in zip(replays, failed, strict=True)] == []


def test_twelve_seeds_have_enough_happening_in_them(results: list[Result]) -> None:
    for field, least in (
        ("servers", 25),
        ("subscriptions", 150),
        ("events", 1_500),
        ("arrivals", 300),
        ("notifications", 1_000),
        ("crashes", 8),
        ("device_crashes", 3),
        ("breaks", 8),
        ("partitions", 3),
        ("full_disks", 3),
        ("listed", 300),
        ("refusals", 0),
        ("pasts", 30),
        ("pasts_elsewhere", 10),
        ("pieces", 30),
        ("held_back", 10),
        ("held_back_apart", 50),
        ("suspensions", 5),
    ):
        assert sum(result.counts[field] for result in results) > least, field


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (OrderedScenario(5, keep_trace=True) for _ in range(2))
    assert first.run() == second.run()
    assert first.world.trace == second.world.trace


def acknowledge_before_it_is_durable(patch: Patch) -> None:
    emit = Journal.emit

    def emitted(self: Journal, output: Any, size_bytes: int = 0) -> None:
        if isinstance(output, ArrivalsTaken):
            self.emit_now(output)
        else:
            emit(self, output, size_bytes)

    patch.setattr(Journal, "emit", emitted)


def resume_behind_what_is_not_durable(patch: Patch) -> None:
    arrived = LeaderSession._on_event

    def on_event(self: LeaderSession, message: protocol.NotifyServer) -> None:
        arrived(self, message)
        self.position = LeaderRow(self._stream.position(message.number).epoch, message.number)

    patch.setattr(LeaderSession, "_on_event", on_event)


def unsubscribe_before_the_replacement_is_confirmed(patch: Patch) -> None:
    due_removals = LeaderInterest._due_removals

    def due(self: LeaderInterest) -> Any:
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        messages = due_removals(self)
        self._unconfirmed = unconfirmed
        return messages

    patch.setattr(LeaderInterest, "_due_removals", due)


def answer_a_subscription_at_once(patch: Patch) -> None:
    patch.setattr(InterestRequests, "when_effective", lambda self, subscription, link, answer, **how: answer())


def repeat_no_publish(patch: Patch) -> None:
    opened = LeaderSession.opened

    def without(self: LeaderSession, link: int) -> None:
        publishes, self._publishes = self._publishes, {}
        opened(self, link)
        self._publishes = publishes

    patch.setattr(LeaderSession, "opened", without)


def recognise_no_repeat(patch: Patch) -> None:
    patch.setattr(acceptance, "is_repeated", lambda publisher, epoch, number: False)


def take_a_repeat_for_another_event(patch: Patch) -> None:
    patch.setattr(acceptance, "_is_same", lambda event, number, publisher: False)


class _NoOrder(OutboxOrder[Any, Any]):
    def before(self, outbox: Any, number: int, *, epoch: int = 0) -> None:
        return None


def hold_nothing_up_on_a_link(patch: Patch) -> None:
    patch.setattr(outbox_orders, "OutboxOrder", _NoOrder)


def hold_nothing_up_over_a_link(patch: Patch) -> None:
    patch.setattr(Forwarding, "_hold_back", lambda self, refused, limit, is_foreign: None)


def match_no_ancestors(patch: Patch) -> None:
    patch.setattr(Matcher, "_match_ancestors", lambda self, events, found, lineage: None)


def compare_nothing_on_a_new_link(patch: Patch) -> None:
    compare = LeaderInterest._compare

    def nothing(self: LeaderInterest) -> Any:
        self._queried = [each for each in self._queried if (each.subject, each.expression) in self._wanted]
        return compare(self)

    patch.setattr(LeaderInterest, "_compare", nothing)


def ask_for_nothing_again(patch: Patch) -> None:
    patch.setattr(LeaderSession, "begin_again", lambda self: None)


def retry_no_subscription(patch: Patch) -> None:
    patch.setattr(LeaderInterest, "retry", lambda self: [])


def count_at_once(patch: Patch) -> None:
    patch.setattr(leader_sessions, "Pending", EffectiveAtOnce)


def read_what_is_not_durable(patch: Patch) -> None:
    wanted = ChannelHistory._wanted

    def more(self: ChannelHistory, number: int, request: protocol.ListEvents) -> EventsWanted:
        asked = wanted(self, number, request)
        piece = msgspec.structs.replace(asked.piece, end=self._state.offset)
        return msgspec.structs.replace(asked, piece=piece)

    patch.setattr(ChannelHistory, "_wanted", more)


def answer_no_request_when_a_link_is_lost(patch: Patch) -> None:
    refuse = LeaderSession._refuse

    def only_without_a_link(self: LeaderSession, number: int) -> None:
        if number == next(reversed(self._questions)):
            refuse(self, number)

    patch.setattr(LeaderSession, "_refuse", only_without_a_link)


def skip_a_number_behind_each_page(patch: Patch) -> None:
    read = ChannelHistory.read

    def skipping(self: ChannelHistory, given: EventsRead) -> None:
        read(self, msgspec.structs.replace(given, end=given.end + 1))

    patch.setattr(ChannelHistory, "read", skipping)


def answer_while_publishers_hold_back(patch: Patch) -> None:
    patch.setattr(PublisherFilters, "when_used", lambda self, subscriptions, answer: answer())


def forget_events_for_the_engine(patch: Patch) -> None:
    """Do not count any event among those that wait for the engine."""
    patch.setattr(state, "accepted", lambda own, offset: None)


def forget_what_the_engine_has_matched(patch: Patch) -> None:
    """Begin at the first event that waits, also behind a restart."""
    apply_matched = engine_events.apply_matched

    def applied(own: BrokerState, record: Matched) -> None:
        apply_matched(own, msgspec.structs.replace(record, next=own.servers[own.server].engine_next))

    patch.setattr(state, "apply_matched", applied)


def tell_the_engine_of_no_parents(patch: Patch) -> None:
    init = EngineEvents.__init__

    def began(self: EngineEvents, *arguments: Any) -> None:
        init(self, *arguments)
        self.parents = {}

    patch.setattr(EngineEvents, "__init__", began)


def drop_up_to_the_last_lost_event(patch: Patch) -> None:
    """A loss counts as the oldest of what waits, though an engine decides late."""
    intact = QueueLimits._drop

    def from_the_first(self: Any, session: Any, first: int, last: int, reason: str, identities: Any) -> None:
        intact(self, session, 1 if reason == "log_keep" else first, last, reason, identities)

    patch.setattr(QueueLimits, "_drop", from_the_first)


def confirm_to_leaders_at_once(patch: Patch) -> None:
    confirmation = LeaderFilters.confirmation

    def at_once(self: LeaderFilters, given: FiltersArrived) -> Callable[[], None]:
        confirmation(self, given)()
        return lambda: None

    patch.setattr(LeaderFilters, "confirmation", at_once)


def mark_no_server(patch: Patch) -> None:
    patch.setattr(LeaseMarks, "mark", lambda self, row, lease_s: None)


def hold_back_after_a_suspension(patch: Patch) -> None:
    holds_back = PublisherFilter.holds_back

    def unaware(self: PublisherFilter, encoded: bytes, suspended_s: float, now: float) -> bool:
        return holds_back(self, encoded, 0.0, now)

    patch.setattr(PublisherFilter, "holds_back", unaware)


def deliver_arrivals_that_were_read(patch: Patch) -> None:
    for module in (delivery, matched_delivery):
        patch.setattr(module, "is_read", lambda event, cuts, *, decentralised: False)


def forget_the_seam_in_a_restart(patch: Patch) -> None:
    is_read, write, start = replays.is_read, CatchUp._write, DomainNode.start
    known = set[Cut]()

    def remembered(self: CatchUp, session: Any, rows: Sequence[SubscriptionRow], *rest: Any, **more: Any) -> None:
        write(self, session, rows, *rest, **more)
        known.update(cut for row in rows for cut in row.read_below)

    def forgetful(self: DomainNode) -> None:
        known.clear()
        start(self)

    def remembered_read(event: EventId, cuts: Iterable[Cut], *, decentralised: bool) -> bool:
        return is_read(event, [each for each in cuts if each in known], decentralised=decentralised)

    for module in (delivery, matched_delivery):
        patch.setattr(module, "is_read", remembered_read)
    patch.setattr(CatchUp, "_write", remembered)
    patch.setattr(DomainNode, "start", forgetful)


def read_the_past_before_it_counts(patch: Patch) -> None:
    patch.setattr(InterestRequests, "is_effective", lambda self, subscription: True)


def switch_to_live_behind_each_piece(patch: Patch) -> None:
    end_at = AskedPiece.end_at
    patch.setattr(
        AskedPiece, "end_at", lambda self, given: end_at(self, msgspec.structs.replace(given, is_at_end=True))
    )


def hold_what_the_leader_has_read(patch: Patch) -> None:
    def end_at(self: AskedPiece, given: HistoryRead) -> None:
        self.wanted = msgspec.structs.replace(self.wanted, end=given.end)
        self.held = self.held if given.is_at_end else None

    patch.setattr(AskedPiece, "end_at", end_at)


def hold_nothing_while_the_leader_reads(patch: Patch) -> None:
    hold = AskedPiece.hold
    patch.setattr(AskedPiece, "hold", lambda self, event, most: None if self.leader else hold(self, event, most))


def ask_no_leader_again(patch: Patch) -> None:
    patch.setattr(CatchUp, "_let_read_at", lambda self, identity, at: None)


def read_nothing_when_effective(patch: Patch) -> None:
    patch.setattr(CatchUp, "became_effective", lambda self: None)


def pass_over_an_event_behind_each_piece(patch: Patch) -> None:
    piece = leader_pieces._piece

    def longer(wanted: HistoryWanted, rows: Rows, *, is_at_end: bool) -> HistoryRead:
        read = piece(wanted, rows, is_at_end=is_at_end)
        return read if is_at_end else msgspec.structs.replace(read, end=read.end + 1)

    patch.setattr(leader_pieces, "_piece", longer)


def end_a_past_whose_leader_is_away(patch: Patch) -> None:
    patch.setattr(leader_pieces, "RETRY_S", 0.0)


SABOTAGES = [
    (acknowledge_before_it_is_durable, "has missed", range(107, 108)),
    (resume_behind_what_is_not_durable, "has missed", range(1, 2)),
    (unsubscribe_before_the_replacement_is_confirmed, "has missed", range(118, 119)),
    (answer_a_subscription_at_once, "has missed", range(1, 4)),
    (repeat_no_publish, "waits for", range(1, 4)),
    (recognise_no_repeat, "was accepted as", range(1, 4)),
    (take_a_repeat_for_another_event, "no device is a copy", range(1, 2)),
    (hold_nothing_up_on_a_link, "was accepted after number", range(37, 38)),
    (hold_nothing_up_over_a_link, "was accepted after number", range(14, 15)),
    (hold_nothing_up_over_a_link, "no device is a copy", range(14, 15)),
    (match_no_ancestors, " is for ", range(1, 2)),
    (compare_nothing_on_a_new_link, "which wants", range(5, 6)),
    (ask_for_nothing_again, "has missed", range(7, 8)),
    (retry_no_subscription, "is not settled", (11, 1)),
    (count_at_once, "has missed", range(1, 4)),
    (read_what_is_not_durable, "not durable", range(40, 41)),
    (answer_no_request_when_a_link_is_lost, "has no answer", range(55, 56)),
    (skip_a_number_behind_each_page, "lacks", range(4, 5)),
    (answer_while_publishers_hold_back, "was held back", range(3, 4)),
    (forget_events_for_the_engine, " is for ", range(22, 23)),
    (forget_what_the_engine_has_matched, "again", range(28, 29)),
    (tell_the_engine_of_no_parents, " is for ", range(28, 29)),
    (confirm_to_leaders_at_once, "was held back", range(663, 664)),
    (mark_no_server, "was held back", range(90, 91)),
    (hold_back_after_a_suspension, "was held back", range(6, 7)),
    (deliver_arrivals_that_were_read, "twice", range(14, 15)),
    (forget_the_seam_in_a_restart, "twice", range(16, 17)),
    (read_the_past_before_it_counts, "lacks", range(1, 2)),
    (switch_to_live_behind_each_piece, "lacks", range(21, 22)),
    (hold_what_the_leader_has_read, "twice", range(11, 12)),
    (hold_nothing_while_the_leader_reads, "lacks", range(1, 2)),
    (ask_no_leader_again, "has not caught up", range(21, 22)),
    (read_nothing_when_effective, "has not caught up", range(1, 2)),
    (pass_over_an_event_behind_each_piece, "lacks", range(21, 22)),
    (end_a_past_whose_leader_is_away, "although", range(1, 2)),
    (drop_up_to_the_last_lost_event, "has missed", range(147, 148)),
]


@pytest.mark.parametrize(("sabotage", "problem", "seeds"), SABOTAGES)
def test_a_server_without_a_safeguard_is_noticed(
    monkeypatch: Patch, sabotage: Callable[[Patch], None], problem: str, seeds: Sequence[int]
) -> None:
    sabotage(monkeypatch)
    assert is_noticed(OrderedScenario.run_seed, seeds, problem)
