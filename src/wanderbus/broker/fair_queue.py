"""Fair queue of the messages of agents: users take turns by their cost (start-time fair queueing).

Work is counted in units: one for each message, answer or notification, and one for each KiB of them. One small batch
of waiting messages is served in the order of arrival. With more than that, the user who has cost least goes first, so
that a user with few messages never waits behind one with many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from heapq import heappop, heappush
from typing import Final

from wanderbus.broker.messages import MessageArrived
from wanderbus.broker.waiting_messages import DueMessage

BYTES_A_UNIT: Final = 1_024

_REMEMBERED_MAX: Final = 4_096
"""Users without waiting messages whose share is remembered; beyond that, users who owe nothing are forgotten."""


class FairQueue:
    """Waiting messages by user, and the cost of each user so far."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[MessageArrived]] = {}
        self._start: dict[str, float] = {}
        """Virtual time at which the next message begins, by user."""
        self._expected: dict[str, float] = {}
        """Recent cost of a message in units, beyond its weight, by user."""
        self.held: set[str] = set()
        """Users whose messages are held back."""
        self._heap: list[tuple[float, int, str]] = []
        self._virtual = 0.0
        self._pushed = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def waiting(self, user: str) -> int:
        """Return how many messages of a user wait."""
        return len(self._waiting.get(user, ()))

    @property
    def are_due(self) -> bool:
        """Return whether a message of a user who is not held back waits."""
        return len(self._waiting) > len(self.held)

    def add(self, user: str, message: MessageArrived) -> None:
        """Append a message to the queue of its user."""
        waiting = self._waiting.get(user)
        if waiting is None:
            waiting = self._waiting[user] = deque()
            self._start[user] = max(self._start.get(user, 0.0), self._virtual)
            self._push(user)
        waiting.append(message)

    def take(self, units: float) -> list[DueMessage]:
        """Remove and return messages in fair order, at least one, that are expected to cost ``units`` in total."""
        taken: list[DueMessage] = []
        while units > 0 and self._heap:
            start, _, user = heappop(self._heap)
            waiting = self._waiting.get(user)
            if waiting is None or user in self.held or start != self._start[user]:
                continue
            self._virtual = start
            message = waiting.popleft()
            cost = weight_of(message.payload) + self._expected.get(user, 0.0)
            taken.append(DueMessage(user, message, cost))
            units -= cost
            self._start[user] = start + cost
            if waiting:
                self._push(user)
            else:
                del self._waiting[user]
        return taken

    def give_back(self, taken: Sequence[DueMessage]) -> None:
        """Put back messages that were taken last and not processed, at their old places."""
        for user, message, cost in reversed(taken):
            self._waiting.setdefault(user, deque()).appendleft(message)
            self._start[user] = self._start.get(user, self._virtual) - cost
            self._virtual = min(self._virtual, self._start[user])
            self._push(user)

    def charge(self, taken: DueMessage, units: float) -> None:
        """Replace the expected cost of a message by its actual cost."""
        user = taken.user
        self._start[user] = self._start.get(user, self._virtual) + units - taken.units
        above = max(0.0, units - weight_of(taken.message.payload))
        self._expected[user] = (above + self._expected.get(user, above)) / 2
        if user in self._waiting:
            self._push(user)
        elif len(self._start) > _REMEMBERED_MAX:
            self._forget()

    def remove(self, user: str, link: int) -> list[MessageArrived]:
        """Remove and return the waiting messages of a link."""
        waiting = self._waiting.get(user)
        if waiting is None:
            return []
        removed = [each for each in waiting if each.link == link]
        if removed:
            others = deque(each for each in waiting if each.link != link)
            if others:
                self._waiting[user] = others
            else:
                del self._waiting[user]
                self.held.discard(user)
        return removed

    def hold(self, users: Container[str]) -> list[str]:
        """Hold back those of ``users`` who have waiting messages; return those that were not held back before."""
        fresh = [user for user in self._waiting if user in users and user not in self.held]
        self.held.update(fresh)
        return fresh

    def release(self) -> None:
        """Let all held users take turns again."""
        for user in self.held:
            self._start[user] = max(self._start[user], self._virtual)
            self._push(user)
        self.held.clear()

    def _push(self, user: str) -> None:
        self._pushed += 1
        heappush(self._heap, (self._start[user], self._pushed, user))

    def _forget(self) -> None:
        for user in [each for each, start in self._start.items() if start <= self._virtual]:
            if user not in self._waiting:
                del self._start[user]
                self._expected.pop(user, None)


def weight_of(payload: bytes) -> float:
    """Return the least cost of a message in units."""
    return 1 + len(payload) / BYTES_A_UNIT
