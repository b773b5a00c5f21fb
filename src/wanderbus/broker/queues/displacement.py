"""Displacement: what leaves full queues for the notifications of an event, chosen before these are added (SPEC U-02).

A chosen notification is a number in the record of the event, and leaves in the operation that adds the new one. What
follows from more than the queues of the same subscriptions, from a policy of the operator, or from a notification that
is not added, is left to :class:`wanderbus.broker.queues.queue_limits.QueueLimits`, which continues behind the record
with the same result.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf
from typing import Final, TypeAlias

from wanderbus import records
from wanderbus.broker.queues.longest_sessions import LongestSessions
from wanderbus.broker.queues.queue import SubscriptionQueue
from wanderbus.broker.queues.queue_bounds import OWN, UNBOUNDED, exceeded, is_unbounded, length_for, queued_bytes
from wanderbus.broker.queues.queue_items import Queued
from wanderbus.broker.servers.server_users import ServerUsers
from wanderbus.broker.state.rows import SessionRow, SubscriptionRow
from wanderbus.broker.state.state import BrokerState
from wanderbus.parameters.broker import BrokerConfig

_Case: TypeAlias = tuple[SessionRow, records.Notified, Sequence[SubscriptionRow]]
"""A notification that will be added, with its session and subscriptions."""

_Choice: TypeAlias = tuple[str, int, int]
"""Bound, number of the notification that leaves, and the bytes of its event."""

_NOTHING: Final[_Choice] = ("", 0, 0)

_Delivery: TypeAlias = tuple[Sequence[_Case], int, dict[int, _Choice]]
"""Notifications of one event, its bytes, and what leaves for the notifications so far, by their place."""


class Displacement:
    """Chooser for the notifications of one event; those for the ``servers`` of the domain displace nothing."""

    def __init__(
        self, state: BrokerState, config: BrokerConfig, servers: ServerUsers, longest: LongestSessions
    ) -> None:
        self._state = state
        self._system = config.queue
        self._user_bytes_max = config.user_queued_bytes_max
        self._bytes_max = config.queued_bytes_max
        self._notifications_most = inf if self._system.notifications_max is None else self._system.notifications_max
        self._bytes_most = inf if self._system.bytes_max is None else self._system.bytes_max
        self._servers = servers
        self._longest = longest

    def choose(
        self,
        notified: Sequence[tuple[SessionRow, records.Notified]],
        matched: Collection[Sequence[SubscriptionRow]],
        size: int,
    ) -> dict[str, tuple[int, ...]]:
        """Return ``displaced`` of :class:`wanderbus.records.Delivery` for these notifications of ``size`` bytes."""
        has_strays = any(each.bound and session.strays(each.bound) for session, each in notified)
        if has_strays or self._system.policy is not None:
            return {}
        choices: dict[int, _Choice] = {}
        delivery = [(*each, rows) for each, rows in zip(notified, matched, strict=True)], size, choices
        is_settled = self._of_sessions(delivery)
        after = self._state.queued_bytes + len(notified) * size
        if is_settled and after > self._user_bytes_max:
            is_settled = self._of_users(delivery)
        if is_settled and after > self._bytes_max:
            self._of_broker(delivery)
        found: dict[str, list[int]] = {}
        for place, (reason, number, _) in choices.items():
            if (numbers := found.get(reason)) is None:
                numbers = found[reason] = [0] * len(notified)
            numbers[place] = number
        return {reason: tuple(numbers) for reason, numbers in found.items()}

    def _of_sessions(self, delivery: _Delivery) -> bool:
        """Choose by the bounds of subscriptions and sessions; return whether these hold then."""
        cases, size, choices = delivery
        is_settled = True
        most, bytes_most, servers = self._notifications_most, self._bytes_most - size, self._servers.users
        for place, case in enumerate(cases):
            session, _, rows = case
            is_bounded = rows[0].subscription.queue != UNBOUNDED or (len(rows) > 1 and not all(map(is_unbounded, rows)))
            if (session.waiting < most and session.queued_bytes <= bytes_most and not is_bounded) or (
                session.user in servers
            ):
                continue
            choice = self._of_session(case, size)
            if choice is None:
                is_settled = False
            elif choice[1]:
                choices[place] = choice
                # With fewer bytes than before, what was within its bounds still is.
                is_settled = is_settled and choice[2] >= size and session.waiting <= most
        return is_settled

    def _of_session(self, case: _Case, size: int) -> _Choice | None:
        """Return the choice by the bounds of subscriptions and session; None if it is left open."""
        session, notification, rows = case
        if (own := self._queues(session, rows)) is None:
            return None
        bounds = {self._own_bound(row, queue, size) for row, queue in zip(rows, own, strict=True)}
        reason, is_newest = bounds.pop()
        if bounds:
            return None
        if reason:
            return _leaving(reason, notification, None if is_newest else _first(own), size, is_newest=is_newest)
        if session.waiting >= self._notifications_most:
            return self._shortened("queue.notifications_max", case, own, size)
        if session.queued_bytes + size > self._bytes_most:
            return self._shortened("queue.bytes_max", case, own, size)
        return _NOTHING

    def _queues(self, session: SessionRow, rows: Sequence[SubscriptionRow]) -> list[SubscriptionQueue] | None:
        """Return the queues of these subscriptions; None if one has none, or has a policy of the operator.

        One that is bound to a device outside the session has none, and its notifications are not added.
        """
        if (queue := self._state.queue.get(session.key)) is None:
            return None
        found = []
        for row in rows:
            subscription = row.subscription
            if (own := queue.queues.get(subscription.id)) is None or subscription.queue.policy is not None:
                return None
            found.append(own)
        return found

    def _own_bound(self, row: SubscriptionRow, own: SubscriptionQueue, size: int) -> tuple[str, bool]:
        """Return the subscription's bound that is exceeded, and whether the newest notification leaves for it."""
        policy = row.subscription.queue
        if policy == UNBOUNDED or not (name := exceeded(policy, own.waiting + 1, own.queued_bytes + size)):
            return "", False
        return f"{OWN}{name}", (policy.when_full or self._system.when_full) == "drop_newest"

    def _shortened(self, reason: str, case: _Case, own: Sequence[SubscriptionQueue], size: int) -> _Choice | None:
        """Return the choice if these queues will be the longest of the session; None if others may give way too."""
        session, notification, _ = case
        length, more = length_for(reason), 1 if reason == "queue.notifications_max" else size
        longest = max(map(length, own)) + more
        if len(own) > 1 and 2 * (min(map(length, own)) + more) < longest:
            return None
        is_newest = self._system.when_full == "drop_newest"
        first = None if is_newest else _first(own)
        queues = self._state.queue.ensure(session.key).queues
        if len(queues) > len(own) and (
            any(length(each) >= longest for each in queues.values())
            or (first is not None and len(first.subscriptions) > len(own))
        ):
            return None
        return _leaving(reason, notification, first, size, is_newest=is_newest)

    def _of_users(self, delivery: _Delivery) -> bool:
        """Choose by the bound of each user; return whether it holds then."""
        cases, size, _ = delivery
        places: dict[str, dict[str, int]] = {}
        for place, (session, *_) in enumerate(cases):
            if session.user not in self._servers.users:
                places.setdefault(session.user, {})[session.key] = place
        is_settled = True
        for user, of_user in places.items():
            sessions = self._state.sessions_of(user)
            over = sum(map(queued_bytes, sessions)) + len(of_user) * size - self._user_bytes_max
            if over > 0:
                own = [of_user[each.key] for each in sessions if each.key in of_user]
                longest = max((each.queued_bytes for each in sessions if each.key not in of_user), default=0)
                over = self._of_pool("user_queued_bytes_max", delivery, own, over, longest)
                is_settled = is_settled and over <= 0
        return is_settled

    def _of_broker(self, delivery: _Delivery) -> None:
        """Choose by the bound of the whole broker."""
        cases, size, _ = delivery
        users_bytes = self._state.queued_bytes - self._servers.queued_bytes
        places = [place for place, (session, *_) in enumerate(cases) if session.user not in self._servers.users]
        over = users_bytes + len(places) * size - self._bytes_max
        if users_bytes and over > 0:
            self._of_pool("queued_bytes_max", delivery, places, over, self._longest.first().queued_bytes)

    def _of_pool(self, reason: str, delivery: _Delivery, places: Sequence[int], over: int, longest: int) -> int:
        """Choose for the longest of the sessions at ``places`` until the bound ``reason`` of all their bytes holds.

        The bytes with all notifications exceed it by ``over``. Stop if another session, of ``longest`` bytes, or one
        that has lost a notification is longer. Return by how much the bytes exceed the bound then.
        """
        cases, size, choices = delivery
        for place in places:
            if place in choices:
                over -= choices[place][2]
                longest = max(longest, cases[place][0].queued_bytes + size - choices[place][2])
        left = [place for place in places if place not in choices]
        for place in sorted(left, key=lambda place: -cases[place][0].queued_bytes):
            session, _, rows = case = cases[place]
            length = session.queued_bytes + size
            if over <= 0 or length < longest or (own := self._queues(session, rows)) is None:
                break
            if (choice := self._shortened(reason, case, own, size)) is None:
                break
            choices[place] = choice
            over -= choice[2]
            longest = max(longest, length - choice[2])
        return over


def _first(queues: Sequence[SubscriptionQueue]) -> Queued | None:
    """Return the notification that is first in each of these queues, with a gap before it."""
    first = queues[0].first_behind_gap()
    return first if len(queues) == 1 or all(each.first_behind_gap() is first for each in queues) else None


def _leaving(
    reason: str, notification: records.Notified, first: Queued | None, size: int, *, is_newest: bool
) -> _Choice | None:
    if is_newest:
        return reason, notification.number, size
    return None if first is None else (reason, first.number, len(first.event.data))
