"""Ended subscriptions: kept for a while to be renewed, and longer while notifications wait for a reader (SPEC X21)."""

from __future__ import annotations

import msgspec

from wanderbus import protocol, records
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.readers import Link
from wanderbus.broker.state.engine_events import successor_of
from wanderbus.broker.state.expiry_index import ExpiryIndex
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.rows import SessionRow, SubscriptionRow, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.subscription import Subscription


class Tombstones:
    """The rows of ended subscriptions, and when each can be forgotten."""

    def __init__(self, state: BrokerState, journal: Journal, config: BrokerConfig, engine: EngineEvents) -> None:
        self._state = state
        self._journal = journal
        self._config = config
        self._engine = engine
        self._index = ExpiryIndex()
        for tombstone in sorted(state.tombstones.values(), key=lambda row: row.ended_us):
            self._put(tombstone)

    def take_over(self, session: SessionRow) -> None:
        """Add the ended subscriptions of an imported session."""
        for identity in session.ended:
            self._put(self._state.tombstones[identity])

    def release(self, session: SessionRow) -> None:
        """Remove the ended subscriptions of a session; their rows stay until the session is fenced."""
        for identity in session.ended:
            self._index.drop(identity, session.user)

    def add(self, ended: Subscription) -> None:
        """Add a subscription that has just ended; forget the oldest one of a user who has too many."""
        self._put(self._state.tombstones[ended.id])
        if len(of_user := self._index.of_user(ended.owner)) > self._config.user_subscriptions_max:
            self._forget([next(iter(of_user))])

    def remove(self, revived: Subscription) -> None:
        """Remove a subscription that lives again."""
        self._index.drop(revived.id, revived.owner)

    def sweep(self, most: int) -> bool:
        """Forget those whose time is over, at most ``most``; return whether some may be left."""
        over = self._index.due(self._state.wall_us, most)
        self._forget([identity for identity in over if not self._still_waits(self._state.tombstones[identity])])
        return len(over) == most

    def forget_session(self, session: SessionRow) -> None:
        """Forget a session that is over, together with its ended subscriptions."""
        for identity in session.ended:
            self._index.drop(identity, session.user)
        forgotten = records.Forgotten(
            at_us=self._state.wall_us,
            subscriptions=tuple(session.ended),
            sessions=((session.user, session.name),),
        )
        self._journal.write(forgotten, urgent=False)

    def renewable(self, identity: str) -> Subscription | None:
        """Return a subscription that has ended and can still be renewed."""
        row = self._state.tombstones.get(identity)
        return None if row is None or self._state.wall_us >= self._forgotten_us(row) else row.subscription

    def latest(self, ended: Subscription) -> Subscription | None:
        """Return the subscription that stands for ``ended``; None if it is forgotten.

        That is the latest ended one with the same request. If another one has inherited its queue and was changed
        since, it is that one, which may be live.
        """
        session = self._state.sessions[session_key(ended.owner, ended.session)]
        known = (self._state.tombstones[identity] for identity in reversed(session.ended))
        latest = next((each for each in known if is_same_request(each.subscription, ended)), None)
        return None if latest is None else successor_of(self._state, latest).subscription

    def inheritable(self, link: Link, wanted: Subscription, request: protocol.Subscribe) -> str | None:
        """Return the last ended subscription with the same request that left notifications (SPEC G-07).

        None if a reader on this link still reads them: they are not for a second reader. A subscription that begins in
        the past reads from the log what others have left; it inherits only from the one that it succeeds.
        """
        if wanted.since is not None:
            ended_row = self._state.tombstones.get(request.succeeds or "")
            return request.succeeds if ended_row and is_same_request(ended_row.subscription, wanted) else None
        session = self._state.sessions[session_key(wanted.owner, wanted.session)]
        waiting = self._state.queued_for(session)
        for identity in reversed(session.ended):
            ended = self._state.tombstones[identity]
            has_left = ended.history or identity in waiting
            if not has_left and not self._engine.is_coming(ended):
                continue
            latest = successor_of(self._state, ended).subscription
            if latest.id not in self._state.subscriptions and is_same_request(latest, wanted):
                return None if request.reader is not None and link.reader(latest.id) is not None else latest.id
        return None

    def _put(self, row: SubscriptionRow) -> None:
        self._index.put(row.subscription.id, row.subscription.owner, self._forgotten_us(row))

    def _forget(self, identities: list[str]) -> None:
        """Forget subscriptions that have ended: they can no longer be renewed."""
        if not identities:
            return
        for identity in identities:
            self._index.drop(identity, self._state.tombstones[identity].subscription.owner)
        forgotten = records.Forgotten(at_us=self._state.wall_us, subscriptions=tuple(identities))
        self._journal.write(forgotten, urgent=False)

    def _still_waits(self, row: SubscriptionRow) -> bool:
        """Return whether notifications wait for an ended subscription; it is kept as long as they wait."""
        subscription = row.subscription
        session = self._state.sessions[session_key(subscription.owner, subscription.session)]
        queue = self._state.queue.get(session.key)
        own = None if queue is None else queue.queues.get(subscription.id)
        has_waiting = own is not None and own.waiting
        if not has_waiting and not session.source and not self._engine.is_coming(row):
            return False
        again_us = self._state.wall_us + round((self._config.sweep_s or 0) / 2 * 1e6)  # in time for the next sweep
        self._index.put(subscription.id, subscription.owner, again_us)
        return True

    def _forgotten_us(self, row: SubscriptionRow) -> int:
        return row.ended_us + round(self._config.tombstone_s * 1e6)


def is_same_request(one: Subscription, other: Subscription) -> bool:
    """Return whether both have the same request and session: a repeat, or a return after a crash."""
    return (
        one.subject == other.subject
        and one.expression == other.expression
        and msgspec.structs.replace(one, id=other.id, expires_us=other.expires_us) == other
    )
