"""Bounds of what waits, by number, bytes and age: of a subscription, a session, a user, the broker (SPEC G-15 to G-18).

What gives way is dropped under the name of its bound; of some subjects a publish is refused instead (SPEC U-02).
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace
from itertools import islice
from typing import Final, TypeAlias

from wanderbus import records
from wanderbus.broker.config import BrokerConfig
from wanderbus.broker.journal import Journal
from wanderbus.broker.policies import SHOWN_MAX, Policies, Queue, Waiting
from wanderbus.broker.queue import Entry, Hole, Queued
from wanderbus.broker.rows import SessionRow, SubscriptionRow, session_key
from wanderbus.broker.state import BrokerState
from wanderbus.subscription import QueuePolicy

LOOKED_AT_MAX: Final = 8 * SHOWN_MAX
"""Entries of a session that are looked at for those of one subscription."""

_OWN: Final = "subscription."
"""Before the name of a bound that is a subscription's own."""


_Drops: TypeAlias = dict[tuple[int, int, str], list[str]]
"""Subscriptions for which the same first to last number are dropped for the same reason."""


class Bounds:
    """Keeps every queue within its bounds.

    What is dropped makes nothing ready to be sent that was not: no link has to be pumped for it.
    """

    def __init__(
        self, state: BrokerState, journal: Journal, config: BrokerConfig, policies: Policies | None = None
    ) -> None:
        self._policies = policies or Policies()
        self._state = state
        self._journal = journal
        self._system = config.queue
        self._user_bytes_max = config.user_queued_bytes_max
        self._bytes_max = config.queued_bytes_max
        globs = config.refuse_when_full
        self._refused = re.compile("|".join(map(fnmatch.translate, globs))) if globs else None
        self._oldest: dict[str, int] = {}
        """Of a subscription: no notification of a lower number waits for it. What waits only gets younger."""

    # By number and bytes ----------------------------------------------------------------------------------------

    def refuses(self, subject: str, size: int, notified: Sequence[records.Notified]) -> str | None:
        """Return the bound for which an event of ``size`` bytes is refused, if its subject is one of those that are.

        A subscription's own bounds refuse nothing: whoever sets them would stop others from hearing of the event.
        """
        if self._refused is None or not self._refused.match(subject):
            return None
        for each in notified:
            session = self._state.sessions[session_key(each.user, each.session)]
            if self._session_full(session, size):
                self.expire(session)
            if reason := self._session_full(session, size):
                return reason
        users = Counter(each.user for each in notified)
        if any(self._user_bytes(user) + size * count > self._user_bytes_max for user, count in users.items()):
            return "user_queued_bytes_max"
        if self._state.queued_bytes + size * len(notified) > self._bytes_max:
            return "queued_bytes_max"
        return None

    def _session_full(self, session: SessionRow, size: int) -> str | None:
        """Return the bound of the session that one more notification would exceed."""
        return _exceeded(self._system, session.waiting + 1, session.queued_bytes + size)

    def enforce(self, session: SessionRow, notified: records.Notified) -> None:
        """Drop what exceeds a bound now that ``notified`` is in the queue of ``session``."""
        rows = [self._state.subscriptions[identity] for identity in notified.subscriptions]
        self._ask_policies(session, rows)
        while rows := [row for row in rows if _own_exceeded(row)]:
            self._give_way_each(session, rows)
        while reason := _exceeded(self._system, session.waiting, session.queued_bytes):
            self._give_way(session, reason)
        while self._state.queued_bytes > self._user_bytes_max < self._user_bytes(session.user):
            self._give_way(max(self._state.sessions_of(session.user), key=_queued_bytes), "user_queued_bytes_max")
        if self._state.queued_bytes > self._bytes_max:
            self._give_way(max(self._state.sessions.values(), key=_queued_bytes), "queued_bytes_max")
            if self._state.queued_bytes > self._bytes_max:
                self._relieve()

    def _ask_policies(self, session: SessionRow, rows: Sequence[SubscriptionRow]) -> None:
        """Drop what the operator's policies want gone: the system's, and then a subscription's own (SPEC G-23)."""
        for row in rows:
            for name in dict.fromkeys((self._system.policy, row.subscription.queue.policy)):
                if name is not None:
                    for number in self._policies.choose(name, self._shown(session, row)):
                        self._drop(session, number, number, f"policy.{name}", (row.subscription.id,))

    def _shown(self, session: SessionRow, row: SubscriptionRow) -> Queue:
        """Return what a policy is shown of a subscription's queue."""
        identity, queue = row.subscription.id, self._state.queue[session.key]
        over = _own_exceeded(row) or _exceeded(self._system, session.waiting, session.queued_bytes)
        oldest = _first_of(queue.entries_from(self._oldest_of(session, row)), identity) if row.waiting else []
        newest = _first_of(queue.newest_first(), identity)[::-1]
        return Queue(identity, self._state.wall_us, row.waiting, row.waiting_bytes, over, oldest, newest)

    def _relieve(self) -> None:
        """Drop from the longest queues of all, which are looked for once, however much has to go."""
        sessions = list(self._state.sessions.values())
        longest = [(-session.queued_bytes, place) for place, session in enumerate(sessions)]
        heapify(longest)
        while self._state.queued_bytes > self._bytes_max:
            place = longest[0][1]
            self._give_way(sessions[place], "queued_bytes_max")
            heapreplace(longest, (-sessions[place].queued_bytes, place))

    def _user_bytes(self, user: str) -> int:
        return sum(map(_queued_bytes, self._state.sessions_of(user)))

    def _give_way(self, session: SessionRow, reason: str) -> None:
        """Drop a notification of the session: the oldest or the newest."""
        newest = self._system.when_full == "drop_newest"
        number = self._newest(session) if newest else self._first(session)
        self._drop(session, number, number, reason)

    def _give_way_each(self, session: SessionRow, rows: Sequence[SubscriptionRow]) -> None:
        """Drop for each of these subscriptions, which exceed their own bounds, its oldest or its newest match."""
        drops: _Drops = {}
        for row in rows:
            newest = (row.subscription.queue.when_full or self._system.when_full) == "drop_newest"
            number = self._newest_of(session, row) if newest else self._oldest_of(session, row)
            drops.setdefault((number, number, f"{_OWN}{_own_exceeded(row)}"), []).append(row.subscription.id)
        self._drop_each(session, drops)

    def _first(self, session: SessionRow) -> int:
        head = self._state.entry(session, session.first)
        return head.last + 1 if isinstance(head, Hole) else session.first

    def _newest(self, session: SessionRow) -> int:
        tail = self._state.entry(session, session.next - 1)
        return tail.number - 1 if isinstance(tail, Hole) else session.next - 1

    def _newest_of(self, session: SessionRow, row: SubscriptionRow) -> int:
        """Return the highest number that waits for a subscription, ``session.next`` if there is none.

        It is the last one but where a crash came between an event and its drop: then there is one more to give up.
        """
        identity = row.subscription.id
        for entry in self._state.queue[session.key].newest_first():
            if _is_for(entry, identity):
                return entry.number
        return session.next

    def _oldest_of(self, session: SessionRow, row: SubscriptionRow) -> int:
        """Return the lowest number that waits for a subscription, ``session.next`` if there is none."""
        identity = row.subscription.id
        number = max(session.first, self._oldest.get(identity, 0))
        if row.waiting:
            for entry in self._state.queue[session.key].entries_from(number):
                if _is_for(entry, identity):
                    self._oldest[identity] = entry.number
                    return entry.number
        return session.next

    def discard(self, session: SessionRow, device: str, reason: str = "discarded") -> None:
        """Drop what waits for ``device`` and nobody else: all if it is the only member, else what is bound to it."""
        last = session.next - 1
        if session.devices == [device]:
            if session.waiting:
                self._drop(session, session.first, last, reason)
            return
        queued = [entry for entry in self._state.queue[session.key] if isinstance(entry, Queued)]
        bound = dict.fromkeys(s for entry in queued for s, bound_to in entry.bound if bound_to == device)
        if bound:
            self._drop(session, session.first, last, reason, tuple(bound))

    # By age -----------------------------------------------------------------------------------------------------

    def too_old(self, entry: Queued) -> bool:
        """Return whether a notification, or a match of it, has waited for too long (SPEC G-17)."""
        age_us = self._state.wall_us - entry.event.at_us
        if _over_age(self._system, age_us):
            return True
        rows = map(self._state.known, entry.subscriptions)
        return any(_over_age(row.subscription.queue, age_us) for row in rows if row)

    def sweep(self) -> None:
        """Drop what has waited for too long anywhere."""
        self._oldest = {identity: number for identity, number in self._oldest.items() if self._state.known(identity)}
        for session in self._state.sessions.values():
            if session.waiting:
                self.expire(session)

    def expire(self, session: SessionRow) -> None:
        """Drop what has waited for too long in a session."""
        drops: _Drops = {}
        for identity in (*session.subscriptions, *session.ended):
            row = self._state.known(identity)
            assert row is not None
            age_max_s = row.subscription.queue.age_max_s
            if age_max_s is not None and (self._system.age_max_s is None or age_max_s < self._system.age_max_s):
                first = self._oldest_of(session, row)
                if last := self._last_over_age(session, first, row.subscription.queue, identity):
                    drops.setdefault((first, last, f"{_OWN}queue.age_max_s"), []).append(identity)
        self._drop_each(session, drops)
        first = self._first(session)
        if last := self._last_over_age(session, first, self._system):
            self._drop(session, first, last, "queue.age_max_s")

    def _last_over_age(
        self, session: SessionRow, first: int, policy: QueuePolicy, identity: str | None = None
    ) -> int | None:
        """Return the highest number that waits for too long, from ``first`` on: of all, or of one subscription."""
        last = None
        for entry in self._state.queue[session.key].entries_from(first) if first < session.next else ():
            if isinstance(entry, Queued) and (identity is None or identity in entry.subscriptions):
                if not _over_age(policy, self._state.wall_us - entry.event.at_us):
                    break
                last = entry.number
        return last

    def _drop_each(self, session: SessionRow, drops: _Drops) -> None:
        """Make one record of all that is dropped of the same numbers for the same reason."""
        for (first, last, reason), subscriptions in drops.items():
            self._drop(session, first, last, reason, tuple(subscriptions))

    def _drop(
        self, session: SessionRow, first: int, last: int, reason: str, subscriptions: tuple[str, ...] = ()
    ) -> None:
        dropped = records.Dropped(
            at_us=self._state.wall_us,
            user=session.user,
            session=session.name,
            first=first,
            last=last,
            reason=reason,
            subscriptions=subscriptions,
        )
        # Whoever was told of a gap must not be counted as served after a crash.
        self._journal.write(dropped, urgent=True)


def _exceeded(policy: QueuePolicy, waiting: int, waiting_bytes: int) -> str | None:
    if policy.notifications_max is not None and waiting > policy.notifications_max:
        return "queue.notifications_max"
    if policy.bytes_max is not None and waiting_bytes > policy.bytes_max:
        return "queue.bytes_max"
    return None


def _own_exceeded(row: SubscriptionRow) -> str | None:
    return _exceeded(row.subscription.queue, row.waiting, row.waiting_bytes)


def _first_of(entries: Iterable[Entry], subscription: str) -> list[Waiting]:
    """Return the first notifications for a subscription, looking at a bounded number of entries."""
    found = [
        Waiting(entry.number, entry.event.at_us, entry.event.data)
        for entry in islice(entries, LOOKED_AT_MAX)
        if isinstance(entry, Queued) and _is_for(entry, subscription)
    ]
    return found[:SHOWN_MAX]


def _over_age(policy: QueuePolicy, age_us: int) -> bool:
    return policy.age_max_s is not None and age_us > policy.age_max_s * 1e6


def _is_for(entry: Entry, subscription: str) -> bool:
    return isinstance(entry, Queued) and subscription in entry.subscriptions


def _queued_bytes(session: SessionRow) -> int:
    return session.queued_bytes
