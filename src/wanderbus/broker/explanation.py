"""Explanation of the outcome of one event for one subscription, from the records of the log (SPEC U-01).

The fold over all records keeps this pair alone: the subscription at the time of the event, and then the devices that
acknowledged the notification, or the reason for which it was dropped. Every pair has one outcome. A notification that
was dropped while it was in flight counts as dropped, as in the counters of its session, though the device may have
shown it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wanderbus import filters, records
from wanderbus.broker.explained import DeviceReached, Explained, Result
from wanderbus.broker.interest.filter_work import BOUNDS
from wanderbus.broker.interest.index_entries import entries_of
from wanderbus.broker.interest.matcher import lineage_of
from wanderbus.broker.restrictions.restriction_check import RESTRICTION_WORK
from wanderbus.broker.restrictions.restriction_text import forbidding, instant
from wanderbus.broker.state.drops import drops_of
from wanderbus.broker.state.exported_session import decode_export
from wanderbus.broker.state.pattern_states import compiled
from wanderbus.errors import StorageError
from wanderbus.event import Event, EventId
from wanderbus.filters.explaining import Deciding, deciding
from wanderbus.filters.work import Sizes, work_of
from wanderbus.parameters.broker import FILTER_WORK_MAX, setting_of
from wanderbus.records import AnyRecord
from wanderbus.subscription import PATTERN, Restriction, Subscription, concerns

_ENDED = {
    "asked": "as its user asked",
    "discarded": "as its user's device began without its previous subscriptions",
    "left_behind": "as its devices were gone, and its application did not keep it",
    "removed": "by an operator",
    "unsubscribed": "as its user or an administrator asked from elsewhere",
}


class Explanation:
    """Applies the records in order, from the first on; :meth:`explained` may be called at any time.

    :param event: the event's id
    :param submitted: the subscription as it was submitted
    :param device: explain the outcome for this device; None for all
    :param work_max: units of work beyond which a filter is not evaluated
    :param parents: parents of subjects in the domain
    """

    def __init__(
        self,
        event: EventId,
        submitted: Subscription,
        device: str | None = None,
        work_max: int = FILTER_WORK_MAX,
        parents: Mapping[str, str] = {},
    ) -> None:
        self._lineage = lineage_of(parents)
        self._event = event
        self._identity = submitted.id
        self._subscription = submitted
        self._device = device
        self._work_max = work_max
        self._submitted_us: int | None = None
        self._ended: records.Unsubscribed | None = None
        self._last_us: int | None = None
        self._members: dict[str, bool] = {}
        """Members of the session, and whether each has acknowledged the notification."""
        self._published: records.Published | None = None
        self._number: int | None = None
        self._waits_for = submitted.id
        """The subscription in whose queue it is: the matched one, or one that has inherited its queue."""
        self._acknowledged_us: dict[str, int] = {}
        """Time at which each device acknowledged the notification."""
        self._was_replayed = False
        """True if the subscription read the event from the log."""
        self._is_awaited = False
        """True if its session was on its way to this server when the event came: it may read the event from the log."""
        self._waits_for_engine = False
        """True if the matching engine has not matched the event."""
        self._left_us: int | None = None
        """Time at which it left the queue."""
        self._dropped: str | None = None
        """Reason for which it was dropped, if it was."""
        self._mentioned = msgspec.msgpack.encode(event)
        self._is_elsewhere = False
        """True if the event is in the log of another server only."""
        self.moved: records.SessionFenced | None = None
        """The fence with which the notification left, until the log that goes on with it is applied."""
        self._servers: tuple[str, ...] = ()
        """Servers to which the notification has gone with its session."""

    @property
    def has_event(self) -> bool:
        """Return whether one of the records is the event."""
        return self._published is not None

    @property
    def has_subscription(self) -> bool:
        """Return whether the server had the subscription when the event came, or has it at the end of its records.

        It also had the subscription if that read the event from the log, as after a handover.
        """
        return self._submitted_us is not None or self._was_replayed

    @property
    def settled(self) -> bool:
        """Return whether no later record can change the outcome."""
        if self._number is None:
            is_decided = self._published is not None and not self._waits_for_engine
            return is_decided and self._subscription.since is None and not self._is_awaited
        return self._published is not None and self._left_us is not None

    def concerns(self, offset: int, payload: bytes) -> bool:
        """Return whether the record at ``offset`` may concern the pair; most records do not."""
        if offset == self._event.number or self._subscription.owner.encode() in payload or self._mentioned in payload:
            return True
        return self._waits_for.encode() in payload

    def apply(self, record: AnyRecord) -> None:
        """Apply the next record; the caller may leave out those that do not concern the pair."""
        if self.settled or not (self.moved is None or self._has_come(record)):
            return
        match record:
            case records.Published():
                self._on_published(record)
            case records.Arrived(arrival=arrival, delivery=delivery):
                acceptance = records.Acceptance(
                    arrival.id, arrival.event, "", "", 0, 0, received_us=arrival.received_us
                )
                self._on_published(records.Published(at_us=record.at_us, acceptance=acceptance, delivery=delivery))
            case records.Subscribed(subscription=subscription, inherits=inherits):
                self._store_subscription(subscription, record.at_us)
                if inherits == self._waits_for and (self._number is not None or self._waits_for_engine):
                    self._waits_for = subscription.id
            case records.SessionAwaited(user=self._subscription.owner, session=self._subscription.session):
                self._is_awaited = self._published is None
            case records.SessionNotAwaited(user=self._subscription.owner, session=self._subscription.session):
                self._is_awaited = False
            case records.SessionImported(user=self._subscription.owner, session=self._subscription.session):
                self._come_from_server(record)
            case records.SessionFenced(user=self._subscription.owner, session=self._subscription.session):
                self._leave_server(record)
            case records.Changed(subscription=subscription):
                self._store_subscription(subscription, record.at_us)
            case records.Matched():
                self._on_matched(record)
            case records.Detected(subscription=self._identity):
                self._on_detected(record)
            case records.Replayed():
                self._on_replayed(record)
            case records.Unsubscribed(subscription=self._identity) if self._published is None:
                self._ended = record
            case records.Attached(user=self._subscription.owner):
                self._on_attached(record)
            case records.Left(user=self._subscription.owner, session=self._subscription.session):
                self._leave(record.device, record.at_us)
            case records.Acknowledged(user=self._subscription.owner, session=self._subscription.session):
                self._on_acknowledged(record)
            case records.Forgotten(subscriptions=subscriptions) if self._waits_for in subscriptions:
                self._drop_now("forgotten", record.at_us)
            case records.Dropped():
                self._on_dropped(record)
        for drop in drops_of(record):
            self._on_dropped(drop)

    def _store_subscription(self, subscription: Subscription, at_us: int) -> None:
        if subscription.id == self._identity and self._published is None:
            self._subscription = subscription
            self._ended = None
            if self._submitted_us is None:
                self._submitted_us = at_us

    def apply_elsewhere(self, record: records.Published) -> None:
        """Apply the record of the event in the log of another server, if the server of the subscription has none."""
        if self._submitted_us is not None and self._submitted_us > record.at_us:
            self._submitted_us = None
        if self._ended is not None and self._ended.at_us > record.at_us:
            self._ended = None
        self._published, self._is_elsewhere = record, True

    def _leave_server(self, fenced: records.SessionFenced) -> None:
        """Forget the subscription, whose session belongs to another server from now on; its notification goes along."""
        if self._published is None:
            self._submitted_us = None
        elif self._number is not None:
            self.moved = fenced

    def _has_come(self, record: AnyRecord) -> bool:
        """Return whether a record of another log imports the session that has left."""
        return (
            isinstance(record, records.SessionImported)
            and self.moved is not None
            and (
                (record.user, record.session, record.owner_epoch)
                == (self.moved.user, self.moved.session, self.moved.owner_epoch)
            )
        )

    def _come_from_server(self, imported: records.SessionImported) -> None:
        """Go on with the notification that has come along, or with the subscription as it is by now."""
        if self.moved is not None:
            self._servers, self.moved = (*self._servers, self.moved.target), None
            return
        exported = decode_export(imported.export)
        self._members = dict.fromkeys(exported.session.devices, False)
        for row in exported.subscriptions:
            if row.subscription.id == self._identity and self._published is None:
                self._store_subscription(row.subscription, imported.at_us)
                self._last_us = row.last_us

    def _on_published(self, record: records.Published) -> None:
        if self._servers:
            return  # the event has come to the next server too, which does not notify the subscription again
        ours = next((each for each in record.delivery.notified if self._identity in each.subscriptions), None)
        if record.acceptance.id == self._event:
            self._published = record
            self._waits_for_engine = bool(record.engine)
            self._number = None if ours is None else ours.number
            self._trim(record.at_us)
        elif ours is not None and self._published is None:
            self._last_us = record.at_us

    def _on_matched(self, record: records.Matched) -> None:
        """Note what the matching engine has decided, about the event or about an earlier one."""
        for each in record.events:
            ours = next((one for one in each.notified if self._waits_for in one.subscriptions), None)
            if each.id == self._event and self._published is not None:
                delivery = records.Delivery(each.notified, each.restricted)
                self._published = msgspec.structs.replace(self._published, delivery=delivery)
                self._number = None if ours is None else ours.number
                self._trim(record.at_us)
            elif ours is not None and (self._published is None or self._waits_for_engine):
                self._last_us = each.at_us
        if record.next > self._event.number:
            self._waits_for_engine = False

    def _on_detected(self, record: records.Detected) -> None:
        """Note a detection of the subscription's pattern: the event itself, or an earlier one."""
        for each in record.events:
            if self._published is None and each.notified:
                self._last_us = each.at_us
            if each.id == self._event:
                acceptance = records.Acceptance(each.id, each.event, "", "", 0, 0)
                delivery = records.Delivery(each.notified, each.restricted)
                self._on_published(records.Published(at_us=each.at_us, acceptance=acceptance, delivery=delivery))

    def _on_replayed(self, record: records.Replayed) -> None:
        """Note that the subscription has read the event from the log."""
        for stepped in record.stepped:
            if stepped.id == self._event and self._identity in dict(stepped.steps) and self._published is not None:
                delivery = records.Delivery(steps=stepped.steps)
                self._published = msgspec.structs.replace(self._published, delivery=delivery)
                self._submitted_us = self._submitted_us or record.at_us
        for notified, each in zip(record.notified, record.events, strict=True):
            if each.id == self._event and self._identity in notified.subscriptions:
                self._number, self._left_us, self._dropped = notified.number, None, None
                self._was_replayed = True
                self._trim(record.at_us)

    # The queue --------------------------------------------------------------------------------------------------

    def _on_attached(self, record: records.Attached) -> None:
        if record.session == self._subscription.session:
            self._members.setdefault(record.device, False)
            self._trim(record.at_us)
        else:
            self._leave(record.device, record.at_us)

    def _leave(self, device: str, at_us: int) -> None:
        self._members.pop(device, None)
        self._trim(at_us)

    def _on_acknowledged(self, record: records.Acknowledged) -> None:
        concerned = not record.subscriptions or self._waits_for in record.subscriptions
        if concerned and self._number is not None and record.number >= self._number:
            self._acknowledged_us.setdefault(record.device, record.at_us)
            if record.device in self._members:
                self._members[record.device] = True
            self._trim(record.at_us)

    def _trim(self, at_us: int) -> None:
        """Remove the notification from the queue once every target device has acknowledged it, or none of them can."""
        if self._number is None or not self._members:
            return
        bound_to = self._subscription.device
        if bound_to is not None and bound_to not in self._members:
            self._drop_now("device_left", at_us)
        elif all(taken for device, taken in self._members.items() if bound_to in (None, device)):
            self._left_us = at_us

    def _on_dropped(self, record: records.Dropped) -> None:
        if (record.user, record.session) != (self._subscription.owner, self._subscription.session):
            return
        if self._number is None or not record.first <= self._number <= record.last:
            return
        if not record.subscriptions or self._waits_for in record.subscriptions:
            self._drop_now(record.reason, record.at_us)

    def _drop_now(self, reason: str, at_us: int) -> None:
        if self._number is not None and self._left_us is None:
            self._left_us, self._dropped = at_us, reason

    # The outcome ------------------------------------------------------------------------------------------------

    def explained(self) -> Explained:
        """Return the outcome as far as the records go; :class:`StorageError` if the log does not hold the event."""
        if self._published is None:
            raise StorageError(f"the log has no event {self._event}; check the id (a refused event has none)")
        if self._was_replayed:
            return self._notified()
        return self._before_matching(self._published) or self._matched(self._published) or self._notified()

    def _before_matching(self, published: records.Published) -> Explained | None:
        subscription, ended = self._subscription, self._ended
        if self._submitted_us is None and self._is_awaited:
            return self._outcome("not_submitted", "its session was at another server, which explains the event")
        if self._submitted_us is None:
            return self._outcome("not_submitted", "the subscription was submitted after the event was published")
        if ended is not None and ended.reason != "expired":
            why = _ENDED.get(ended.reason, f"({ended.reason})")
            return self._outcome("ended", f"the subscription was ended at {instant(ended.at_us)} {why}")
        expires_us = subscription.expires_us
        if ended is not None or (expires_us is not None and expires_us <= published.at_us):
            return self._outcome("expired", f"the subscription expired at {instant(expires_us or published.at_us)}")
        return None

    def _matched(self, published: records.Published) -> Explained | None:
        """Return the outcome of an event that generated no notification, None if it generated one."""
        subscription, event = self._subscription, published.event
        if subscription.language == PATTERN:
            return None if self._number is not None else self._in_pattern(published)
        if self._number is not None:
            return None
        if not any(concerns(subscription.subject, subject) for subject in self._lineage(event.subject)):
            why = f"the subject of the event is {event.subject!r}, that of the subscription {subscription.subject!r}"
            return self._outcome("wrong_subject", why)
        if self._identity in dict(published.delivery.restricted):
            return self._restricted(published)
        expression = filters.parse(subscription.expression, subscription.language)
        units = work_of(expression.root).units(Sizes(event.attributes))
        if units > self._work_max and not self._waits_for_engine:
            return self._outcome("undecided", f"not evaluated: {_too_much(units)}; the limit is {self._work_max}")
        if units <= self._work_max and not expression.matches(event):
            predicates = deciding(expression.root, event)
            return self._outcome("filtered", "; ".join(map(in_words, predicates)), predicates=predicates)
        if self._waits_for_engine:
            return self._outcome("queued", "the event waits in the log for the matching engine")
        return self._not_arrived("its filter matches") if self._is_elsewhere else self._restricted(published)

    def _in_pattern(self, published: records.Published) -> Explained:
        """Return the outcome of an event, or of a blocked detection, for a subscription to a pattern."""
        if self._identity in dict(published.delivery.restricted):
            return self._restricted(published)
        if self._is_elsewhere and self._fits_a_step(published.event):
            return self._not_arrived("it matches a step of the pattern")
        steps = compiled(self._subscription.expression).declaration.steps
        if not (leaves := dict(published.delivery.steps).get(self._identity, 0)):
            return self._outcome("filtered", "it matches no step of the pattern")
        names = ", ".join(step.name for place, step in enumerate(steps) if leaves >> place & 1)
        return self._outcome("took_part", f"it matches the pattern's steps {names}; detections have ids of their own")

    def _fits_a_step(self, event: Event) -> bool:
        """Return whether an event matches a step of the pattern, or a filter of one takes too much work for it."""
        sizes, lineage = Sizes(event.attributes), self._lineage(event.subject)
        concerned = [
            entry.interest.filter
            for entry in entries_of(self._subscription)
            if any(concerns(entry.subject, subject) for subject in lineage)
        ]
        return any(work_of(each.root).units(sizes) > self._work_max or each.matches(event) for each in concerned)

    def _not_arrived(self, why: str) -> Explained:
        origin = self._event.origin
        return self._outcome(
            "not_arrived", f"{why}, but the event has not come from {origin} to the server of the subscription"
        )

    def _restricted(self, published: records.Published) -> Explained:
        subscription = self._subscription
        place = dict(published.delivery.restricted).get(self._identity)
        if place is None:
            return self._outcome("restricted", "by a restriction that the log does not name")
        why = forbidding(
            subscription.restrictions,
            place,
            now_us=published.at_us,
            received_us=published.received_us,
            last_us=self._last_us,
        )
        return self._outcome("restricted", why, restriction=subscription.restrictions[place])

    def _notified(self) -> Explained:
        """Return the outcome of the notification: delivered once every target device has acknowledged it."""
        bound_to, device = self._subscription.device, self._device
        if device is not None and bound_to not in (None, device):
            return self._outcome("bound_elsewhere", f"the subscription is bound to the device {bound_to}")
        only = bound_to or device
        acknowledged = {each: at_us for each, at_us in self._acknowledged_us.items() if only in (None, each)}
        waiting = [each for each in ([only] if only else self._members) if each not in acknowledged]
        devices = (*map(self._reached, acknowledged), *map(self._reached, waiting))
        if acknowledged and not waiting:
            reason = ", ".join(map(_acknowledged_in_words, devices)) + self._on_the_way()
            return self._outcome("delivered", reason, at_us=max(acknowledged.values()), devices=devices)
        if device is not None and bound_to is None and device not in self._members:
            return self._outcome("not_a_member", f"the device {device} is no member of the session")
        if self._dropped is not None:
            at = instant(self._left_us or 0)
            reason = self._not_evaluated(at) or f"dropped at {at} because of {self._dropped}{self._on_the_way()}"
            return self._outcome("dropped", reason, at_us=self._left_us, devices=devices)
        reason = f"waits for {', '.join(waiting)}" if waiting else "waits, and no device is a member of the session"
        if self.moved is not None:
            reason = f"waits at {self.moved.target or 'another server'}, whose log goes on with it"
        reason += self._on_the_way()
        return self._outcome("queued", reason, devices=devices)

    def _on_the_way(self) -> str:
        return f"; its session has gone to {', then '.join(self._servers)}" if self._servers else ""

    def _not_evaluated(self, at: str) -> str | None:
        """Return the reason for which the filter was not evaluated or the restrictions not checked, None if both were.

        The record names the bound alone. ``filter_work_max`` is a bound of the filter; the others bound the work of
        both.
        """
        if self._dropped not in BOUNDS or self._published is None or self._subscription.language == PATTERN:
            return None
        expression = filters.parse(self._subscription.expression, self._subscription.language)
        units = work_of(expression.root).units(Sizes(self._published.event.attributes))
        bound = setting_of(self._dropped)
        count = len(self._subscription.restrictions)
        if not count or self._dropped == "filter_work_max":
            return f"not evaluated at {at} because of {bound}: {_too_much(units)}"
        own = f"its restrictions take {RESTRICTION_WORK * count}, besides other subscriptions of the user"
        return f"not decided at {at} because of {bound}: {_too_much(units)}, {own}"

    def _reached(self, device: str) -> DeviceReached:
        assert self._published is not None
        if (at_us := self._acknowledged_us.get(device)) is None:
            return DeviceReached(device, None, None)
        return DeviceReached(device, at_us, (at_us - self._published.at_us) / 1e6)

    def _outcome(
        self,
        outcome: Result,
        reason: str,
        *,
        at_us: int | None = None,
        predicates: tuple[Deciding, ...] = (),
        restriction: Restriction | None = None,
        devices: tuple[DeviceReached, ...] = (),
    ) -> Explained:
        assert self._published is not None
        subscription = self._subscription
        return Explained(
            event=str(self._event),
            subscription=subscription.id,
            outcome=outcome,
            reason=reason,
            at_us=self._published.at_us if at_us is None else at_us,
            published_us=self._published.at_us,
            user=subscription.owner,
            session=subscription.session,
            number=self._number,
            predicates=predicates,
            restriction=restriction,
            devices=devices,
            servers=self._servers,
        )


def _too_much(units: int) -> str:
    return f"the filter takes up to {units} units of work for this event"


def in_words(predicate: Deciding) -> str:
    """Return a deciding question with its result and the reason."""
    truth = "unknown" if predicate.truth is None else str(predicate.truth).lower()
    return f"{predicate.question} is {truth}: {predicate.why}"


def _acknowledged_in_words(reached: DeviceReached) -> str:
    return (
        f"{reached.device} acknowledged it at {instant(reached.acknowledged_us or 0)}, {reached.after_s:.3f} s after "
        "the event"
    )
