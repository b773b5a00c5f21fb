"""Choice of the access server for a request, when several servers share one address of record (SPEC J-01, J-08).

The servers are ordered, and the proxy tries them one after another:

1. the server that this proxy has chosen for the same call before;
2. the nearest server of the caller's network, if one is configured and registered;
3. the server with the fewest recent calls from this proxy, if the policy is ``least_loaded``;
4. by rendezvous hashing of caller and server: all devices of a user reach one server, also after a restart of the
   proxy, and only the users of a server that leaves move.

A server that did not answer is tried after all others for a while, unless it answers again.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

from wanderbus.hosts import canonical
from wanderbus.sip.proxy.access_policy import AccessPolicy, AccessRequest, NearestServer, RegisteredServer

CALL_S_MAX: Final = 300.0
"""Time for which a call counts as load, and stays with its server: the proxy sees few ends of calls."""

CALLS_MAX: Final = 20_000
"""Largest number of calls that are counted; the oldest one is forgotten first."""

AVOIDED_S: Final = 30.0
"""Time for which a server that did not answer is tried after all others."""

SERVERS_MAX: Final = 256
"""Largest number of servers whose failures and answers are remembered."""

_UNKNOWN: Final = float("-inf")

_NO_CALL: Final[tuple[str, float, frozenset[str]]] = ("", _UNKNOWN, frozenset())


class AccessChoice:
    """Orders the access servers for each request, and counts the calls of each server."""

    def __init__(self, policy: AccessPolicy) -> None:
        self._policy = policy
        self._nearest = sorted(policy.nearest, key=lambda each: -each.network.prefixlen)
        self._calls: dict[str, tuple[str, float, frozenset[str]]] = {}
        """Server of each recent call, by Call-ID, the second of its last request, and the servers that do not know its
        dialog; the oldest is first."""
        self._loads: Counter[str] = Counter()
        self._avoided: dict[str, float] = {}
        """Servers that did not answer, and the second until which they are avoided."""
        self._answered: dict[str, float] = {}
        """Second of the last answer of each server."""

    @property
    def user(self) -> str:
        """The user at whose address of record the access servers register."""
        return self._policy.user

    def load(self, server: str, now: float) -> int:
        """Return the number of recent calls of ``server``."""
        self._expire(now)
        return self._loads[server]

    def order(self, asked: AccessRequest, servers: Sequence[RegisteredServer], now: float) -> list[str]:
        """Return the names of ``servers`` in the order to be tried; a request that begins a call counts for the first.

        A single server is neither counted nor avoided. Servers that do not know the dialog of a request are left out.
        """
        names = [each.name for each in servers]
        if len(servers) < 2:
            return names
        self._expire(now)
        current, _, foreign = self._calls.get(asked.call_id, _NO_CALL)
        near = self._near(asked.source, servers)
        counts = self._policy.choice == "least_loaded"

        def rank(name: str) -> tuple[bool, bool, bool, int, int]:
            load = self._loads[name] if counts else 0
            return self._is_avoided(name, now), name != current, name not in near, load, -_weight(asked.caller, name)

        names.sort(key=rank)
        if asked.begins:
            self.place(asked.call_id, names[0], now)
            return names
        return [name for name in names if name not in foreign] or names

    def place(self, call_id: str, server: str, now: float) -> None:
        """Record that a request of the call was sent to ``server``."""
        foreign = self._calls.get(call_id, _NO_CALL)[2]
        self.end(call_id)
        if len(self._calls) >= CALLS_MAX:
            self.end(next(iter(self._calls)))
        self._calls[call_id] = server, now, foreign
        self._loads[server] += 1

    def exclude(self, call_id: str, server: str, now: float) -> None:
        """Record that ``server`` does not know the dialog of the call.

        Every server challenges the credentials for another one: without this, the caller would answer their challenges
        in turn and reach none.
        """
        self.place(call_id, server, now)
        _, _, foreign = self._calls[call_id]
        self._calls[call_id] = server, now, foreign | {server}

    def end(self, call_id: str) -> None:
        """Forget a call that has ended."""
        if call_id not in self._calls:
            return
        server, _, _ = self._calls.pop(call_id)
        self._loads[server] -= 1
        if self._loads[server] <= 0:
            del self._loads[server]

    def answer(self, server: str, now: float) -> None:
        """Record an answer of ``server``: it works."""
        self._avoided.pop(server, None)
        _remember(self._answered, server, now)

    def fail(self, server: str, now: float, *, since: float | None = None) -> None:
        """Avoid ``server`` for a while: it cannot be reached, or was silent ``since`` a request.

        A silent server that answered another request in that time works: the request may be one that it discards.
        """
        if since is None or self._answered.get(server, _UNKNOWN) < since:
            _remember(self._avoided, server, now + AVOIDED_S)

    def _near(self, source: str, servers: Iterable[RegisteredServer]) -> frozenset[str]:
        """Return the registered servers of the smallest network of ``source`` that has any."""
        try:
            address = ipaddress.ip_address(canonical(source.partition("%")[0]))
        except ValueError:
            return frozenset()
        for near in self._nearest:
            if address in near.network and (found := frozenset(each.name for each in servers if _is_at(each, near))):
                return found
        return frozenset()

    def _is_avoided(self, server: str, now: float) -> bool:
        return self._avoided.get(server, now) > now

    def _expire(self, now: float) -> None:
        while self._calls:
            call_id, (_, placed_at, _) = next(iter(self._calls.items()))
            if placed_at + CALL_S_MAX > now:
                return
            self.end(call_id)


def _is_at(server: RegisteredServer, near: NearestServer) -> bool:
    return any(host == near.host and near.port in (None, port) for host, port in server.addresses)


def _weight(caller: str, server: str) -> int:
    return int.from_bytes(blake2b(f"{caller}\n{server}".encode(), digest_size=8).digest())


def _remember(seconds: dict[str, float], server: str, at: float) -> None:
    """Store a second of ``server`` as the newest, in bounded memory."""
    seconds.pop(server, None)
    if len(seconds) >= SERVERS_MAX:
        del seconds[next(iter(seconds))]
    seconds[server] = at
