"""Expected contents of the log, derived from the log itself and from recorded facts: slow, and independent of the
broker.

The log is the order in which the broker decided. For every record this module checks whether the decision was right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase

from wanderbus import records
from wanderbus.broker.patterns.pattern_work import BOUNDS as PATTERN_BOUNDS
from wanderbus.broker.state.drops import drops_of
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import encode_event
from wanderbus.records import AnyRecord, Notified
from wanderbus.simulation.weeks.account import Account, Happened
from wanderbus.simulation.weeks.bounds import check_bounds, check_drop, in_order, is_bound, may_refuse
from wanderbus.simulation.weeks.deliveries import decisions, deliver, matching
from wanderbus.simulation.weeks.device_truth import DeviceTruth
from wanderbus.simulation.weeks.engine_truth import EngineTruth
from wanderbus.simulation.weeks.pattern_truth import PatternTruth
from wanderbus.simulation.weeks.position_truth import PositionTruth
from wanderbus.simulation.weeks.session_truth import SessionTruth
from wanderbus.simulation.weeks.stream import NotifiedEvent, StreamEntry, name_of
from wanderbus.simulation.weeks.subscription_truth import SubscriptionTruth


class Truth(Account):
    """A fold over the log, independent of the broker's own."""

    def __init__(self, config: BrokerConfig, happened: Happened) -> None:
        super().__init__(config, happened)
        self.events: dict[str, int] = {}
        """Offset of every event, by name."""
        self._engine = EngineTruth(self)
        self._sessions = SessionTruth(self, self._engine)
        self._devices = DeviceTruth(self, self._sessions)
        self._positions = PositionTruth(self)
        self._patterns = PatternTruth(self)
        self._subscriptions = SubscriptionTruth(self, self._engine, self._patterns)
        self._rightly_refused: set[str] = set()
        self._notified: list[Notified] = []
        """Notifications of the present record."""
        self._refused_subject = False
        """True if that record is of an event that had to be refused if a queue was full."""
        self._full: Counter[tuple[str, int]] = Counter()
        """Patterns that could not take its events, each with the offset of the record."""

    def fold(self, log: Iterable[AnyRecord], now_us: int) -> None:
        """Process the whole log, which ends at ``now_us`` of the broker's clock."""
        offset = 0
        for offset, record in enumerate(log):
            self._look_at_refusals(offset)
            if record.at_us < self.at_us:
                self.wrong(offset, "the time of its record is before that of the last")
            self.at_us = record.at_us
            self._notified, self._refused_subject = [], False
            self._full.clear()
            for stream in self.streams.values():
                stream.at_us = record.at_us
            self._take(offset, record)
            for drop in in_order(self.streams, drops_of(record)):
                self._take_drop(offset, drop, None)
            for problem in check_bounds(self.config, self.streams, self.known, self._notified):
                self.wrong(offset, problem)
        self._look_at_refusals(offset + 1)
        self._positions.finish()
        self._engine.finish()
        self._patterns.finish(offset, now_us)
        for offered, limit in self.happened.refused:
            if name_of(offered.event) not in self._rightly_refused:
                self.wrong(
                    offered.last, f"event {name_of(offered.event)} was refused because of {limit}, which has room"
                )

    def _look_at_refusals(self, offset: int) -> None:
        """Check that each event that was refused now would have exceeded the reported bound."""
        for offered, limit in self.happened.refused:
            event, at_us = offered.event, offered.at_us
            if offered.first <= offset <= offered.last and self._is_refused(event.subject):
                matched = matching(self, event, at_us)
                wanted, _ = decisions(self, matched, event, at_us=at_us, wall_us=offered.wall_us)
                if limit in may_refuse(self.config, self.streams, wanted, len(encode_event(event))):
                    self._rightly_refused.add(name_of(event))

    def _is_refused(self, subject: str) -> bool:
        return any(fnmatchcase(subject, pattern) for pattern in self.config.refuse_when_full)

    def _take(self, offset: int, record: AnyRecord) -> None:
        treated = self._devices.take_treated(offset, record)
        match record:
            case records.Published():
                self._take_event(offset, record)
            case records.Matched(events=events):
                self._engine.matched(offset, record)
                self._notified = [each for event in events for each in event.notified]
            case records.Detected(events=events):
                self._full = Counter({(record.subscription, offset): self._patterns.detected(offset, record)})
                self._notified = [each for event in events for each in event.notified]
            case records.Dropped():
                if is_bound(record.reason):
                    self.wrong(offset, f"{record.reason} is not in the record that displaced {record.first}")
                self._take_drop(offset, record, treated)
            case records.EventsLost():
                self.wrong(offset, f"gaps because of {record.reason}, and the log was never replaced")
            case records.Acknowledged():
                self._positions.acknowledged(offset, record)
            case records.Subscribed(subscription=subscription, inherits=inherits):
                self._subscriptions.subscribed(offset, subscription, inherits)
            case records.Changed(subscription=subscription):
                self._subscriptions.changed(offset, subscription)
            case records.Unsubscribed():
                self._subscriptions.ended(offset, record)
            case records.Forgotten():
                self._sessions.forgotten(offset, record)
                self._subscriptions.forgotten(offset, record)
                for user, name in record.sessions:
                    self._sessions.over(offset, user, name)
            case records.Attached():
                self._devices.attached(record)
            case records.StatusChanged():
                self._devices.status_changed(offset, record)
            case records.Left():
                self._devices.left(offset, record, treated)
            case records.Started(at_us=at_us):
                self._devices.started(at_us)

    def _take_event(self, offset: int, record: records.Published) -> None:
        event, wall_us = record.event, self.happened.walls_us[offset]
        if (received_us := record.received_us) != wall_us:
            self.wrong(offset, f"received at {received_us}, the wall clock showed {wall_us}")
        name = name_of(event)
        if name in self.events:
            self.wrong(offset, f"event {name} was published twice")
        self.events[name] = offset
        if bool(record.engine) != self._engine.is_for_engine(event.subject):
            self.wrong(offset, f"event {name} of {event.subject} was matched by {record.engine or 'the broker'}")
        if record.engine:
            self._engine.accept(offset, record)
            return
        full = list(self._patterns.take(offset, record))
        matched = [*matching(self, event, record.at_us), *full]
        expected = decisions(self, matched, event, at_us=record.at_us, wall_us=wall_us)
        delivery = record.delivery
        deliver(self, NotifiedEvent.of(record, offset), delivery.notified, delivery.restricted, expected)
        self._notified = list(delivery.notified)
        had_to_have_room = any(not set(each.subscriptions) <= set(full) for each in delivery.notified)
        self._refused_subject = had_to_have_room and self._is_refused(event.subject)
        self._full = Counter((identity, offset) for identity in full)

    def _take_drop(self, offset: int, record: records.Dropped, treated: tuple[str, str] | None) -> None:
        is_gap = record.reason in PATTERN_BOUNDS
        by_operator = record.reason.endswith("_max") and not record.reason.startswith("subscription.")
        if self._refused_subject and by_operator and not is_gap:
            self.wrong(offset, f"{record.reason} dropped something for an event that had to be refused")
        stream = self.stream(record.user, record.session)
        entries = [stream.entries[number] for number in range(max(record.first, stream.first), record.last + 1)]
        dropped = [(e, s) for e in entries for s in e.waiting if not record.subscriptions or s in record.subscriptions]
        if is_gap:
            self._take_gap(offset, dropped)
        else:
            asked_for = self._asked_for(record, treated)
            for problem in check_drop(
                self.config, self.streams, self.known, record, [e for e, _ in dropped], asked_for=asked_for
            ):
                self.wrong(offset, problem)
        for entry, subscription in dropped:
            stream.drop(entry, subscription, record.reason)

    def _take_gap(self, offset: int, dropped: list[tuple[StreamEntry, str]]) -> None:
        """Check that a gap is for patterns that could not take the last event."""
        for entry, subscription in dropped:
            if self._full[subscription, entry.recorded] <= 0:
                self.wrong(offset, f"{subscription} got a gap for {entry.number}, which its pattern has room for")
            self._full[subscription, entry.recorded] -= 1

    def _is_given_up(self, subscription: str) -> bool:
        """Return whether somebody requested the end of a subscription, or its devices left it behind."""
        return subscription in self.happened.unsubscribed or self.known[subscription].reason == "left_behind"

    def _asked_for(self, record: records.Dropped, treated: tuple[str, str] | None) -> set[str]:
        """Return the reasons for a drop that somebody has requested."""
        asked_for = {"purged"} if record.user in self.happened.purgers else set()
        if any(member.discards for (user, _), member in self.devices.items() if user == record.user):
            asked_for.add("discarded")
        if treated == (record.user, record.session):
            asked_for.add("hook")
        if all(self._is_given_up(identity) for identity in record.subscriptions):
            asked_for.add("unsubscribed")
        return asked_for
