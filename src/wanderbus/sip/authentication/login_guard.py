"""Limits on wrong passwords: above them, further credentials are refused unread (RFC 3261 26).

::

    one user from one source    5 failures at once, then a pause of 1, 2, 4 ... 60 s after each
    one user from all sources   30 failures at once, then one each 30 s
    one source, all users       60 failures at once, then one each second

A stranger must not lock a user out. So the second and third limit do not apply to a source from which the user has
logged in recently. No limit applies to a device that continues with a nonce of its own (:mod:`.digest`). Unknown users
are counted like known ones. Every table is bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable
from typing import Final, Generic, TypeVar

from wanderbus.errors import SIPParseError
from wanderbus.hosts import canonical, network_of
from wanderbus.parameters.signalling import LoginLimits
from wanderbus.refusals import FREE_FAILURES
from wanderbus.sip.authentication.verdicts import SOURCE_FAILURES, USER_FAILURES, RequestSource
from wanderbus.sip.message.headers import Via
from wanderbus.sip.message.message import Request
from wanderbus.tokens import TokenBucket

NEWEST_MAX: Final = 16
"""Sources and nonces kept for one user who has logged in there."""

NAME_CHARACTERS_MAX: Final = 64
"""Characters kept of a user or a host."""

_REQUEST_CHARACTERS_MAX: Final = 256
"""Characters kept of the text that identifies a request."""

_Key = TypeVar("_Key", bound=Hashable)


DEFAULT_LIMITS: Final = LoginLimits()


class NewestByUser(Generic[_Key]):
    """The newest few values of each user with their times, for the newest ``users_max`` users."""

    def __init__(self, users_max: int) -> None:
        self._users_max = users_max
        self._noted: OrderedDict[str, OrderedDict[_Key, float]] = OrderedDict()

    def note(self, user: str, value: _Key, now: float) -> None:
        """Record ``value`` as the newest of ``user``."""
        values = self._noted.setdefault(user, OrderedDict())
        self._noted.move_to_end(user)
        values[value] = now
        values.move_to_end(value)
        if len(values) > NEWEST_MAX:
            values.popitem(last=False)
        if len(self._noted) > self._users_max:
            self._noted.popitem(last=False)

    def noted_at(self, user: str, value: _Key) -> float | None:
        """Return the time at which ``value`` of ``user`` was recorded."""
        values = self._noted.get(user)
        return None if values is None else values.get(value)

    def forget(self, user: str, value: _Key) -> None:
        """Forget ``value`` of ``user``."""
        if user in self._noted:
            self._noted[user].pop(value, None)


class _Pair:
    """Failures of one user from one source."""

    def __init__(self) -> None:
        self.failures = self.refusals = 0
        self.request = ""
        self.until = self.at = 0.0


class LoginGuard:
    """Counts failures, and computes the pause until the next attempt.

    A request from one of the hosts ``proxies`` has the source that this proxy names in Via.
    """

    def __init__(self, limits: LoginLimits = DEFAULT_LIMITS, proxies: Collection[str] = ()) -> None:
        self._limits = limits
        self._most = max(1, limits.entries_max)
        self._proxies = frozenset(map(canonical, proxies))
        self._pairs: OrderedDict[tuple[str, str], _Pair] = OrderedDict()
        self._users: OrderedDict[str, TokenBucket] = OrderedDict()
        self._sources: OrderedDict[str, TokenBucket] = OrderedDict()
        self._known: NewestByUser[str] = NewestByUser(self._most)
        self._other_users = _tokens(limits.source_recovery_s, limits.source_failures)
        """Shared by new users while every entry is in use, so that a guesser cannot evict their own counter."""

    def __len__(self) -> int:
        return max(len(self._pairs), len(self._users), len(self._sources))

    def source_of(self, request: Request) -> RequestSource:
        """Return the source of ``request``: the top Via names the host that sent it to us, the next one the sender.

        A sender named only by an unknown host is distinguished from others behind that host, but is not trusted.
        """
        hosts = [via.received or via.host for via in _vias(request)[:2]]
        networks = [_short(network_of(host)) for host in hosts]
        if len(hosts) < 2:
            peer = networks[0] if networks else "?"
            return RequestSource(peer, peer)
        peer, sender = networks
        # A proxy is one address: other addresses of its /64 are no proxies, but share one source with it.
        return RequestSource(f"{sender} via {peer}", sender if canonical(hosts[0]) in self._proxies else peer)

    def wait_s(self, user: str, source: RequestSource, now: float) -> float:
        """Return the seconds that ``user`` from ``source`` must wait before credentials are read; 0 if none."""
        return self.wait(user, source, now)[0]

    def wait(self, user: str, source: RequestSource, now: float) -> tuple[float, str]:
        """Return the wait as :meth:`wait_s`, and the name of the limit that causes it."""
        name = _short(user)
        pair = self._pair(name, source, now)
        wait_s = 0.0 if pair is None else max(0.0, pair.until - now)
        if self._is_known(name, source, now):
            return wait_s, FREE_FAILURES
        tokens = self._sources.get(source.address)
        from_source_s = 0.0 if tokens is None else tokens.wait_s(now)
        from_all_s = self._user_tokens(name, now).wait_s(now)
        return max((wait_s, FREE_FAILURES), (from_all_s, USER_FAILURES), (from_source_s, SOURCE_FAILURES))

    def refused(self, user: str, source: RequestSource, now: float) -> int:
        """Count an attempt that was refused unread; return the refusals so far."""
        name = _short(user)
        pair = self._pair(name, source, now)
        # A user blocked by the failures of others gets no entry: it would evict a useful one.
        if pair is None:
            return 1
        pair.refusals += 1
        return pair.refusals

    def is_repeated(self, user: str, source: RequestSource, request: str, now: float) -> bool:
        """Return whether ``request`` (its identifying text) was the last that failed: a copy is no further guess."""
        pair = self._pair(_short(user), source, now)
        return pair is not None and pair.request == request[:_REQUEST_CHARACTERS_MAX]

    def failed(self, user: str, source: RequestSource, now: float, request: str = "") -> int:
        """Count wrong credentials in ``request``, see :meth:`is_repeated`; return the refusals so far."""
        limits, name = self._limits, _short(user)
        pair = self._pair(name, source, now) or _Pair()
        pair.failures, pair.refusals, pair.at = pair.failures + 1, pair.refusals + 1, now
        pair.request = request[:_REQUEST_CHARACTERS_MAX]
        beyond = pair.failures - max(1, limits.free_failures)
        if beyond >= 0:
            pair.until = now + min(limits.pause_s * 2.0 ** min(beyond, 60), limits.pause_s_max)
        _put(self._pairs, (name, source.path), pair, self._most)
        if not self._is_known(name, source, now):
            tokens = self._user_tokens(name, now)
            tokens.take(now)
            if tokens is not self._other_users:
                _put(self._users, name, tokens, self._most)
            tokens = self._sources.get(source.address) or _tokens(limits.source_recovery_s, limits.source_failures)
            tokens.take(now)
            _put(self._sources, source.address, tokens, self._most)
        return pair.refusals

    def accepted(self, user: str, source: RequestSource, now: float) -> None:
        """Clear the failures of ``user`` from ``source``, where credentials were right."""
        name = _short(user)
        self._pairs.pop((name, source.path), None)
        self._known.note(name, source.path, now)

    def _pair(self, name: str, source: RequestSource, now: float) -> _Pair | None:
        """Return the recorded failures of a user from a source, if they have not expired."""
        pair = self._pairs.get((name, source.path))
        if pair is not None and now - pair.at > max(self._limits.forget_s, self._limits.pause_s_max):
            del self._pairs[name, source.path]
            return None
        return pair

    def _user_tokens(self, name: str, now: float) -> TokenBucket:
        tokens = self._users.get(name)
        if tokens is not None:
            return tokens
        if len(self._users) >= self._most:
            oldest, idle = next(iter(self._users.items()))
            if not idle.is_full(now):
                return self._other_users
            del self._users[oldest]
        return _tokens(self._limits.user_recovery_s, self._limits.user_failures)

    def _is_known(self, name: str, source: RequestSource, now: float) -> bool:
        at = self._known.noted_at(name, source.path)
        return at is not None and now - at <= self._limits.lately_s_max


_Entry = TypeVar("_Entry")


def _put(table: OrderedDict[_Key, _Entry], key: _Key, entry: _Entry, most: int) -> None:
    """Store ``entry`` as the newest of at most ``most``."""
    table[key] = entry
    table.move_to_end(key)
    if len(table) > most:
        table.popitem(last=False)


def _tokens(recovery_s: float, capacity: float) -> TokenBucket:
    return TokenBucket(1.0 / max(recovery_s, 1e-6), max(1.0, capacity))


def _short(name: str) -> str:
    return name[:NAME_CHARACTERS_MAX]


def _vias(request: Request) -> list[Via]:
    """Return the readable ones of the top two Vias."""
    vias = []
    for value in request.headers_all("Via")[:2]:
        try:
            vias.append(Via.parse(value))
        except SIPParseError:
            break
    return vias
