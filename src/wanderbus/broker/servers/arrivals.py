"""Arrivals: events that other servers have accepted, delivered to this server's own sessions (SPEC K-02, N-01).

A server numbers what it sends to this one. How far this server has got is part of the record of the event and its
notifications, so a crash repeats no event and loses none: the leader sends again what was not acknowledged, and what
has arrived already is recognised by its number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from wanderbus import protocol, records
from wanderbus.broker.basics import Basics
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.history.catch_up import CatchUp
from wanderbus.broker.messages import ArrivalMatched, ArrivalsTaken, ArrivalsWanted, EventArrived, LeaderEventsLost
from wanderbus.broker.publish.delivery import Delivery
from wanderbus.broker.rollback.messages import ArrivalsRewound
from wanderbus.broker.rollback.rollback import GAP_REASON as RESTORED
from wanderbus.broker.servers.foreign_messages import DomainEventsLost
from wanderbus.broker.servers.lost_events import concerned
from wanderbus.broker.state.rows import LeaderRow, session_key
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.event import Event

LEADER_REPLACED: Final = "leader_replaced"
"""Reason of the gap where another server leads a channel group because the leader was gone (SPEC J-08)."""

DOMAIN_EVENTS_LOST: Final = "domain_events_lost"
"""Reason of the gap where a foreign domain has lost events (SPEC M-01)."""

_NONE = LeaderRow()


class Arrivals:
    """Takes the events of each leader in the order of their numbers, each once."""

    def __init__(
        self, basics: Basics, subscriptions: Subscriptions, delivery: Delivery, catch_up: CatchUp, engine: EngineEvents
    ) -> None:
        self._conditions = basics.conditions
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._servers = basics.servers
        self._channels = basics.channels
        self._engine = engine
        self._subscriptions = subscriptions
        self._delivery = delivery
        self._catch_up = catch_up
        self._wanted: dict[str, tuple[int, int]] = {}
        """Epoch and number from which on a leader was asked again, until its next event in order."""
        self._reached: dict[str, tuple[int, int]] = {}
        """Epoch and number to acknowledge at the end of a batch, by leader."""
        self._missed: list[str] = []
        """Leaders that have sent too little while the disk was full."""
        self._lost_domains: dict[str, DomainEventsLost] = {}
        """Foreign domains that have lost events while the disk was full."""

    def disk_freed(self) -> None:
        """Ask for what came while the disk had no room: it was not taken."""
        missed, self._missed = self._missed, []
        for leader in missed:
            self.missed(leader)
        lost, self._lost_domains = self._lost_domains, {}
        for each in lost.values():
            self.lose_of_domain(each)
        for leader, (epoch, number) in self._wanted.items():
            self._journal.emit(ArrivalsWanted(leader, epoch, number))

    def take(self, several: Sequence[EventArrived]) -> None:
        """Deliver and record events; acknowledge the last of each leader when all of them are durable."""
        self._prematch(several)
        for given in several:
            if self._is_next(given):
                if self._is_late(given):
                    self._record_loss(given, LEADER_REPLACED, ())
                else:
                    self._deliver(given)
                self._reached[given.leader] = given.epoch, given.number
            if self._links.ready:
                self._links.flush()
        self._subscriptions.matcher.prematch(())
        for leader, (epoch, number) in self._reached.items():
            self._journal.emit(ArrivalsTaken(leader, epoch, number))
        self._reached.clear()

    def _prematch(self, coming: Sequence[EventArrived]) -> None:
        """Match the events that will be taken in one batch, which costs a fraction of single matching."""
        if self._conditions.is_disk_full:
            return
        reached: dict[str, LeaderRow] = {}
        events: list[Event] = []
        for given in coming:
            row = reached.get(given.leader) or self._state.leaders.get(given.leader) or _NONE
            if given.epoch >= row.epoch and given.before <= row.number < given.number:
                reached[given.leader] = LeaderRow(given.epoch, given.number)
                if not self._engine.is_for_engine(given.event.subject):
                    events.append(given.event)
        if len(events) > 1:
            self._subscriptions.matcher.prematch(events)

    def lose(self, given: LeaderEventsLost) -> None:
        """Record that events are lost, with a gap for each subscription that they may have matched."""
        if not self._is_next(given):
            return
        self._lose(given, given.count, given.reason)

    def lose_of_domain(self, given: DomainEventsLost) -> None:
        """Record a gap for each subscription here to one of the subjects: a foreign domain has lost events."""
        if self._conditions.is_disk_full:
            self._lost_domains[given.domain] = given
            return
        state = self._state
        notified = concerned(state, self._servers.all, lambda each: not given.subjects.isdisjoint(each), is_known=True)
        if notified:
            lost = records.EventsLost(at_us=state.wall_us, reason=DOMAIN_EVENTS_LOST, notified=notified)
            self._journal.write(lost, urgent=True)
            self._notify(notified)

    def rewind(self, given: ArrivalsRewound) -> None:
        """Go on at another place of the session at a leader, with a gap for what nobody knows any more."""
        if self._conditions.is_disk_full:
            self._wanted[given.leader] = given.epoch, given.number
            return
        self._wanted.pop(given.leader, None)
        self._lose(given, 1, RESTORED)

    def missed(self, leader: str) -> None:
        """Record that events of a leader may be missing which it did not send; the next one is that after the last."""
        if self._conditions.is_disk_full:
            self._missed.append(leader)
            return
        self._lose(self._nothing_new(leader), 1, RESTORED)

    def leader_replaced(self, group: int, server: str) -> None:
        """Record that events of a channel group may be missing, those of ``server``: one of its leaders was gone."""
        channels = self._channels
        assert channels is not None
        notified = concerned(
            self._state, self._servers.all, lambda subjects: any(channels.is_in(each, group) for each in subjects)
        )
        self._record_loss(self._nothing_new(server), LEADER_REPLACED, notified)

    def _nothing_new(self, leader: str) -> ArrivalsRewound:
        row = self._state.leaders.get(leader) or _NONE
        return ArrivalsRewound(leader, row.epoch, row.number, is_own=False)

    def _lose(self, given: LeaderEventsLost | ArrivalsRewound, count: int, reason: str) -> None:
        self._catch_up.lost(given.leader)
        self._record_loss(given, reason, self._concerned(given.leader), count)
        self._journal.emit(ArrivalsTaken(given.leader, given.epoch, given.number))

    def _record_loss(
        self,
        given: EventArrived | LeaderEventsLost | ArrivalsRewound,
        reason: str,
        notified: tuple[records.Notified, ...],
        count: int = 1,
    ) -> None:
        state = self._state
        lost = records.ArrivalsLost(
            at_us=state.wall_us,
            leader=given.leader,
            epoch=given.epoch,
            number=given.number,
            count=count,
            reason=reason,
            notified=notified,
        )
        self._journal.write(lost, urgent=True)
        self._notify(notified)

    def _notify(self, notified: tuple[records.Notified, ...]) -> None:
        for each in notified:
            self._links.notify(self._state.sessions[session_key(each.user, each.session)], each.subscriptions)

    def _is_late(self, given: EventArrived) -> bool:
        """Return whether the gap about a leader that was replaced, because it was gone, stands for an event.

        It comes from the former leader. Or that is this server, and does not know yet that it gets all of the next one.
        """
        channels = self._channels
        if channels is None or not self._state.groups.rows:
            return False
        if (group := channels.ordered_group(given.event.subject)) is None:
            return False
        row = self._state.groups.row(group)
        if row.is_forced and row.target == given.leader and channels.leads(given.event.subject):
            return True
        return bool(row.forced_epoch) and row.leader != given.leader

    def _is_next(self, given: EventArrived | LeaderEventsLost) -> bool:
        """Return whether ``given`` follows what has arrived; else acknowledge a repeat, or ask for what is missing."""
        row = self._state.leaders.get(given.leader) or _NONE
        number = row.number
        if given.epoch < row.epoch:
            return False  # of a stream that the leader has replaced
        if given.number <= number:
            self._journal.emit(ArrivalsTaken(given.leader, given.epoch, number))
            return False
        if self._conditions.is_disk_full:
            self._wanted[given.leader] = given.epoch, number
            return False
        if given.before > number:
            self._ask_again(given, number)
            return False
        self._wanted.pop(given.leader, None)
        return True

    def _concerned(self, leader: str) -> tuple[records.Notified, ...]:
        """Return a notification for the subscriptions of each session to subjects whose channels ``leader`` leads."""
        channels = self._channels
        return concerned(
            self._state,
            self._servers.all,
            lambda subjects: channels is None or leader in channels.other_leaders(subjects),
            leader,
        )

    def _ask_again(self, given: EventArrived | LeaderEventsLost, number: int) -> None:
        """Ask for the events behind ``number``, once: all that are on their way are behind the same hole."""
        if self._wanted.get(given.leader) != (given.epoch, number):
            self._wanted[given.leader] = given.epoch, number
            self._journal.emit(ArrivalsWanted(given.leader, given.epoch, number))

    def _deliver(self, given: EventArrived) -> None:
        raw = msgspec.Raw(given.encoded or protocol.encode_event(given.event))
        received_us = None if self._conditions.received_us == self._state.wall_us else self._conditions.received_us
        arrival = records.Arrival(
            given.leader, given.epoch, given.number, given.before, given.id, given.accepted_us, raw, received_us
        )
        # Other servers get it from its leader: a subscription to every subject would send it in circles. So do
        # foreign domains, which have a session at every server.
        self._delivery.arrived(
            given.event, arrival, self._conditions.received_us, self._servers.all, self._report(given)
        )

    def _report(self, given: EventArrived) -> Callable[[bool], ArrivalMatched] | None:
        """Return what makes the report on an arrival; None if nothing depends on it."""
        leader, subject = given.leader, given.event.subject
        if self._channels is None or self._channels.merging_of(subject).mode != "adaptive":
            return None
        return lambda is_matched: ArrivalMatched(leader, subject, is_matched)
