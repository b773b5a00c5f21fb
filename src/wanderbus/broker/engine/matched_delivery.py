"""Delivery of events that the matching engine has matched: as of the moment at which each was accepted (SPEC T-06).

The engine names subscriptions by their subject and filter alone, and too many of them. Whether one was live when the
event was accepted, and what its restrictions allow, is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from wanderbus import records
from wanderbus.broker.basics import Basics
from wanderbus.broker.engine.decided import Decided
from wanderbus.broker.history.catch_up import CatchUp
from wanderbus.broker.interest.filter_accounts import Undecided
from wanderbus.broker.messages import EngineEvent, PastEvent
from wanderbus.broker.publish.notifying import by_number, notification_of
from wanderbus.broker.restrictions.past_check import past_blocked_by
from wanderbus.broker.state.engine_events import life_at, successor_of
from wanderbus.broker.state.replays import are_far, is_read, is_read_elsewhere
from wanderbus.broker.state.rows import SubscriptionLife, SubscriptionRow, session_key
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.protocol import decode_event


class MatchedDelivery:
    """Decides which subscriptions get matched events; :meth:`send` follows the record of the decisions."""

    def __init__(self, basics: Basics, subscriptions: Subscriptions, catch_up: CatchUp) -> None:
        self._state = basics.state
        self._servers = basics.servers
        self._links = basics.links
        self._subscriptions = subscriptions
        self._queue_limits = basics.queue_limits
        self._catch_up = catch_up
        self.leaving: dict[str, int] = {}
        """Sessions that move to another server, with the offset from which on they get nothing here."""

    def decide(self, events: Sequence[EngineEvent]) -> Decided:
        """Return the decisions about these events, which are in order; what history holds is held."""
        decided = Decided()
        for each in events:
            self._decide(each, decided)
        return decided

    def bound(self, decided: Decided) -> tuple[records.Drop, ...]:
        """Return what the notifications displace, which is dropped then."""
        return self._queue_limits.bound(decided.notified)

    def send(self, decided: Decided) -> None:
        """Send what the windows allow."""
        for session, notified, _ in decided.notified:
            self._links.notify(session, notified.subscriptions)
        for session, number, identity, device in decided.abandoned:
            self._links.acknowledge(session, device, number, (identity,))
        self._subscriptions.end_all(decided.expired.values())

    def _decide(self, matched: EngineEvent, decided: Decided) -> None:
        event, behind = matched.event, list[str]()
        restricted: list[tuple[str, int]] = []
        of_session: dict[str, list[tuple[SubscriptionRow, SubscriptionLife]]] = {}
        for row, life in self._receiving(matched, decided, behind):
            subscription = row.subscription
            last_us = decided.last_us.get(subscription.id, row.last_us)
            held = subscription.restrictions if life.restrictions is None else life.restrictions
            place = past_blocked_by(held, subscription.owner, event, last_us, self._links, self._subscriptions.kinds)
            if place is not None:
                restricted.append((subscription.id, place))
                continue
            of_session.setdefault(session_key(subscription.owner, subscription.session), []).append((row, life))
            decided.last_us[subscription.id] = event.at_us
        if behind or of_session or restricted:
            decided.matched.add(event.offset)
        if behind:
            self._catch_up.hold(behind, event, is_undecided=any(each in matched.undecided for each in behind))
        undecided = {each: Undecided("filter_work_max", 0) for each in matched.undecided}
        recorded = [self._notification(key, rows, undecided, decided) for key, rows in of_session.items()]
        if recorded or restricted:
            raw, arrived = msgspec.Raw(event.event), 0 if self._is_own(event) else event.offset
            delivery = tuple(recorded), tuple(restricted)
            decided.events.append(records.MatchedEvent(event.id, event.at_us, raw, *delivery, arrived))

    def _notification(
        self,
        key: str,
        rows: list[tuple[SubscriptionRow, SubscriptionLife]],
        undecided: dict[str, Undecided],
        decided: Decided,
    ) -> records.Notified:
        session = self._state.sessions[key]
        number = decided.numbers.get(key, session.next)
        decided.numbers[key] = number + 1
        notified = notification_of(session, number, [row for row, _ in rows])
        decided.notified.append((session, notified, undecided))
        for row, life in rows:
            if life.abandoned_by in session.devices:
                decided.abandoned.append((session, number, row.subscription.id, life.abandoned_by))
        return notified

    def _is_own(self, event: PastEvent) -> bool:
        """Return whether this server has accepted an event."""
        return (event.id.origin, event.id.number) == (self._state.server, event.offset)

    def _may_get(self, user: str, matched: EngineEvent) -> bool:
        """Return whether an event is for a server or a foreign domain, from here: see :meth:`ServerUsers.excluded`."""
        if user in self._servers.users:
            return not matched.is_for_users
        publisher = matched.event.user  # "" for an event that another server has accepted
        return bool(publisher) and not self._servers.is_foreign(publisher)

    def _receiving(
        self, matched: EngineEvent, decided: Decided, behind: list[str]
    ) -> Iterator[tuple[SubscriptionRow, SubscriptionLife]]:
        """Yield the subscriptions that were live when the event was accepted, by number, each with that life.

        Add those that have not caught up with the log to ``behind``, and expired ones to ``decided``.
        """
        event, state = matched.event, self._state
        found = {each: row for each in (*matched.matched, *matched.undecided) if (row := state.known(each))}
        for identity, row in sorted(found.items(), key=lambda item: by_number(item[1])):
            subscription, is_live = row.subscription, identity in state.subscriptions
            if subscription.owner in self._servers.all and not self._may_get(subscription.owner, matched):
                continue
            if event.offset >= self.leaving.get(
                session_key(subscription.owner, subscription.session), event.offset + 1
            ):
                continue
            if row.read_below and _has(row, event):
                continue
            if row.history:
                if is_live:
                    behind.append(identity)
                continue
            life = life_at(row, event.offset, event.at_us, is_live=is_live)
            if life is not None:
                if life in row.former:
                    row = successor_of(self._state, row)
                yield row, life
            elif (
                is_live
                and event.offset >= row.live_from
                and event.at_us >= (subscription.expires_us or event.at_us + 1)
            ):
                decided.expired[identity] = subscription


def _has(row: SubscriptionRow, event: PastEvent) -> bool:
    """Return whether the session of a subscription has an event from a former owner."""
    if are_far(row.read_below):
        content = decode_event(event.event)
        return is_read_elsewhere(event.id, content, row.read_below, decentralised=event.is_decentralised)
    return is_read(event.id, row.read_below, decentralised=event.is_decentralised)
