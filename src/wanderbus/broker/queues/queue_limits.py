"""Bounds on queues by number, bytes and age: of a subscription, a session, a user, the broker (SPEC G-15 to G-18).

A notification beyond a bound is dropped, with the bound's name as the reason; for configured subjects the publish is
refused instead (SPEC U-02). When subscriptions share a bound, the longest queue loses notifications, so that an unread
subscription does not displace notifications of those that are read (SPEC G-25).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import compress, groupby, islice
from math import inf
from typing import Final, TypeAlias

import msgspec

from wanderbus import records
from wanderbus.broker.interest.filter_accounts import Undecided
from wanderbus.broker.interest.filter_work import BOUNDS
from wanderbus.broker.patterns.pattern_work import BOUNDS as PATTERN_BOUNDS
from wanderbus.broker.queues.displacement import Displacement
from wanderbus.broker.queues.longest_sessions import LongestSessions
from wanderbus.broker.queues.policy_arguments import SHOWN_MAX, Queue
from wanderbus.broker.queues.queue import SessionQueue, SubscriptionQueue
from wanderbus.broker.queues.queue_bounds import OWN, UNBOUNDED, exceeded, length_for, queued_bytes
from wanderbus.broker.queues.queue_items import Item, Queued
from wanderbus.broker.queues.queue_policies import QueuePolicies
from wanderbus.broker.queues.waiting_notification import Waiting
from wanderbus.broker.servers.server_users import ServerUsers
from wanderbus.broker.state.drops import alone, drop
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.rows import SessionRow, SubscriptionRow, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.event import EventId
from wanderbus.parameters.broker import BrokerConfig, setting_of
from wanderbus.parameters.subject_globs import any_of

_OURS: Final = frozenset(
    {
        "queue.notifications_max",
        "queue.bytes_max",
        "queue.age_max_s",
        "user_queued_bytes_max",
        "queued_bytes_max",
        *BOUNDS,
        *PATTERN_BOUNDS,
    }
)
"""Bounds that the operator sets, which are reported; a subscription's own bounds are the user's choice."""

_NEAR: Final = 0.9
"""Part of the broker's bound above which its longest queues stay known."""

_Drops: TypeAlias = dict[tuple[int, int, str], list[str]]
"""Subscriptions by the range of numbers to drop, first and last, and the reason."""

Added: TypeAlias = tuple[SessionRow, records.Notified, Mapping[str, Undecided]]
"""A notification that was added to the queues of a session, and the subscriptions whose filters were not evaluated."""


class QueueLimits:
    """Keeps every queue of a user within its bounds; those of the ``servers`` of the domain have none.

    A drop makes no further item ready to be sent, so no link has to be flushed after it.
    """

    def __init__(
        self,
        state: BrokerState,
        journal: Journal,
        config: BrokerConfig,
        servers: ServerUsers,
        policies: QueuePolicies | None = None,
    ) -> None:
        self._servers = servers
        self._policies = policies or QueuePolicies()
        self._state = state
        self._journal = journal
        self._system = config.queue
        self._user_bytes_max = config.user_queued_bytes_max
        self._bytes_max = config.queued_bytes_max
        self._notifications_most = inf if self._system.notifications_max is None else self._system.notifications_max
        self._bytes_most = inf if self._system.bytes_max is None else self._system.bytes_max
        self._shared_bytes_max = min(self._user_bytes_max, self._bytes_max)
        self._refused = any_of(config.refuse_when_full)
        self._longest = LongestSessions(self._of_users, state.sessions.get)
        self.displacement = Displacement(state, config, servers, self._longest)
        """Chooser of what an event displaces, before :meth:`bound`."""
        self._displaced: list[records.Drop] | None = None
        """Drops so far that belong into the record whose notifications are bounded; None while there is none."""

    # By number and bytes ----------------------------------------------------------------------------------------

    def refuses(self, subject: str, event: msgspec.Raw, notified: Sequence[records.Notified]) -> str | None:
        """Return the bound for which an event is refused, None if it is accepted.

        Only subjects of ``refuse_when_full`` are refused. A subscription's own bounds refuse nothing, because one
        subscriber could otherwise withhold the event from all others.
        """
        if self._refused is None or not self._refused.match(subject):
            return None
        size = len(bytes(event))
        notified = [each for each in notified if each.user not in self._servers.users]
        for each in notified:
            session = self._state.sessions[session_key(each.user, each.session)]
            if self._session_full(session, size):
                self.expire(session)
            if reason := self._session_full(session, size):
                return reason
        users = Counter(each.user for each in notified)
        if any(self._user_bytes(user) + size * count > self._user_bytes_max for user, count in users.items()):
            return "user_queued_bytes_max"
        if self.users_bytes + size * len(notified) > self._bytes_max:
            return "queued_bytes_max"
        return None

    def refuses_copy(self, user: str, waiting: int, size: int) -> str | None:
        """Return the bound for which a session of a copy is refused: it has ``waiting`` notifications of ``size``."""
        if reason := exceeded(self._system, waiting, size):
            return reason
        if self._user_bytes(user) + size > self._user_bytes_max:
            return "user_queued_bytes_max"
        return "queued_bytes_max" if self.users_bytes + size > self._bytes_max else None

    @property
    def users_bytes(self) -> int:
        """Return the bytes of the events that wait for all users, without those for servers."""
        return self._state.queued_bytes - self._servers.queued_bytes

    def _session_full(self, session: SessionRow, size: int) -> str | None:
        """Return the bound of the session that one more notification would exceed."""
        return exceeded(self._system, session.waiting + 1, session.queued_bytes + size)

    def bound(self, added: Sequence[Added], delivery: records.Delivery | None = None) -> tuple[records.Drop, ...]:
        """Drop what the notifications of one record displace besides ``delivery.displaced``, and return it."""
        if self._longest.is_kept:
            is_near = self._state.queued_bytes > self._bytes_max * _NEAR
            servers = self._servers.users
            self._longest.grew([row for row, *_ in added if row.user not in servers], is_near=is_near)
        drops: list[records.Drop] = []
        self._displaced = drops
        # What becomes a gap counts for no bound, so it is left first.
        for session, notified, undecided in added:
            if undecided:
                self._leave_undecided(session, notified, undecided)
        left = added if delivery is None or not delivery.displaced else self._still_to_bound(added, delivery)
        for session, notified, _ in left:
            self._enforce(session, notified)
        if self._state.queued_bytes > self._shared_bytes_max:
            self._enforce_shared(each[0].user for each in added)
        self._displaced = None
        return tuple(drops)

    def keep(self, session: SessionRow) -> None:
        """Drop what exceeds a bound after a session, or a part of its queue, has come from another server."""
        if self._longest.is_kept:
            self._longest.grew([session], is_near=self._state.queued_bytes > self._bytes_max * _NEAR)
        while reason := exceeded(self._system, session.waiting, session.queued_bytes):
            self._give_way(session, reason)
        self._enforce_shared((session.user,))

    def _still_to_bound(self, added: Sequence[Added], delivery: records.Delivery) -> Sequence[Added]:
        """Report what ``delivery`` displaced; return the notifications that may exceed a bound nevertheless."""
        note, most, bytes_most = self._journal.tally.note, self._notifications_most, self._bytes_most
        is_left = [True] * len(added)
        for reason, numbers in delivery.displaced.items():
            if reason in _OURS:
                limit = setting_of(reason)
                for place, number in enumerate(numbers):
                    if number:
                        session = added[place][0]
                        note(limit, session.user, _dropped_from(session.name))
                        is_left[place] = session.waiting > most or session.queued_bytes > bytes_most
        return list(compress(added, is_left))

    def _enforce(self, session: SessionRow, notified: records.Notified) -> None:
        """Drop notifications beyond bounds of ``session`` or its subscriptions after ``notified`` was added there."""
        queue = self._state.queue.get(session.key)
        if queue is None or session.user in self._servers.users:
            return
        state, system = self._state, self._system
        rows, ended = state.subscriptions, state.tombstones
        bounded: list[SubscriptionRow] = []
        for each in notified.subscriptions:
            row = rows.get(each) or ended[each]
            if system.policy is not None or row.subscription.queue != UNBOUNDED:
                bounded.append(row)
        if bounded:
            self._ask_policies(session, queue, bounded)
            while bounded := [row for row in bounded if _own_exceeded(row, queue)]:
                self._give_way_each(session, queue, bounded)
        while reason := exceeded(system, session.waiting, session.queued_bytes):
            self._give_way(session, reason)

    def _enforce_shared(self, users: Iterable[str]) -> None:
        """Drop notifications beyond the bounds of each of these ``users``, and then of the broker."""
        for user in dict.fromkeys(users):
            if user not in self._servers.users:
                while self._user_bytes(user) > self._user_bytes_max:
                    self._give_way(max(self._state.sessions_of(user), key=queued_bytes), "user_queued_bytes_max")
        while self.users_bytes > self._bytes_max:
            self._give_way(self._longest.first(), "queued_bytes_max")

    def _leave_undecided(
        self, session: SessionRow, notified: records.Notified, undecided: Mapping[str, Undecided]
    ) -> None:
        """Replace ``notified`` by a gap for the undecided subscriptions."""
        drops: _Drops = {}
        for each in notified.subscriptions:
            if found := undecided.get(each):
                drops.setdefault((notified.number, notified.number, found.bound), []).append(each)
        self._drop_each(session, drops)

    def _ask_policies(self, session: SessionRow, queue: SessionQueue, rows: Iterable[SubscriptionRow]) -> None:
        """Drop what the operator's policies choose: the system's policy, then a subscription's own (SPEC G-23)."""
        for row in rows:
            for name in dict.fromkeys((self._system.policy, row.subscription.queue.policy)):
                own = queue.queues.get(row.subscription.id)
                if name is not None and own is not None:
                    for number in self._policies.choose(name, self._shown(session, queue, row, own)):
                        self._drop(session, number, number, f"policy.{name}", (row.subscription.id,))

    def _shown(self, session: SessionRow, queue: SessionQueue, row: SubscriptionRow, own: SubscriptionQueue) -> Queue:
        """Return the part of a subscription's queue that a policy sees."""
        over = _own_exceeded(row, queue) or exceeded(self._system, session.waiting, session.queued_bytes)
        oldest, newest = _first_of(own), _first_of(own.newest_first())[::-1]
        counts = own.waiting, own.queued_bytes
        return Queue(row.subscription.id, self._state.wall_us, *counts, over, oldest, newest)

    def _of_users(self) -> list[SessionRow]:
        return [each for each in self._state.sessions.values() if each.user not in self._servers.users]

    def _user_bytes(self, user: str) -> int:
        return sum(map(queued_bytes, self._state.sessions_of(user)))

    def _give_way(self, session: SessionRow, reason: str) -> None:
        """Drop the oldest or the newest notification of the longest queue of a session.

        Other queues with the same notification lose it too if they are at least half as long: memory is freed only
        once no queue holds it.
        """
        queue = self._state.queue.get(session.key)
        assert queue is not None, session.key
        measure = length_for(reason)
        longest = max(queue.queues.values(), key=measure)
        entry = longest.newest() if self._system.when_full == "drop_newest" else longest.oldest()
        assert entry is not None, session.key
        half = measure(longest) / 2
        give_way = tuple(
            each
            for each in entry.subscriptions
            if (own := queue.queues.get(each)) is not None and measure(own) >= half and own.holds(entry.number)
        )
        self._drop(session, entry.number, entry.number, reason, give_way)

    def _give_way_each(self, session: SessionRow, queue: SessionQueue, rows: Sequence[SubscriptionRow]) -> None:
        """Drop the oldest or newest match of each of these subscriptions, which exceed their own bounds."""
        drops: _Drops = {}
        for row in rows:
            own = queue.queues[row.subscription.id]
            newest = (row.subscription.queue.when_full or self._system.when_full) == "drop_newest"
            entry = own.newest() if newest else own.oldest()
            assert entry is not None, row
            reason = f"{OWN}{_own_exceeded(row, queue)}"
            drops.setdefault((entry.number, entry.number, reason), []).append(row.subscription.id)
        self._drop_each(session, drops)

    def discard(self, session: SessionRow, device: str, reason: str = "discarded") -> None:
        """Drop what waits for ``device`` alone: everything if it is the only member, else what is bound to it."""
        if (queue := self._state.queue.get(session.key)) is None:
            return
        is_alone = session.devices == [device]
        rows = [
            row for each in queue.queues if (row := self._state.known(each)) is not None and queue.queues[each].waiting
        ]
        given_up = [row.subscription.id for row in rows if is_alone or row.subscription.device == device]
        if given_up:
            self._drop(session, 1, session.here_through, reason, tuple(given_up))

    def abandon(self, session: SessionRow, row: SubscriptionRow, device: str) -> None:
        """Drop what waits of one subscription for ``device`` alone, after that device has ended it."""
        identity = row.subscription.id
        queue = self._state.queue.get(session.key)
        if queue is None or (own := queue.queues.get(identity)) is None or not own.waiting:
            return
        if session.devices in ([], [device]) or row.subscription.device == device:
            self._drop(session, 1, session.here_through, "unsubscribed", (identity,))

    # By age -----------------------------------------------------------------------------------------------------

    def too_old(self, entry: Queued, subscription: str) -> bool:
        """Return whether a notification has waited for too long for a subscription (SPEC G-17)."""
        age_max_s, _ = self._age_max(subscription)
        return age_max_s is not None and self._state.wall_us - entry.queued_us > age_max_s * 1e6

    def sweep(self) -> None:
        """Drop what has waited for too long in any session."""
        for key, _ in self._state.queue.waiting():
            session = self._state.sessions[key]
            if session.user not in self._servers.users:
                self.expire(session)

    def log_begins(self, first: int) -> None:
        """Drop what waits for servers and is of this log's records below offset ``first``: the log has lost them.

        The log is what bounds the queues of servers. What a matching engine decided waits behind later events, so the
        lost ones need not be the oldest.
        """
        for session in self._servers.sessions:
            if (queue := self._state.queue.get(session.key)) is None:
                continue
            is_lost = {
                item.number: self._is_below(item.event.id, first)
                for own in queue.queues.values()
                for item in own
                if isinstance(item, Queued)
            }
            for lost, numbers in groupby(sorted(is_lost), is_lost.__getitem__):
                if lost:
                    run = list(numbers)
                    self._drop(session, run[0], run[-1], "log_keep", ())

    def _is_below(self, event: EventId, first: int) -> bool:
        """Return whether an event is of this log, and of a record below offset ``first``."""
        return event.origin == self._state.server and event.number < first

    def expire(self, session: SessionRow) -> None:
        """Drop what has waited for too long in a session."""
        drops: _Drops = {}
        if (queue := self._state.queue.get(session.key)) is None:
            return
        for identity, own in queue.queues.items():
            age_max_s, reason = self._age_max(identity)
            if age_max_s is None or (oldest := own.oldest()) is None:
                continue
            if last := self._last_over_age(own, age_max_s):
                drops.setdefault((oldest.number, last, reason), []).append(identity)
        self._drop_each(session, drops)

    def _age_max(self, subscription: str) -> tuple[float | None, str]:
        """Return the stricter age bound of a subscription and the system, and the name of that bound."""
        row = self._state.known(subscription)
        own_s, system_s = None if row is None else row.subscription.queue.age_max_s, self._system.age_max_s
        if own_s is not None and (system_s is None or own_s < system_s):
            return own_s, f"{OWN}queue.age_max_s"
        return system_s, "queue.age_max_s"

    def _last_over_age(self, queue: SubscriptionQueue, age_max_s: float) -> int | None:
        """Return the highest number that has waited for too long."""
        last = None
        for item in queue:
            if isinstance(item, Queued):
                if self._state.wall_us - item.queued_us <= age_max_s * 1e6:
                    break
                last = item.number
        return last

    def _drop_each(self, session: SessionRow, drops: _Drops) -> None:
        """Write one record for all drops of the same numbers for the same reason."""
        for (first, last, reason), subscriptions in drops.items():
            self._drop(session, first, last, reason, tuple(subscriptions))

    def _drop(self, session: SessionRow, first: int, last: int, reason: str, subscriptions: tuple[str, ...]) -> None:
        """Drop notifications, in the record that displaces them or in one of its own."""
        dropped = records.Drop(session.user, session.name, first, last, reason, subscriptions)
        if self._displaced is not None:
            count = drop(self._state, session, first, last, reason, subscriptions)
            self._displaced.append(dropped)
        else:
            before = session.dropped.get(reason, 0)
            # Urgent: a device that has received a gap must not count as served after a crash.
            self._journal.write(alone(self._state.wall_us, dropped), urgent=True)
            count = session.dropped.get(reason, 0) - before
        if reason in _OURS:
            self._journal.tally.note(setting_of(reason), session.user, _dropped_from(session.name), count)


@lru_cache(maxsize=1_024)
def _dropped_from(session: str) -> str:
    return f"dropped from session {session}"


def _own_exceeded(row: SubscriptionRow, queue: SessionQueue) -> str | None:
    own = queue.queues.get(row.subscription.id)
    if own is None:
        return None
    return exceeded(row.subscription.queue, own.waiting, own.queued_bytes)


def _first_of(items: Iterable[Item]) -> list[Waiting]:
    """Return the first notifications of a queue, as many as a policy sees."""
    queued = (item for item in items if isinstance(item, Queued))
    return [Waiting(item.number, item.event.at_us, item.event.data) for item in islice(queued, SHOWN_MAX)]
