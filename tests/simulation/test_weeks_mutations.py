"""Mutation tests of the worlds of weeks: without any one promise of broker or agent, some of the first seeds fail.

A checker that accepts a broken product proves nothing about the correct one (DESIGN rule 3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.broker.device_changes import Handling
from wanderbus.broker.engine import matched_delivery
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.links import Links, _losses
from wanderbus.broker.patterns.detections import Detections
from wanderbus.broker.publish import acceptance
from wanderbus.broker.publish.delivery import Delivery
from wanderbus.broker.queues import displacement, queue_bounds, queue_limits
from wanderbus.broker.queues.policy_arguments import Queue
from wanderbus.broker.queues.queue import SessionQueue, SubscriptionQueue
from wanderbus.broker.queues.queue_items import Queued, QueuedGap
from wanderbus.broker.queues.queue_limits import QueueLimits
from wanderbus.broker.queues.queue_policies import QueuePolicies
from wanderbus.broker.reader_windows import ReaderWindows
from wanderbus.broker.readers import Link, OpenReader
from wanderbus.broker.restrictions.restriction_check import blocked_by
from wanderbus.broker.sessions.presence import Presence
from wanderbus.broker.sessions.session_ends import SessionEnds
from wanderbus.broker.state import engine_events
from wanderbus.broker.state.broker_clock import BrokerClock
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.rows import PastSessions, SessionRow, SubscriptionRow
from wanderbus.broker.state.running_pattern import RunningPattern
from wanderbus.broker.state.state import BrokerState
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.broker.tombstones import Tombstones
from wanderbus.client.machine.conversation import Conversation
from wanderbus.client.machine.lifetimes import Lifetimes
from wanderbus.client.machine.subscription_records import Decision
from wanderbus.event import Loss
from wanderbus.machine import Output
from wanderbus.protocol import Notify
from wanderbus.records import AnyRecord, Changed, Detected, Matched, Published, Started
from wanderbus.simulation.weeks.scenario import WeeksScenario
from wanderbus.subscription import PATTERN, Daily, QueuePolicy

pytestmark = pytest.mark.integration

Patch = pytest.MonkeyPatch


def after_each_record(patch: Patch, also: Callable[[BrokerState, AnyRecord], None]) -> None:
    apply_record = BrokerState.apply

    def apply(self: BrokerState, offset: int, record: AnyRecord) -> None:
        apply_record(self, offset, record)
        also(self, record)

    patch.setattr(BrokerState, "apply", apply)


def asking_restrictions(patch: Patch, change: Callable[[dict[str, Any]], None]) -> None:
    def blocked(restrictions: Any, **asked: Any) -> int | None:
        asked["restrictions"] = restrictions
        change(asked)
        return blocked_by(asked.pop("restrictions"), **asked)

    patch.setattr("wanderbus.broker.publish.delivery.blocked_by", blocked)


# Restrictions and lifetimes -------------------------------------------------------------------------------------------


def advance_frequency_when_blocked(patch: Patch) -> None:
    """SPEC H-11: a notification that a restriction blocks counts for the frequency."""

    def also(state: BrokerState, record: AnyRecord) -> None:
        for identity, _ in record.delivery.restricted if isinstance(record, Published) else ():
            state.subscriptions[identity].last_us = record.at_us

    after_each_record(patch, also)


def restrict_the_away_always(patch: Patch) -> None:
    """SPEC H-02: a restriction for while one is away holds always."""
    asking_restrictions(patch, lambda asked: asked.update(away=True))


def ask_windows_of_the_wrong_clock(patch: Patch) -> None:
    """DESIGN 5.8: windows ignore the broker's own clock, which follows a set wall clock slowly."""
    asking_restrictions(patch, lambda asked: asked.update(received_us=asked["now_us"]))


def open_windows_every_day(patch: Patch) -> None:
    """SPEC X29: weekdays do not matter."""

    def change(asked: dict[str, Any]) -> None:
        asked["restrictions"] = tuple(
            msgspec.structs.replace(r, weekdays=()) if isinstance(r, Daily) else r for r in asked["restrictions"]
        )

    asking_restrictions(patch, change)


def ignore_expiry(patch: Patch) -> None:
    """SPEC G-05: an expired subscription is notified until it is looked for."""
    generated, blocked = Delivery._generated, Delivery._blocked

    def timeless(self: Delivery, *given: Any) -> Any:
        state = self._state
        self.now_us, state.wall_us = state.wall_us, 0  # type: ignore[attr-defined]
        try:
            return generated(self, *given)
        finally:
            state.wall_us = self.now_us  # type: ignore[attr-defined]

    def in_time(self: Delivery, *given: Any) -> int | None:
        self._state.wall_us = self.now_us  # type: ignore[attr-defined]
        try:
            return blocked(self, *given)
        finally:
            self._state.wall_us = 0

    patch.setattr(Subscriptions, "end_expired", lambda self: None)
    patch.setattr(Delivery, "_generated", timeless)
    patch.setattr(Delivery, "_blocked", in_time)


def forget_when_the_renewed_was_notified(patch: Patch) -> None:
    """SPEC X21: a subscription that lives again is not as it was."""

    def also(state: BrokerState, record: AnyRecord) -> None:
        if isinstance(record, Changed):
            state.subscriptions[record.subscription.id].last_us = None

    after_each_record(patch, also)


def keep_every_tombstone(patch: Patch) -> None:
    """Growth: ended subscriptions are never forgotten."""
    patch.setattr(Tombstones, "_forget", lambda self, identities: None)


def never_ask_what_ended(patch: Patch) -> None:
    """SPEC G-12: a returning agent does not query its subscriptions."""
    patch.setattr(Lifetimes, "attached", lambda self: Decision())


def set_the_clock_back(patch: Patch) -> None:
    """DESIGN 5.8: the broker's clock equals the wall clock."""
    patch.setattr(BrokerClock, "read", lambda self, wall_us, now: wall_us)


# Queues ---------------------------------------------------------------------------------------------------------------


def let_one_more_wait(patch: Patch) -> None:
    """SPEC G-15: every cap is off by one."""
    exceeded = queue_bounds.exceeded

    def generous(policy: QueuePolicy, waiting: int, waiting_bytes: int) -> str | None:
        return exceeded(policy, waiting - 1, waiting_bytes)

    for user in (queue_limits, displacement):
        patch.setattr(user, "exceeded", generous)


def drop_the_oldest_always(patch: Patch) -> None:
    """SPEC U-02: a queue that is to drop its newest drops its oldest."""
    patch.setattr(SubscriptionQueue, "newest", SubscriptionQueue.oldest)


def deliver_at_any_age(patch: Patch) -> None:
    """SPEC G-17: only the sweep looks at ages."""
    patch.setattr(QueueLimits, "too_old", lambda self, entry, subscription: False)


def never_refuse(patch: Patch) -> None:
    """SPEC U-02: an event that is to be refused when a queue is full is dropped instead."""
    patch.setattr(QueueLimits, "refuses", lambda self, subject, size, notified: None)


def refuse_without_need(patch: Patch) -> None:
    """SPEC U-02: an event is refused because of a queue that has room."""
    refuses = QueueLimits.refuses

    def eager(self: QueueLimits, subject: str, event: msgspec.Raw, notified: Any) -> str | None:
        return refuses(self, subject, msgspec.Raw(bytes(event) * 2), notified)

    patch.setattr(QueueLimits, "refuses", eager)


def tell_everybody_of_the_bound(patch: Patch) -> None:
    """SPEC E-05: notifications of a device's own subscription are sent to all devices."""
    patch.setattr(Queued, "subscriptions_for", lambda self, device: self.subscriptions)


def miscount_gaps(patch: Patch) -> None:
    """SPEC U-02: a gap tells of one loss too many."""

    def more(subscription: str, gap: QueuedGap) -> tuple[Loss, ...]:
        return tuple(msgspec.structs.replace(loss, count=loss.count + 1) for loss in _losses(subscription, gap))

    patch.setattr("wanderbus.broker.links._losses", more)


def share_one_window(patch: Patch) -> None:
    """SPEC G-25: notifications that one reader does not take hold back all other readers on its link."""

    def has_room(self: ReaderWindows, link: Link, reader: OpenReader) -> bool:
        return sum(len(each.unacknowledged or ()) for each in link.readers()) < self._notifications

    patch.setattr(ReaderWindows, "has_room", has_room)


def send_without_a_window(patch: Patch) -> None:
    """SPEC G-25: a reader that stands still is sent everything."""
    patch.setattr(ReaderWindows, "has_room", lambda self, link, reader: True)


def take_one_too_many(patch: Patch) -> None:
    """Cursor: a device counts as having taken one notification more than it has (DESIGN 5.4)."""
    trim = BrokerState._trim

    def trim_more(self: BrokerState, session: SessionRow, queue: SessionQueue, row: SubscriptionRow) -> None:
        for device in session.devices:
            row.cursors = row.cursors or {}
            row.cursors[device] = min(row.cursors.get(device, 0) + 1, session.next - 1)
        trim(self, session, queue, row)

    patch.setattr(BrokerState, "_trim", trim_more)


def lose_what_was_on_its_way(patch: Patch) -> None:
    """SPEC G-13: notifications in flight when a link failed count as delivered."""
    read = Links.read

    def read_behind(self: Links, link: Link, handle: int, subscription: str) -> None:
        read(self, link, handle, subscription)
        if (reader := link.reader(subscription)) is not None:
            reader.sent = max(reader.sent, self._may_have_sent(link, subscription))

    patch.setattr(Links, "read", read_behind)


def stop_after_a_slice(patch: Patch) -> None:
    """SPEC U-03: a backlog is sent up to the first pause and no further."""
    patch.setattr(Links, "go_on", lambda self, link: None)


# Devices and disks ----------------------------------------------------------------------------------------------------


def let_the_last_device_go(patch: Patch) -> None:
    """SPEC X40: grace ends the membership of a session's last device too."""

    def grace_over(self: Presence, user: str, device: str) -> None:
        row = self._state.devices.get(f"{user}/{device}")
        if row and row.status == "DISCONNECTED":
            self.left(user, row.session, device, "grace")

    patch.setattr(Presence, "grace_over", grace_over)


def never_let_a_device_go(patch: Patch) -> None:
    """SPEC X40: whoever is away for too long stays a member."""
    patch.setattr(Presence, "grace_over", lambda self, user, device: None)


def grant_the_same_grace_to_all(patch: Patch) -> None:
    """SPEC G-24: a grace that the operator's hook has granted does not hold."""
    patch.setattr(Presence, "_grace_of", lambda self, row: self._grace_s)


def heed_no_hook(patch: Patch) -> None:
    """SPEC G-24: drops and removals that the operator's hook decides are not done."""
    patch.setattr(Presence, "_carry_out", lambda self, handling, row, change: None)


def drop_for_every_device(patch: Patch) -> None:
    """SPEC G-24: waiting notifications are dropped also where the operator's hook decides nothing."""
    carry_out = Presence._carry_out

    def dropping(self: Presence, handling: Handling, *about: Any) -> None:
        carry_out(self, msgspec.structs.replace(handling, drop_waiting=True), *about)

    patch.setattr(Presence, "_carry_out", dropping)


def ask_no_policy(patch: Patch) -> None:
    """SPEC G-23: notifications that the operator's policy drops stay."""
    patch.setattr(QueueLimits, "_ask_policies", lambda self, session, rows: None)


def drop_the_other_one(patch: Patch) -> None:
    """SPEC G-23: of two that wait, the one that the operator's policy wants to keep is dropped."""
    choose = QueuePolicies.choose

    def chosen(self: QueuePolicies, name: str, queue: Queue) -> list[int]:
        return [queue.newest[-1].number] if choose(self, name, queue) else []

    patch.setattr(QueuePolicies, "choose", chosen)


def forget_publishers(patch: Patch) -> None:
    """Repeats: after a restart no publish is recognised (DESIGN 5.2)."""

    def also(state: BrokerState, record: AnyRecord) -> None:
        for key in [key for key, _ in state.publishers.items()] if isinstance(record, Started) else ():
            state.publishers.drop(key)

    after_each_record(patch, also)


def take_a_repeat_for_another_event(patch: Patch) -> None:
    """Compare no repeat with the event that had its number; each is another one."""
    patch.setattr(acceptance, "_is_same", lambda event, number, publisher: False)


def say_at_once(patch: Patch) -> None:
    """Output commit: acknowledge before the sync (DESIGN 5.1)."""
    patch.setattr(Journal, "emit", lambda self, output: self._ready.append(output))


def hear_repeats(patch: Patch) -> None:
    """Exactly once: the agent delivers duplicates (DESIGN 5.5)."""
    notified = Conversation._notified

    def hear(self: Conversation, notify: Notify, size: int) -> list[Output]:
        for reader in self._readers.all():
            reader.received = min(reader.received, notify.number - 1)
        return notified(self, notify, size)

    patch.setattr(Conversation, "_notified", hear)


# Matching engine ------------------------------------------------------------------------------------------------------


def forget_what_was_live(patch: Patch) -> None:
    """SPEC T-06: a subscription that has ended gets no event of its time that the engine matches later."""
    patch.setattr("wanderbus.broker.state.state.end_life", lambda state, row, end: None)


def match_as_of_now(patch: Patch) -> None:
    """SPEC T-06: a subscription also gets the events that the engine had not matched when it began."""

    def life_at(row: SubscriptionRow, offset: int, at_us: int, *, is_live: bool) -> Any:
        return engine_events.life_at(row, max(offset, row.live_from), at_us, is_live=is_live)

    patch.setattr(matched_delivery, "life_at", life_at)


def match_again_after_a_restart(patch: Patch) -> None:
    """SPEC T-06: the watermark of the engine is not stored."""

    def apply_matched(state: BrokerState, record: Matched) -> None:
        engine_events.apply_events(state, record.events)

    patch.setattr("wanderbus.broker.state.state.apply_matched", apply_matched)


def wait_for_the_durable_watermark(patch: Patch) -> None:
    """Growth: an ended subscription is kept although the engine has nothing more for it."""

    def is_coming(self: EngineEvents, row: SubscriptionRow) -> bool:
        server = self._state.servers[self._state.server]
        return server.engine_next < server.engine_end and any(life.end > server.engine_next for life in row.former)

    patch.setattr(EngineEvents, "is_coming", is_coming)


# Patterns -------------------------------------------------------------------------------------------------------------


def forget_patterns(patch: Patch) -> None:
    """SPEC T-07: a restart begins each pattern again."""

    def also(state: BrokerState, record: AnyRecord) -> None:
        for row in state.subscriptions.values() if isinstance(record, Started) else ():
            if row.subscription.language == PATTERN:
                state.patterns.end(row.subscription.id)
                state.patterns.begin(row.subscription)

    after_each_record(patch, also)


def detect_again_after_a_restart(patch: Patch) -> None:
    """SPEC T-07: the fold of a detection does not advance the automaton."""

    def apply_detected(state: BrokerState, record: Detected) -> None:
        engine_events.apply_events(state, record.events)

    patch.setattr("wanderbus.broker.state.state.apply_detected", apply_detected)


def end_without_matching(patch: Patch) -> None:
    """SPEC T-07: what happened just before the end of a subscription is not matched."""
    patch.setattr(Detections, "finish", lambda self, subscription: None)


def drop_when_a_pattern_is_full(patch: Patch) -> None:
    """SPEC U-02: an event that a pattern has no room for leaves no gap."""
    patch.setattr(QueueLimits, "_leave_undecided", lambda self, session, notified, undecided: None)


# Sessions that are over  --------------------------------------------------------------------------------------------


def begin_numbers_again(patch: Patch) -> None:
    """SPEC J-05: another session uses the numbers of one that is over."""
    patch.setattr("wanderbus.broker.state.state.next_number", lambda state, user: 1)


def keep_sessions_that_are_over(patch: Patch) -> None:
    """SPEC J-05: nothing is removed."""
    patch.setattr(SessionEnds, "remove", lambda self, session: False)


def remove_what_somebody_waits_for(patch: Patch) -> None:
    """SPEC X40: a session without devices is over, whatever waits there."""
    patch.setattr(SessionEnds, "holds_something", lambda self, session: bool(session.subscriptions))


def give_again_what_others_took(patch: Patch) -> None:
    """SPEC G-07: a new device of a session gets what others have acknowledged."""
    patch.setattr(Links, "taken_by_others", lambda self, link, name: ())


def let_the_newest_give_way(patch: Patch) -> None:
    """SPEC X40: the device that was connected last gives way to another one."""
    patch.setattr("wanderbus.broker.sessions.session_ends._away_since_us", lambda row: -(row.away_since_us or 0))


def forget_the_counters_of_the_past(patch: Patch) -> None:
    """SPEC G-21: the counters of a session that is over are lost."""

    def add(self: PastSessions, session: SessionRow) -> None:
        self.next = max(self.next, session.next)

    patch.setattr(PastSessions, "add", add)


def take_events_of_the_future(patch: Patch) -> None:
    """SPEC T-07: an event waits no longer for others of the same instant, or for late ones."""
    patch.setattr(RunningPattern, "watermark_us", lambda self, now_us: max(now_us, self.latest_us) + 1)


_NOTICED_BY: Final[dict[Callable[[Patch], None], int]] = {
    forget_when_the_renewed_was_notified: 14,
    never_ask_what_ended: 13,
    never_refuse: 16,
    refuse_without_need: 18,
    ask_windows_of_the_wrong_clock: 60,
    forget_publishers: 10,
    forget_patterns: 8,
    grant_the_same_grace_to_all: 10,
    match_as_of_now: 7,
    wait_for_the_durable_watermark: 38,
    end_without_matching: 273,
    drop_when_a_pattern_is_full: 44,
}
"""A seed that notices, to be tried first, where that saves many others."""


@pytest.mark.parametrize(
    "sabotage",
    [
        advance_frequency_when_blocked,
        restrict_the_away_always,
        ask_windows_of_the_wrong_clock,
        open_windows_every_day,
        ignore_expiry,
        forget_when_the_renewed_was_notified,
        keep_every_tombstone,
        never_ask_what_ended,
        set_the_clock_back,
        let_one_more_wait,
        drop_the_oldest_always,
        deliver_at_any_age,
        never_refuse,
        refuse_without_need,
        tell_everybody_of_the_bound,
        miscount_gaps,
        take_one_too_many,
        share_one_window,
        send_without_a_window,
        lose_what_was_on_its_way,
        stop_after_a_slice,
        let_the_last_device_go,
        never_let_a_device_go,
        grant_the_same_grace_to_all,
        heed_no_hook,
        drop_for_every_device,
        ask_no_policy,
        drop_the_other_one,
        forget_publishers,
        take_a_repeat_for_another_event,
        say_at_once,
        hear_repeats,
        forget_what_was_live,
        match_as_of_now,
        match_again_after_a_restart,
        wait_for_the_durable_watermark,
        forget_patterns,
        detect_again_after_a_restart,
        end_without_matching,
        drop_when_a_pattern_is_full,
        take_events_of_the_future,
        begin_numbers_again,
        keep_sessions_that_are_over,
        remove_what_somebody_waits_for,
        give_again_what_others_took,
        let_the_newest_give_way,
        forget_the_counters_of_the_past,
    ],
    ids=lambda sabotage: sabotage.__name__,
)
def test_the_worlds_of_weeks_notice(sabotage: Callable[[Patch], None], monkeypatch: Patch) -> None:
    sabotage(monkeypatch)
    assert is_noticed(WeeksScenario.run_seed, [_NOTICED_BY.get(sabotage, 1)])
