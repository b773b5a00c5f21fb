"""Choice of the way that events take to the broker, where firewalls drop some (SPEC I-08).

Ways are tried in order of preference, and each has a bounded time until something sent by it is acknowledged::

    udp ──nothing arrives──▶ udp-relay ──▶ tcp ──▶ tcp-relay ──▶ none is left: the transport's own patience decides
     ▲                                                │
     └── the device moves, or the connection fails    └── works: kept until its connection fails or the device moves

A way without ``relay`` leaves the relay to the SIP proxy, which takes one for devices behind NAT; with ``relay`` the
agent asks for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from wanderbus.machine import Address

DataTransport = Literal["AUTO", "UDP", "TCP"]
"""The transport of the data channel: reliable UDP, TCP, or whichever arrives."""

Way = Literal["udp", "udp-relay", "tcp", "tcp-relay"]

WAYS: Final[tuple[Way, ...]] = ("udp", "udp-relay", "tcp", "tcp-relay")
"""All of them, the best first."""

UDP_PATIENCE_S: Final = 2.0
"""Least time for the first acknowledgement over UDP: a new connection sends at 0, 0.25, 0.75 and 1.75 s."""

TCP_PATIENCE_S: Final = 4.0
"""The same over TCP with TLS, which takes four round trips, and whose system repeats a lost SYN after 1 s and 3 s."""

UDP_ROUND_TRIPS: Final = 3
TCP_ROUND_TRIPS: Final = 6
"""What the patience is at least, in round trips of the signalling."""

PATIENCE_S_MAX: Final = 8.0
"""Most that it may be: a lost INVITE makes the round trip seem longer than it is."""

REMEMBERED_S: Final = 600.0
"""For how long it is remembered which way worked at an address of the device."""

ADDRESSES_MAX: Final = 32
"""Addresses of the device of which it is remembered."""

_NAMES: Final[dict[Way, str]] = {
    "udp": "UDP",
    "udp-relay": "UDP by relay",
    "tcp": "TCP",
    "tcp-relay": "TCP by relay",
}


def allowed_ways(transport: DataTransport, ways: Sequence[Way]) -> tuple[Way, ...]:
    """Return those of ``ways`` that take ``transport``."""
    return tuple([way for way in ways if transport in ("AUTO", way.partition("-")[0].upper())])


class _Memory(msgspec.Struct, frozen=True):
    way: Way
    learnt_at: float


class PathChoice:
    """The way in use, and which ways failed since the device came to ``host``.

    :param ways: those that are allowed, in the order in which they are tried
    """

    def __init__(self, ways: Sequence[Way], host: str) -> None:
        if not ways:
            raise ValueError("at least one way has to be allowed")
        self._ways = tuple(ways)
        self._host = host
        self._index = 0
        self._memory: dict[str, _Memory] = {}
        self._dead: set[tuple[str, Address]] = set()
        self._tried: tuple[str, Address] | None = None
        self._patience_s = 0.0
        self.why = ""
        """Why the way before this one was left, for people."""

    @property
    def way(self) -> Way:
        """Return the way in use, or to be offered next."""
        return self._ways[self._index]

    @property
    def over_tcp(self) -> bool:
        """Return whether the way takes TCP."""
        return self.way.startswith("tcp")

    @property
    def relayed(self) -> bool:
        """Return whether the agent asks for a relay."""
        return self.way.endswith("relay")

    @property
    def name(self) -> str:
        """Return the way in use, for people."""
        return _NAMES[self.way]

    @property
    def reason(self) -> str:
        """Return which way is in use and why no better one, for people; empty for the best."""
        return f"data channel over {self.name}: {self.why}" if self._index else ""

    @property
    def is_unproven_relay(self) -> bool:
        """Return whether the way asks for a relay and did not work at this address yet: there may be none."""
        known = self._memory.get(self._host)
        return self.relayed and (known is None or known.way != self.way)

    @property
    def on_trial(self) -> bool:
        """Return whether the way was agreed on and nothing has been acknowledged on it yet."""
        return self._tried is not None

    def moved(self, host: str, now: float) -> None:
        """Begin with the best way again, or with the one that worked at ``host`` shortly before."""
        self._host = host
        self._begin(now)

    def agreed(self, remote: Address, round_trip_s: float, now: float) -> float | None:
        """Begin a trial of the way, which leads to ``remote``; return when it ends.

        None if it leads where nothing arrived before, as without a relay: it has failed already.
        """
        least_s, trips = (TCP_PATIENCE_S, TCP_ROUND_TRIPS) if self.over_tcp else (UDP_PATIENCE_S, UDP_ROUND_TRIPS)
        self._patience_s = min(max(least_s, trips * round_trip_s), PATIENCE_S_MAX)
        self._tried = self.way.partition("-")[0], remote
        return None if self._tried in self._dead else now + self._patience_s

    def succeeded(self, now: float) -> None:
        """Keep the way in use: something arrived by it."""
        self._tried = None
        self._dead.clear()
        if self._index == 0:
            self._memory.pop(self._host, None)
        else:
            self._remember(now)

    def failed(self, reason: str = "") -> bool:
        """Take the next way, as nothing arrived by this one, or for ``reason``; return whether there is one.

        If there is none, the present one stays, and what worked at this address before is forgotten.
        """
        if self._tried is not None:
            self._dead.add(self._tried)
            self._tried = None
        if self._index + 1 == len(self._ways):
            self._memory.pop(self._host, None)
            return False
        self.why = f"{reason or f'nothing arrived within {self._patience_s:.1f} s'} over {self.name}"
        self._index += 1
        return True

    def refused(self, now: float) -> bool:
        """Take another way, as a proxy or the broker refused this one; False if it is the best, which all accept."""
        if self._index == 0:
            return False
        if not self.failed("refused"):
            self._begin(now)
        return True

    def connection_failed(self, now: float) -> None:
        """Stay with a way that worked, for a while; begin with the best one again if none did."""
        self._tried = None
        self._begin(now)

    def _begin(self, now: float) -> None:
        known = self._memory.get(self._host)
        fresh = known is not None and now - known.learnt_at < REMEMBERED_S
        self._index = self._ways.index(known.way) if known is not None and fresh else 0
        self._tried = None
        self._dead.clear()

    def _remember(self, now: float) -> None:
        """Note the way that works at this address, and forget the address that was noted longest ago if need be."""
        known = self._memory.pop(self._host, None)
        learnt_at = known.learnt_at if known is not None and known.way == self.way else now
        self._memory[self._host] = _Memory(self.way, learnt_at)
        if len(self._memory) > ADDRESSES_MAX:
            del self._memory[next(iter(self._memory))]
