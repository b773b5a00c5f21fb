"""Interest by multicast: which servers it reaches, and how often it had to be repaired (SPEC J-12, K-05).

A change of interest that several servers are to have can leave as one datagram. Each of them confirms it on its link,
and gets it there again if it does not within :data:`CONFIRM_S`. A server where only this has helped :data:`MISSES_MAX`
times in a row is sent nothing by multicast for :data:`PAUSE_S`: a network without multicast costs a datagram in that
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from wanderbus.channels.interest.messages import ChangeForMany, InterestChanged, encode_for_many
from wanderbus.machine import Output

CONFIRM_S: Final = 0.25
"""Time after which a change that was sent by multicast, and is not confirmed, is sent on the link, seconds."""

MISSES_MAX: Final = 3
"""Consecutive repairs after which a server is sent nothing by multicast for a while."""

PAUSE_S: Final = 300.0
"""Length of that pause, seconds. After it, the first repair begins the next one."""

PAYLOAD_BYTES_MAX: Final = 1_150
"""Largest change that is sent by multicast. With its seal and headers it fits any Ethernet, so IP does not split it."""


class SendToMany(Output, frozen=True):
    """Send ``payload``, an encoded :class:`ChangeForMany`, to all servers at once."""

    payload: bytes


class MulticastMissed(Output, frozen=True):
    """The first of the servers that multicast does not reach is ``server``; links carry its interest for a while.

    It is reported again only after multicast has reached every server.
    """

    server: str


class MulticastCounts(msgspec.Struct):
    """Changes of interest that were sent to one server by multicast, and those of them that its link had to repair."""

    sent: int = 0
    repaired: int = 0


class Multicast:
    """Knowledge of one leader about multicast; all its streams share it.

    :param numbers: the numbers of the other servers, by name
    """

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self.counts = {server: MulticastCounts() for server in numbers}
        self._numbers = numbers
        self._misses = dict.fromkeys(numbers, 0)
        self._paused_until: dict[str, float] = {}
        self._missing: set[str] = set()
        """Servers that multicast did not reach the last time."""

    def may_reach(self, server: str, now: float) -> bool:
        """Return whether to send to ``server`` by multicast; never to this server itself."""
        return server in self._numbers and now >= self._paused_until.get(server, now)

    def datagram(self, changes: Mapping[str, InterestChanged]) -> bytes | None:
        """Return one payload for ``changes`` by server, which differ only in ``previous``; None if it is too large."""
        receivers: dict[int, int] = {}
        for server, change in changes.items():
            receivers[change.previous] = receivers.get(change.previous, 0) | 1 << self._numbers[server]
        payload = encode_for_many(ChangeForMany.of(next(iter(changes.values())), receivers))
        return payload if len(payload) <= PAYLOAD_BYTES_MAX else None

    def sent(self, servers: Iterable[str]) -> None:
        """Count a change that was sent to ``servers``."""
        for each in servers:
            self.counts[each].sent += 1

    def repaired(self, server: str, changes: int) -> None:
        """Count ``changes`` that were sent to ``server`` again, on its link."""
        self.counts[server].repaired += changes

    def reached(self, server: str) -> None:
        """Note that ``server`` has confirmed a change that came by multicast, also if that took long."""
        self._misses[server] = 0
        self._missing.discard(server)

    def missed(self, server: str, now: float) -> list[Output]:
        """Note that ``server`` got a change only by its repair; return the report, if there is one."""
        self._misses[server] += 1
        if self._misses[server] < MISSES_MAX:
            return []
        self._paused_until[server] = now + PAUSE_S
        is_first = not self._missing
        self._missing.add(server)
        return [MulticastMissed(server)] if is_first else []
