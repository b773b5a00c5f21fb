"""Bounds of what waits, by number, bytes and age: of a subscription, a session, a user, the broker (SPEC G-15 to G-18).

What gives way is dropped under the name of its bound; of some subjects a publish is refused instead (SPEC U-02).
Where subscriptions share a bound, the longest queue gives way, so that one that nobody reads pushes out nothing of
those that are read (SPEC G-25).
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heapreplace
from itertools import islice
from typing import Final, TypeAlias

from wanderbus import records
from wanderbus.broker.interest.filter_work import BOUNDS, Undecided
from wanderbus.broker.queues.queue import SessionQueue, SubscriptionQueue
from wanderbus.broker.queues.queue_items import Item, Queued
from wanderbus.broker.queues.queue_policies import SHOWN_MAX, Policies, Queue, Waiting
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.rows import SessionRow, SubscriptionRow, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.parameters.broker import BrokerConfig, setting_of
from wanderbus.subscription import QueuePolicy

_OWN: Final = "subscription."
"""Before the name of a bound that is a subscription's own."""


_OURS: Final = frozenset(
    {
        "queue.notifications_max",
        "queue.bytes_max",
        "queue.age_max_s",
        "user_queued_bytes_max",
        "queued_bytes_max",
        *BOUNDS,
    }
)
"""Bounds of the operator, by which a user is limited; a subscription's own are its user's wish."""

_UNBOUNDED: Final = QueuePolicy()

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
        """Drop what exceeds a bound now that ``notified`` is in the queues of ``session``."""
        queue = self._state.queue.get(session.key)
        if queue is None:
            return
        rows = self._state.subscriptions
        bounded = [row for each in notified.subscriptions if (row := rows[each]).subscription.queue != _UNBOUNDED]
        if self._system.policy is not None:
            bounded = [rows[each] for each in notified.subscriptions]
        self._ask_policies(session, queue, bounded)
        while bounded := [row for row in bounded if _own_exceeded(row, queue)]:
            self._give_way_each(session, queue, bounded)
        while reason := _exceeded(self._system, session.waiting, session.queued_bytes):
            self._give_way(session, reason)
        while self._state.queued_bytes > self._user_bytes_max < self._user_bytes(session.user):
            self._give_way(max(self._state.sessions_of(session.user), key=_queued_bytes), "user_queued_bytes_max")
        if self._state.queued_bytes > self._bytes_max:
            self._give_way(max(self._state.sessions.values(), key=_queued_bytes), "queued_bytes_max")
            if self._state.queued_bytes > self._bytes_max:
                self._relieve()

    def leave_undecided(
        self, session: SessionRow, notified: records.Notified, undecided: Mapping[str, Undecided]
    ) -> None:
        """Make a gap of ``notified`` for the subscriptions of which nobody knows whether the event matches them."""
        drops: _Drops = {}
        for each in notified.subscriptions:
            if found := undecided.get(each):
                drops.setdefault((notified.number, notified.number, found.bound), []).append(each)
        self._drop_each(session, drops)

    def _ask_policies(self, session: SessionRow, queue: SessionQueue, rows: Iterable[SubscriptionRow]) -> None:
        """Drop what the operator's policies want gone: the system's, and then a subscription's own (SPEC G-23)."""
        for row in rows:
            for name in dict.fromkeys((self._system.policy, row.subscription.queue.policy)):
                its_own = queue.queues.get(row.subscription.id)
                if name is not None and its_own is not None:
                    for number in self._policies.choose(name, self._shown(session, queue, row, its_own)):
                        self._drop(session, number, number, f"policy.{name}", (row.subscription.id,))

    def _shown(
        self, session: SessionRow, queue: SessionQueue, row: SubscriptionRow, its_own: SubscriptionQueue
    ) -> Queue:
        """Return what a policy is shown of a subscription's queue."""
        over = _own_exceeded(row, queue) or _exceeded(self._system, session.waiting, session.queued_bytes)
        oldest, newest = _first_of(its_own), _first_of(its_own.newest_first())[::-1]
        counts = its_own.waiting, its_own.queued_bytes
        return Queue(row.subscription.id, self._state.wall_us, *counts, over, oldest, newest)

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
        """Drop the oldest or the newest notification of the longest queue of a session.

        Others that wait for the same notification lose it too if they are at least half as long: it is of use to
        drop only once nobody waits for it any more.
        """
        queue = self._state.queue.get(session.key)
        assert queue is not None, session.key
        measure = _waiting if reason == "queue.notifications_max" else _bytes_waiting
        longest = max(queue.queues.values(), key=measure)
        entry = longest.newest() if self._system.when_full == "drop_newest" else longest.oldest()
        assert entry is not None, session.key
        half = measure(longest) / 2
        give_way = tuple(
            each
            for each in entry.subscriptions
            if (its := queue.queues.get(each)) is not None and measure(its) >= half and its.holds(entry.number)
        )
        self._drop(session, entry.number, entry.number, reason, give_way)

    def _give_way_each(self, session: SessionRow, queue: SessionQueue, rows: Sequence[SubscriptionRow]) -> None:
        """Drop for each of these subscriptions, which exceed their own bounds, its oldest or its newest match."""
        drops: _Drops = {}
        for row in rows:
            its_own = queue.queues[row.subscription.id]
            newest = (row.subscription.queue.when_full or self._system.when_full) == "drop_newest"
            entry = its_own.newest() if newest else its_own.oldest()
            assert entry is not None, row
            reason = f"{_OWN}{_own_exceeded(row, queue)}"
            drops.setdefault((entry.number, entry.number, reason), []).append(row.subscription.id)
        self._drop_each(session, drops)

    def discard(self, session: SessionRow, device: str, reason: str = "discarded") -> None:
        """Drop what waits for ``device`` and nobody else: all if it is the only member, else what is bound to it."""
        if (queue := self._state.queue.get(session.key)) is None:
            return
        is_alone = session.devices == [device]
        rows = [
            row for each in queue.queues if (row := self._state.known(each)) is not None and queue.queues[each].waiting
        ]
        given_up = [row.subscription.id for row in rows if is_alone or row.subscription.device == device]
        if given_up:
            self._drop(session, 1, session.next - 1, reason, tuple(given_up))

    def abandon(self, session: SessionRow, row: SubscriptionRow, device: str) -> None:
        """Drop what waits of one subscription for ``device`` and nobody else, which has ended it and left."""
        identity = row.subscription.id
        queue = self._state.queue.get(session.key)
        if queue is None or (its_own := queue.queues.get(identity)) is None or not its_own.waiting:
            return
        if session.devices == [device] or row.subscription.device == device:
            self._drop(session, 1, session.next - 1, "unsubscribed", (identity,))

    # By age -----------------------------------------------------------------------------------------------------

    def too_old(self, entry: Queued, subscription: str) -> bool:
        """Return whether a notification has waited for too long for a subscription (SPEC G-17)."""
        age_max_s, _ = self._age_max(subscription)
        return age_max_s is not None and self._state.wall_us - entry.event.at_us > age_max_s * 1e6

    def sweep(self) -> None:
        """Drop what has waited for too long anywhere."""
        for key, _ in self._state.queue.waiting():
            self.expire(self._state.sessions[key])

    def expire(self, session: SessionRow) -> None:
        """Drop what has waited for too long in a session."""
        drops: _Drops = {}
        if (queue := self._state.queue.get(session.key)) is None:
            return
        for identity, its_own in queue.queues.items():
            age_max_s, reason = self._age_max(identity)
            if age_max_s is None or (oldest := its_own.oldest()) is None:
                continue
            if last := self._last_over_age(its_own, age_max_s):
                drops.setdefault((oldest.number, last, reason), []).append(identity)
        self._drop_each(session, drops)

    def _age_max(self, subscription: str) -> tuple[float | None, str]:
        """Return the age that holds for a subscription, the stricter of its own and the system's, and its name."""
        row = self._state.known(subscription)
        own_s, system_s = None if row is None else row.subscription.queue.age_max_s, self._system.age_max_s
        if own_s is not None and (system_s is None or own_s < system_s):
            return own_s, f"{_OWN}queue.age_max_s"
        return system_s, "queue.age_max_s"

    def _last_over_age(self, queue: SubscriptionQueue, age_max_s: float) -> int | None:
        """Return the highest number that has waited for too long."""
        last = None
        for item in queue:
            if isinstance(item, Queued):
                if self._state.wall_us - item.event.at_us <= age_max_s * 1e6:
                    break
                last = item.number
        return last

    def _drop_each(self, session: SessionRow, drops: _Drops) -> None:
        """Make one record of all that is dropped of the same numbers for the same reason."""
        for (first, last, reason), subscriptions in drops.items():
            self._drop(session, first, last, reason, tuple(subscriptions))

    def _drop(self, session: SessionRow, first: int, last: int, reason: str, subscriptions: tuple[str, ...]) -> None:
        dropped = records.Dropped(
            at_us=self._state.wall_us,
            user=session.user,
            session=session.name,
            first=first,
            last=last,
            reason=reason,
            subscriptions=subscriptions,
        )
        before = session.dropped.get(reason, 0)
        # Whoever heard of a gap must not be counted as served after a crash.
        self._journal.write(dropped, urgent=True)
        if reason in _OURS:
            count = session.dropped.get(reason, 0) - before
            self._journal.tally.note(setting_of(reason), session.user, f"dropped from session {session.name}", count)


def _exceeded(policy: QueuePolicy, waiting: int, waiting_bytes: int) -> str | None:
    if policy.notifications_max is not None and waiting > policy.notifications_max:
        return "queue.notifications_max"
    if policy.bytes_max is not None and waiting_bytes > policy.bytes_max:
        return "queue.bytes_max"
    return None


def _own_exceeded(row: SubscriptionRow, queue: SessionQueue) -> str | None:
    its_own = queue.queues.get(row.subscription.id)
    if its_own is None:
        return None
    return _exceeded(row.subscription.queue, its_own.waiting, its_own.queued_bytes)


def _first_of(items: Iterable[Item]) -> list[Waiting]:
    """Return the first notifications of a queue, as many as a policy is shown."""
    queued = (item for item in items if isinstance(item, Queued))
    return [Waiting(item.number, item.event.at_us, item.event.data) for item in islice(queued, SHOWN_MAX)]


def _waiting(queue: SubscriptionQueue) -> int:
    return queue.waiting


def _bytes_waiting(queue: SubscriptionQueue) -> int:
    return queue.queued_bytes


def _queued_bytes(session: SessionRow) -> int:
    return session.queued_bytes
