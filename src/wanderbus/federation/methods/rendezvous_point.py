"""Rendezvous: takes the merged interest of all domains in its types, and tells each what to send where (SPEC M-03)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.interest_set import InterestMode
from wanderbus.channels.interest.messages import FromSender, Message, Stream
from wanderbus.channels.interest.proxy_channels import ProxyChannels
from wanderbus.errors import RemoteProtocolError
from wanderbus.federation.methods.filter_bounds import DOMAINS_MAX, TYPES_MAX, check_filters
from wanderbus.federation.methods.wire import TrustAnnounced
from wanderbus.machine import Output

Trust = Mapping[str, tuple[frozenset[str], frozenset[str]]]
"""Domains that a type is received from and sent to, by type."""

GROUP: Final = 0
"""Interest between domains has no channel groups."""


class RendezvousPoint:
    """Proxy channels of the domains, each of which gets what it may know.

    A domain learns the interest of another one in a type if that one receives the type from it, and it sends the type
    there. A domain that sends nothing gets no streams.

    :param types: the types of each neighbour, and of the own domain, whose rendezvous this domain is
    :param trust: that of the own domain
    """

    def __init__(
        self, own: str, types: Mapping[str, frozenset[str]], trust: Trust, *, epoch: int, mode: InterestMode
    ) -> None:
        self._types = types
        self._trust: dict[str, Trust] = {own: trust}
        self._proxies = ProxyChannels(GROUP, epoch, mode, uses_advertisements=False, permits=self._permits)
        for domain, its in types.items():
            if its:
                self._proxies.expect(domain)

    def trust_announced(self, domain: str, told: TrustAnnounced, now: float) -> list[Output]:
        """Take whom a domain trusts, and begin with it."""
        if len(told.types) > TYPES_MAX or len(told.domains) > DOMAINS_MAX:
            raise RemoteProtocolError(f"trust in {len(told.types)} types and {len(told.domains)} domains", None)
        its = self._types[domain]
        trust = {type: both for type, both in told.trusted().items() if type in its}
        is_changed = trust != self._trust.get(domain)
        self._trust[domain] = trust
        return self.begin(domain, now) + (self._proxies.select_again(now) if is_changed else [])

    def begin(self, domain: str, now: float) -> list[Output]:
        """Begin with a domain whose trust is known, if it sends anything."""
        if any(sends for _, sends in self._trust[domain].values()):
            return self._proxies.link_up(domain, now)
        return self._proxies.link_down(domain, is_dead=True)

    def link_down(self, domain: str) -> list[Output]:
        """Stop sending to a domain; what it wants stays."""
        return self._proxies.link_down(domain, is_dead=False)

    def receive(self, domain: str, message: Message, now: float) -> list[Output]:
        """Take what a domain wants, or its answer; :class:`RemoteProtocolError` if it is nonsense.

        What it has sent to an earlier life of the routing here may come before whom it trusts: others would hear that
        it wants nothing. It repeats everything behind its trust.
        """
        if isinstance(message, FromSender):
            if domain not in self._trust:
                return []
            check_filters(self._proxies.incoming, (domain, Stream(GROUP, domain)), message, self._types[domain])
        return self._proxies.receive(domain, message, now)

    def filters_held(self) -> int:
        """Return the number of filters in the tables of all domains."""
        tables = self._proxies.incoming
        return sum(len(tables.filters(route)) for route in tables.routes())

    def repeat(self, now: float) -> list[Output]:
        """Repeat what has not been confirmed in time."""
        return self._proxies.repeat(now)

    def repeat_at(self) -> float | None:
        """Return when :meth:`repeat` is due."""
        return self._proxies.repeat_at()

    def _permits(self, origin: str, domain: str, interest: Interest) -> bool:
        if interest.subject is None:
            return False
        receives, _ = self._trust.get(origin, {}).get(interest.subject, _NOBODY)
        _, sends = self._trust.get(domain, {}).get(interest.subject, _NOBODY)
        return domain in receives and origin in sends


_NOBODY: Final[tuple[frozenset[str], frozenset[str]]] = frozenset(), frozenset()
