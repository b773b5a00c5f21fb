"""Delivery of an accepted event: the sessions that get it, for which subscriptions (SPEC B-01, J-04; DESIGN 5.1).

The event may have been accepted by this server or by another one: see :mod:`wanderbus.broker.publish.acceptance`.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial

import msgspec

from wanderbus import records
from wanderbus.broker.basics import Basics
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.history.catch_up import CatchUp
from wanderbus.broker.history.piece import past_event
from wanderbus.broker.interest.filter_accounts import Undecided
from wanderbus.broker.interest.phase_counts import PhaseCounts
from wanderbus.broker.publish.decisions import ArrivedAs, Delivered
from wanderbus.broker.publish.notifying import by_number, notification_of
from wanderbus.broker.publish.origins import Origins
from wanderbus.broker.restrictions.restriction_check import RESTRICTION_WORK, blocked_by
from wanderbus.broker.signals import BrokerOutput
from wanderbus.broker.state.replays import are_far, is_read, is_read_elsewhere
from wanderbus.broker.state.rows import SessionRow, SubscriptionRow, session_key
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.event import Event, EventId
from wanderbus.subscription import Subscription


class Delivery:
    """Decides which sessions get an event; :meth:`write` records the decision and sends the notifications."""

    def __init__(
        self,
        basics: Basics,
        subscriptions: Subscriptions,
        catch_up: CatchUp,
        engine: EngineEvents,
        user_pattern_events_max: int,
        phases: PhaseCounts,
    ) -> None:
        self.phases = phases
        """Counts of events that the channel and the destination have examined."""
        self._catch_up = catch_up
        self._engine = engine
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._subscriptions = subscriptions
        self._matcher = subscriptions.matcher
        self._queue_limits = basics.queue_limits
        self._user_pattern_events_max = user_pattern_events_max
        self.origins = Origins(is_used=basics.config.federated)
        """The last events of each server, also of other domains."""

    def deliver(
        self,
        event: Event,
        encoded: msgspec.Raw,
        received_us: int,
        excluded: Container[str] = (),
        arrived: ArrivedAs | None = None,
    ) -> Delivered:
        """Return the notifications of an accepted event; ``received_us`` is the last reading of the wall clock.

        The ``excluded`` users get none. ``arrived`` identifies an event that another server has accepted:
        subscriptions that have read it in the log there, or whose session has it from its former owner, get none.
        """
        expired: list[Subscription] = []
        behind: list[str] = []
        matcher = self._matcher
        found = matcher.matching(event)
        undecided = matcher.work.take_undecided(event)
        steps: list[tuple[str, int]] = []
        if of_patterns := matcher.steps_of(found):
            found = self._patterns_apart(event, found, of_patterns, steps, undecided, expired, behind, arrived)
        rows = list(map(self._state.subscriptions.__getitem__, found))
        if excluded:
            rows = [row for row in rows if row.subscription.owner not in excluded]
        if arrived is not None or event.origin:
            rows = [row for row in rows if not _has(row, arrived, event)]
        matched, restricted = self._generated(rows, event, received_us, expired, behind, undecided)
        if matcher.is_kernel_due:
            self._subscriptions.ask_for_kernel()
        notified: list[tuple[SessionRow, records.Notified]] = []
        recorded: list[records.Notified] = []
        for key, of_session in matched.items():
            session = self._state.sessions[key]
            notification = notification_of(session, session.next, of_session)
            notified.append((session, notification))
            recorded.append(notification)
        decided = recorded
        if undecided:
            decided = [each for each in recorded if not all(one in undecided for one in each.subscriptions)]
        full = self._queue_limits.refuses(event.subject, encoded, decided)
        displaced: dict[str, tuple[int, ...]] = {}
        if notified and not undecided:
            displaced = self._queue_limits.displacement.choose(notified, matched.values(), len(bytes(encoded)))
        delivery = records.Delivery(tuple(recorded), tuple(restricted), tuple(steps), displaced)
        return Delivered(delivery, notified, undecided, expired, behind, full)

    def arrived(
        self,
        event: Event,
        arrival: records.Arrival,
        received_us: int,
        excluded: Container[str],
        report: Callable[[bool], BrokerOutput] | None,
        causal: bytes = b"",
    ) -> None:
        """Record an event that another server has accepted, and deliver it here, unless the matching engine does so.

        ``report`` makes the report on whether a subscription matches it; ``causal`` is its header in the causal order.
        """
        self._subscriptions.end_expired()
        self.origins.note(arrival.id, event)
        if self._engine.is_for_engine(event.subject):
            self._engine.take(arrival, report, causal)
            return
        delivered = self.deliver(event, arrival.event, received_us, excluded, ArrivedAs(arrival.id, bool(causal)))
        self.phases.at_destination(is_matched=delivered.is_matched)
        if report is not None:
            self._journal.emit_now(report(delivered.is_matched))
        at_us, delivery = self._state.wall_us, delivered.delivery
        self.write(delivered, records.Arrived(at_us=at_us, arrival=arrival, delivery=delivery, causal=causal))
        self._subscriptions.end_all(delivered.expired)

    def write(self, delivered: Delivered, record: records.Published | records.Arrived) -> None:
        """Write the record of an event, with what its notifications displace, and send what the windows allow."""
        undecided = delivered.undecided
        added = [(session, notification, undecided) for session, notification in delivered.notified]
        bound = partial(self._queue_limits.bound, added, record.delivery)
        offset = self._journal.write_delivery(record, bound, urgent=True)
        if delivered.behind:
            is_undecided = any(each in delivered.undecided for each in delivered.behind)
            event = past_event(offset, record, steps=record.delivery.steps)
            self._catch_up.hold(delivered.behind, event, is_undecided=is_undecided)
        # Notify the subscribers before the publisher is answered: they wait for the event itself.
        for session, notification in delivered.notified:
            self._links.notify(session, notification.subscriptions)

    def _patterns_apart(
        self,
        event: Event,
        found: list[str],
        of_patterns: dict[str, list[str]],
        steps: list[tuple[str, int]],
        undecided: dict[str, Undecided],
        expired: list[Subscription],
        behind: list[str],
        arrived: ArrivedAs | None,
    ) -> list[str]:
        """Return the subscriptions that ``event`` notifies itself, without the entries of patterns.

        Add the patterns that it takes part in to ``steps``, and those that read the log to ``behind`` too. One that
        cannot take it gets a gap: the event itself is for its subscription then, undecided.
        """
        state, entries = self._state, set[str]().union(*of_patterns.values())
        notified = [each for each in found if each not in entries]
        for identity, own in sorted(of_patterns.items()):
            row = state.subscriptions[identity]
            if _has(row, arrived, event):
                continue
            subscription = row.subscription
            kept = state.patterns.kept_of(subscription.owner)
            bound = next((undecided[each] for each in own if each in undecided), None)
            if subscription.expires_us is not None and subscription.expires_us <= state.wall_us:
                expired.append(subscription)
            elif bound is None and (row.history or kept < self._user_pattern_events_max):
                steps.append((identity, self._matcher.leaves(own)))
                behind += [identity] if row.history else []
            else:
                undecided[identity] = bound or Undecided("user_pattern_events_max", kept)
                notified.append(identity)
        return notified

    def _generated(
        self,
        rows: list[SubscriptionRow],
        event: Event,
        received_us: int,
        expired: list[Subscription],
        behind: list[str],
        undecided: dict[str, Undecided],
    ) -> tuple[dict[str, list[SubscriptionRow]], list[tuple[str, int]]]:
        """Return the subscriptions that ``event`` notifies, of the matching ``rows``, by the key of their session.

        Also return the subscriptions whose restrictions blocked a notification, with the place of the first such
        restriction. Add the matching subscriptions that have expired to ``expired``, those that are not live yet to
        ``behind``, and those whose restrictions would take too much work to ``undecided``.
        """
        matched: dict[str, list[SubscriptionRow]] = {}
        restricted: list[tuple[str, int]] = []
        state = self._state
        if len(rows) > 1:
            rows.sort(key=by_number)
        for row in rows:
            subscription = row.subscription
            if subscription.expires_us is not None and subscription.expires_us <= state.wall_us:
                expired.append(subscription)
            elif row.history:
                behind.append(subscription.id)
            elif subscription.restrictions and (place := self._blocked(row, event, received_us, undecided)) is not None:
                restricted.append((subscription.id, place))
            elif (key := session_key(subscription.owner, subscription.session)) in matched:
                matched[key].append(row)
            else:
                matched[key] = [row]
        return matched, restricted

    def _blocked(
        self, row: SubscriptionRow, event: Event, received_us: int, undecided: dict[str, Undecided]
    ) -> int | None:
        subscription = row.subscription
        units = RESTRICTION_WORK * len(subscription.restrictions)
        if (bound := self._matcher.work.exceeded(subscription.owner, event, units)) is not None:
            undecided[subscription.id] = bound
            return None
        return blocked_by(
            row.subscription.restrictions,
            now_us=self._state.wall_us,
            received_us=received_us,
            last_us=row.last_us,
            away=self._links.status(row.subscription.owner) == "DISCONNECTED",
            event=event,
            kinds=self._subscriptions.kinds,
        )


def _has(row: SubscriptionRow, arrived: ArrivedAs | None, event: Event) -> bool:
    """Return whether a subscription has read an event of another server, or its session has it from a former owner."""
    if not row.read_below:
        return False
    if are_far(row.read_below):
        identity, is_direct = arrived or (EventId("", 0, 0), False)
        return is_read_elsewhere(identity, event, row.read_below, decentralised=is_direct)
    return arrived is not None and is_read(arrived.id, row.read_below, decentralised=arrived.is_decentralised)
