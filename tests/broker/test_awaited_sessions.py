"""Sessions that move between servers of a domain: heads, cuts, awaited sessions and imports (SPEC L-02, L-04)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import pytest

from tests.broker.access_desk import NORTHERN, AccessDesk
from tests.broker.desk import ALICE, BOB, SUBJECT, Desk, rows_of
from tests.broker.engine_desk import EngineDesk
from tests.broker.test_publisher_filters import publisher, requested, wants
from tests.broker.test_server_sessions import NORTH, Hub
from wanderbus.broker.explanation import Explanation
from wanderbus.broker.messages import InterestEffective, OrderedInterestChanged
from wanderbus.broker.sessions import handover
from wanderbus.broker.sessions.handover_messages import (
    AwaitedEffective,
    AwaitSession,
    FenceSession,
    ForgetAwaited,
    HandoverOutput,
    Head,
    HeadFound,
    HeadWanted,
    ImportSession,
    KeepSession,
    SessionExported,
    SessionMoveRefused,
    SessionOwned,
)
from wanderbus.broker.state import replays
from wanderbus.broker.state.exported_session import decode_export
from wanderbus.event import EventId
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import (
    OPERATIONS,
    SESSION_MOVED,
    ConfirmFilters,
    Filters,
    Notify,
    PublishAccepted,
    RequestRefused,
)
from wanderbus.records import Arrived, SessionAwaited, SessionFenced, SessionNotAwaited, decode_record
from wanderbus.subscription import Frequency, QueuePolicy, Since, Subscription

KEY = f"{ALICE}/default"
EPOCH = 7
Kind = TypeVar("Kind")


class _Moves:
    """Mixed into a desk: keeps the outputs about handovers."""

    moves: list[Output]

    def perform(self, outputs: Sequence[Output]) -> None:
        self.moves = [*getattr(self, "moves", ()), *(each for each in outputs if isinstance(each, HandoverOutput))]
        super().perform(outputs)  # type: ignore[misc]

    def of_kind(self, kind: type[Kind]) -> list[Kind]:
        return [each for each in self.moves if isinstance(each, kind)]


class Server(_Moves, Desk):
    """A server of a domain; what arrives from others is left to the tests."""


class Access(_Moves, AccessDesk):
    """A server to which events of ``north`` come, which confirms all interest at once."""

    def perform(self, outputs: Sequence[Output]) -> None:
        super().perform(outputs)
        for each in outputs:
            if isinstance(each, OrderedInterestChanged) and each.added:
                self.give(InterestEffective(tuple(each.added)))


class Leader(_Moves, Hub):
    """A server at which others have sessions."""


class EngineLeader(Leader, EngineDesk):
    """A leader whose events an engine matches."""


def server(name: str, **values: Any) -> Server:
    return Server(BrokerConfig(server=name, sweep_s=None, publisher_filter_lease_s=10.0, **values))


def awaiting(target: Desk, *subscriptions: Subscription, source: str = "south", epoch: int = EPOCH) -> None:
    target.give(AwaitSession(ALICE, "default", epoch, source, subscriptions))


def fence(source: Desk, *heads: Head, epoch: int = EPOCH, target: str = "west") -> None:
    session = source.broker.state.sessions[KEY]
    source.give(FenceSession(ALICE, "default", epoch, target, tuple(session.subscriptions), heads))


def exported(source: Server | Access) -> bytes:
    (found,) = source.of_kind(SessionExported)
    return found.export


def head_of(desk: Desk) -> Head:
    """The head of a server that has sent nothing."""
    return Head(desk.broker.state.next_id)


# Heads ---------------------------------------------------------------------------------------------------------------


def test_a_head_has_the_end_of_the_log_and_the_last_number_that_was_sent() -> None:
    leader = Leader()
    leader.give(HeadWanted("north", 4))
    (first,) = leader.of_kind(HeadFound)
    assert first == HeadFound("north", 4, Head(leader.broker.state.next_id))
    north, bob = leader.server(), leader.attach(BOB)
    leader.subscribed(north, "N > 1")
    for n in (1, 2, 3):
        leader.publish(bob, n)
    leader.give(HeadWanted("north", 5))
    head = leader.of_kind(HeadFound)[-1].head
    assert (head.end, head.epoch, head.number) == (leader.broker.state.next_id, leader.epoch(NORTH), 2)


def test_a_head_is_given_once_everything_below_it_is_durable() -> None:
    leader = Leader()
    north, bob = leader.server(), leader.attach(BOB)
    leader.subscribed(north)
    leader.held = True
    leader.publish(bob, 1)
    leader.give(HeadWanted("north", 1))
    assert leader.of_kind(HeadFound) == []
    leader.sync()
    (found,) = leader.of_kind(HeadFound)
    assert found.head.number == 1


def test_a_head_is_given_once_the_engine_has_matched_what_is_below_it() -> None:
    leader = EngineLeader()
    north, bob = leader.server(), leader.attach(BOB)
    leader.subscribed(north)
    leader.answers = False
    leader.publish(bob, 1)
    end = leader.broker.state.next_id
    leader.give(HeadWanted("north", 1))
    assert leader.of_kind(HeadFound) == []
    while leader.match():
        pass
    (found,) = leader.of_kind(HeadFound)
    assert (found.head.end, found.head.number, found.head.is_mixed) == (end, 1, False)


def test_no_more_requests_for_a_head_wait_for_the_engine_than_a_server_has_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handover, "HEADS_MAX", 2)
    leader = EngineLeader()
    leader.subscribed(leader.attach(BOB))
    leader.answers = False
    leader.publish(leader.attach(ALICE), 1)
    for server_name, request in (("north", 1), ("east", 1), ("north", 2), ("north", 1), ("north", 3)):
        leader.give(HeadWanted(server_name, request))
    while leader.match():
        pass
    found = [(each.server, each.request) for each in leader.of_kind(HeadFound)]
    assert sorted(found) == [("east", 1), ("north", 1), ("north", 3)]


def test_a_server_whose_engine_has_some_subjects_lets_no_session_move() -> None:
    leader = EngineLeader(BrokerConfig(spark_subjects=(SUBJECT,)))
    leader.give(HeadWanted("north", 1))
    (found,) = leader.of_kind(HeadFound)
    assert found.head.is_mixed
    source = server("south")
    source.subscribed(source.attach())
    fence(source, msgspec.structs.replace(head_of(leader), is_mixed=True))
    (refused,) = source.of_kind(SessionMoveRefused)
    assert "has some subjects only" in refused.reason
    assert not source.written(SessionFenced)


# Fences --------------------------------------------------------------------------------------------------------------


def north_head(end: int, number: int = 0) -> Head:
    return Head(EventId("north", 3, end), 5, number)


def test_a_fence_waits_for_what_was_sent_and_cuts_behind_the_last_that_came() -> None:
    source = Access()
    phone = source.attach()
    source.subscribed(phone, subject=NORTHERN)
    source.arrives(1)
    fence(source, north_head(9, 3))
    source.arrives(2)
    assert not source.written(SessionFenced)
    source.arrives(3)
    (fenced,) = source.written(SessionFenced)
    assert fenced.target == "west"
    own, north = fenced.cuts
    assert own.ordered == own.decentralised
    assert isinstance(decode_record(source.log[own.ordered.number - 1]), Arrived), "the event that it waited for"
    assert (north.ordered, north.decentralised) == (EventId("north", 3, 9), EventId("north", 3, 9))
    assert source.stream(phone)[:3] == [1, 2, 3]


def refused(source: Server) -> str:
    """Return the reason for which a session is not fenced."""
    (found,) = source.of_kind(SessionMoveRefused)
    assert not source.written(SessionFenced)
    return found.reason


def test_a_session_of_requests_stays_at_the_server_that_was_called() -> None:
    source = server("south", roles={ALICE: "operator"})
    source.attach(session=OPERATIONS, reads=False)
    source.give(FenceSession(ALICE, OPERATIONS, EPOCH, "west"))
    assert "about this server" in refused(source)


def test_the_interest_of_a_session_ends_once_its_fence_is_durable() -> None:
    source = Access()
    source.subscribed(source.attach(), subject=NORTHERN)
    source.changes()
    source.held = True
    fence(source, north_head(2))
    assert source.written(SessionFenced)
    assert source.changes() == [], "a crash may undo the fence, and then the events are for the session here"
    source.sync()
    (change,) = source.changes()
    assert change.removed


def test_a_cut_is_behind_an_event_that_came_after_the_head() -> None:
    source = Access()
    source.subscribed(source.attach(), subject=NORTHERN)
    source.arrives(1)
    source.arrives(2)
    fence(source, north_head(2, 1))
    (fenced,) = source.written(SessionFenced)
    assert fenced.cuts[1].ordered == EventId("north", 3, 3)
    assert fenced.cuts[1].decentralised == EventId("north", 3, 2)


def test_a_fence_waits_until_a_session_that_moved_here_has_caught_up() -> None:
    first, second = server("south"), server("west")
    wanted = first.subscribed(first.attach(), "N > 0")
    awaiting(second, wanted)
    fence(first, head_of(second))
    second.reads_history = False
    second.give(ImportSession(exported(first)))
    fence(second, head_of(first), epoch=EPOCH + 1, target="south")
    assert not second.written(SessionFenced)
    second.reads_history = True
    second.read_history()
    assert second.written(SessionFenced)


def test_a_fence_that_waits_can_be_withdrawn_and_a_durable_one_cannot() -> None:
    source = Access()
    source.subscribed(source.attach(), subject=NORTHERN)
    fence(source, north_head(9, 1))
    source.give(KeepSession(ALICE, "default"))
    (refused,) = source.of_kind(SessionMoveRefused)
    assert refused == SessionMoveRefused(ALICE, "default", "events that other servers sent for it did not come in time")
    source.arrives(1)
    assert not source.written(SessionFenced)
    fence(source, north_head(9, 1))
    source.give(KeepSession(ALICE, "default"))
    assert len(source.of_kind(SessionMoveRefused)) == 1
    assert source.of_kind(SessionExported)


def test_a_fence_that_waits_for_later_events_of_the_engine_cannot_be_withdrawn() -> None:
    """The devices are turned away by then; until the engine has come to the first event, the session may stay."""
    source = EngineLeader()
    source.subscribed(source.attach())
    bob, source.answers = source.attach(BOB), False
    source.publish(bob, 1)
    fence(source)
    source.give(KeepSession(ALICE, "default"))
    (refused,) = source.of_kind(SessionMoveRefused)
    assert "its matching engine is 1 record behind" in refused.reason
    fence(source)
    source.held = True
    source.publish(bob, 2)
    source.match()
    source.give(KeepSession(ALICE, "default"))
    assert (len(source.of_kind(SessionMoveRefused)), source.written(SessionFenced)) == (1, [])
    source.held = False
    source.sync()
    while source.match():
        pass
    assert source.written(SessionFenced)
    assert source.of_kind(SessionExported)


def test_a_subscription_that_the_target_does_not_know_prevents_the_fence() -> None:
    source = Access()
    phone = source.attach()
    source.subscribed(phone, subject=NORTHERN)
    fence(source, north_head(9, 1))
    source.subscribed(phone, "N > 3", subject=NORTHERN)
    (refused,) = source.of_kind(SessionMoveRefused)
    assert refused.has_more
    source.arrives(1)
    assert not source.written(SessionFenced)


# Awaited sessions ----------------------------------------------------------------------------------------------------


@pytest.fixture
def wanted() -> Subscription:
    source = server("south")
    return source.subscribed(source.attach(), "N > 0")


def test_a_session_is_awaited_once_however_often_that_is_requested(wanted: Subscription) -> None:
    target = server("west")
    awaiting(target, wanted)
    awaiting(target, wanted)
    assert target.of_kind(AwaitedEffective) == [AwaitedEffective(ALICE, "default", EPOCH)] * 2
    (awaited,) = target.written(SessionAwaited)
    assert (awaited.source, awaited.owner_epoch, awaited.subscriptions) == ("south", EPOCH, (wanted,))
    later = msgspec.structs.replace(wanted, id=f"{wanted.id}1")
    first = target.broker.state.awaited[KEY].first
    awaiting(target, wanted, later)
    row = target.broker.state.awaited[KEY]
    assert (row.first, row.subscriptions) == (first, (wanted, later))


def test_an_awaited_session_is_reported_once_it_is_durable(wanted: Subscription) -> None:
    target = server("west")
    target.held = True
    awaiting(target, wanted)
    assert target.of_kind(AwaitedEffective) == []
    target.sync()
    assert target.of_kind(AwaitedEffective)


def test_l01_events_that_come_for_an_awaited_session_are_not_of_the_past() -> None:
    source, target = server("south"), server("west")
    awaiting(target, source.subscribed(source.attach(), "N > 0"))
    head = head_of(target)
    target.publish(target.attach(BOB), 1)
    fence(source, head)
    target.give(ImportSession(exported(source)))
    (notify,) = target.received(target.attach(), Notify)
    assert (notify.number, notify.is_history) == (1, False)


@pytest.mark.parametrize("with_rows", [False, True])
def test_an_awaited_session_and_its_interest_survive_a_restart(wanted: Subscription, with_rows: bool) -> None:
    target = Access(BrokerConfig(server="south", domain="example.org"))
    northern = msgspec.structs.replace(wanted, subject=NORTHERN)
    awaiting(target, northern, source="north")
    (before,) = target.changes()
    target.save()
    target.restart(with_rows=with_rows)
    (after,) = target.changes()
    assert [*before.added.values()] == [*after.added.values()] != []
    target.give(ForgetAwaited(ALICE, "default"))
    (removed,) = target.changes()
    assert [*removed.removed] == [*after.added]
    assert target.written(SessionNotAwaited)
    assert not len(target.broker.state.awaited)


def test_devices_of_an_awaited_session_are_turned_away(wanted: Subscription) -> None:
    target = server("west")
    awaiting(target, wanted)
    link = target.attach(ALICE, "phone", reads=False)
    (refused,) = target.received(link, RequestRefused)
    assert (refused.limit, "is on its way from south" in refused.reason) == (SESSION_MOVED, True)
    target.give(ForgetAwaited(ALICE, "default"))
    assert not target.received(target.attach(ALICE, "phone"), RequestRefused)


def test_a_session_that_is_in_use_is_not_awaited(wanted: Subscription) -> None:
    target = server("west")
    target.subscribed(target.attach())
    awaiting(target, wanted)
    assert target.of_kind(SessionMoveRefused)
    assert not target.written(SessionAwaited)


def test_agents_that_hold_events_back_know_the_filters_before_the_target_is_ready(wanted: Subscription) -> None:
    target = server("west")
    sensor = publisher(target)
    assert not wants(requested(target, sensor), 1)
    awaiting(target, wanted)
    assert target.of_kind(AwaitedEffective) == []
    changed = target.received(sensor, Filters)[-1]
    assert wants(changed, 1)
    target.send(sensor, ConfirmFilters(SUBJECT, changed.version))
    assert target.of_kind(AwaitedEffective)
    target.give(ForgetAwaited(ALICE, "default"))
    assert not wants(requested(target, sensor, 2), 1)


# Imports -------------------------------------------------------------------------------------------------------------


class Moved:
    """Alice's session of ``south``, where 1 and 2 wait, after its move to ``west``, where events are published, too."""

    def __init__(self, *, before: Sequence[int], after: Sequence[int], restarts: bool = False, **options: Any) -> None:
        self.source, self.target = source, target = server("south"), server("west")
        phone, bob = source.attach(), source.attach(BOB, "desk")
        self.subscription = source.subscribed(phone, "N > 0", **options)
        source.close(phone)
        for n in (1, 2):
            source.publish(bob, n)
        awaiting(target, self.subscription)
        self.bob = target.attach(BOB, "desk")
        self.publish(*before)
        head = head_of(target)
        self.publish(*after)
        fence(source, head)
        if restarts:
            target.save()
            target.restart(with_rows=True)
            self.bob = target.attach(BOB, "desk", epoch=2)
        target.give(ImportSession(exported(source)))

    def publish(self, *numbers: int) -> None:
        """Publish events at the target."""
        for n in numbers:
            self.target.publish(self.bob, n)

    def received(self) -> list[object]:
        """Return the stream of the phone when it calls the target."""
        return self.target.stream(self.target.attach(ALICE, "phone", epoch=2))


@pytest.mark.parametrize("restarts", [False, True])
def test_l04_events_of_both_servers_come_once_in_order(restarts: bool) -> None:
    moved = Moved(before=[3], after=[4, 5], restarts=restarts)
    moved.publish(6)
    # By its cut, the source has got 3: it was sent there before the head was taken.
    assert moved.received() == [1, 2, 4, 5, 6]
    (row,) = moved.target.broker.state.subscriptions.values()
    assert row.history == ()
    assert moved.target.of_kind(SessionOwned) == [SessionOwned(ALICE, "default", EPOCH)]


def test_l04_events_that_arrive_late_and_lie_before_the_cut_are_not_repeated() -> None:
    source, target = Access(), Access(BrokerConfig(server="south", domain="example.org"))
    wanted = source.subscribed(source.attach(), subject=NORTHERN)
    awaiting(target, wanted, source="south")
    source.arrives(1)
    source.arrives(2)
    fence(source, north_head(2, 1))
    target.give(ImportSession(exported(source)))
    for number in (1, 2, 3, 4):
        target.arrives(number)
    phone = target.attach(ALICE, "phone", epoch=2)
    assert target.stream(phone) == [1, 2, 3, 4]
    assert [each.number for each in target.received(phone, Notify)] == [1, 2, 3, 4]


def test_l04_an_event_for_several_subscriptions_is_one_notification_of_the_next_owner() -> None:
    source, target = server("south"), server("west")
    phone, bob = source.attach(), target.attach(BOB, "desk")
    rare = source.subscribed(phone, "N > 2", restrictions=[Frequency(3_600.0)])
    each, high = source.subscribed(phone, "N > 0"), source.subscribed(phone, "N > 1")
    source.close(phone)
    awaiting(target, rare, each, high)
    head = head_of(target)
    for n in (1, 2, 3, 4):
        target.publish(bob, n)
    fence(source, head)
    target.give(ImportSession(exported(source)))
    phone = target.attach(ALICE, "phone", epoch=2)
    assert target.stream(phone) == [1, 2, 3, 4]
    got = {notify.number: set(notify.subscriptions) for notify in target.received(phone, Notify)}
    assert got == {1: {each.id}, 2: {each.id, high.id}, 3: {rare.id, each.id, high.id}, 4: {each.id, high.id}}
    assert target.broker.state.sessions[KEY].restricted == 1


def test_l04_a_subscription_that_begins_meanwhile_gets_events_together_with_the_others() -> None:
    """It begins while the others read the last piece of the log, with which they would become live."""
    source, target = server("south"), server("west")
    phone, bob = source.attach(), target.attach(BOB, "desk")
    each = source.subscribed(phone, "N > 0")
    source.close(phone)
    awaiting(target, each)
    head = head_of(target)
    target.publish(bob, 1)
    fence(source, head)
    target.reads_history = False
    target.give(ImportSession(exported(source)))
    phone = target.attach(ALICE, "phone", epoch=2)
    late = target.subscribed(phone, "N > 1")
    target.publish(bob, 2)
    target.reads_history = True
    target.read_history()
    target.publish(bob, 3)
    got = {notify.number: set(notify.subscriptions) for notify in target.received(phone, Notify)}
    assert got == {1: {each.id}, 2: {each.id, late.id}, 3: {each.id, late.id}}
    assert not any(row.history for row in target.broker.state.subscriptions.values())


@pytest.mark.parametrize("when_full", ["drop_oldest", "drop_newest"])
def test_l04_a_full_queue_drops_what_it_would_drop_if_the_session_had_stayed(when_full: Any) -> None:
    queue = QueuePolicy(notifications_max=3, when_full=when_full)
    moved = Moved(before=[], after=[4, 5, 6], queue=queue)
    still = server("still")
    phone, bob = still.attach(), still.attach(BOB, "desk")
    still.subscribed(phone, "N > 0", queue=queue)
    still.close(phone)
    for n in (1, 2, 4, 5, 6):
        still.publish(bob, n)
    assert moved.received() == still.stream(still.attach(ALICE, "phone", epoch=2))


def test_l04_a_subscription_that_reads_the_past_goes_on_with_it_at_the_target() -> None:
    source, target = server("south"), server("west")
    bob, phone = source.attach(BOB, "desk"), source.attach()
    for n in range(1, 8):
        source.publish(bob, n)
    queue = QueuePolicy(notifications_max=3, when_full="drop_oldest")
    wanted = source.subscribed(phone, "N > 0", since=Since(), queue=queue)
    source.close(phone)
    awaiting(target, wanted)
    fence(source, head_of(target))
    span = decode_export(exported(source)).subscriptions[0].history
    assert span, "the source still reads"
    target.give(ImportSession(exported(source)))
    assert target.broker.state.subscriptions[wanted.id].history == span


def test_an_import_without_an_awaited_session_is_that_of_a_server_without_a_domain() -> None:
    source, target = server("south"), server("west")
    source.subscribed(source.attach(), "N > 0")
    source.give(FenceSession(ALICE, "default", EPOCH))
    target.give(ImportSession(exported(source)))
    (row,) = target.broker.state.subscriptions.values()
    assert (row.history, row.read_below) == ((), ())


def test_the_log_is_kept_for_an_awaited_session(wanted: Subscription) -> None:
    target = server("west")
    awaiting(target, wanted)
    first = target.broker.state.awaited[KEY].first
    bob = target.attach(BOB, "desk")
    target.publish(bob, 1)
    assert replays.first_of_history(target.broker.state) == first


def test_the_rows_of_an_awaited_and_of_an_imported_session_are_those_of_the_log() -> None:
    moved = Moved(before=[3], after=[4])
    moved.target.save()
    for desk in (moved.source, moved.target):
        assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)


def test_an_event_that_came_for_an_awaited_session_is_explained_by_its_delivery_or_by_the_other_server() -> None:
    moved = Moved(before=[3], after=[4])
    target = moved.target
    early, late = (each.id for each in target.received(moved.bob, PublishAccepted))
    explanations = []
    for event in (early, late):
        explanation = Explanation(event, moved.subscription)
        for payload in target.log:
            explanation.apply(decode_record(payload))
        explanations.append(explanation.explained())
    assert [each.outcome for each in explanations] == ["not_submitted", "queued"]
    assert explanations[0].reason == "its session was at another server, which explains the event"
