"""Gateways of other domains that are found in the DNS: looked up at first, and again while there is no link (0171).

Whoever answers for the DNS chooses addresses alone: a gateway is authenticated by the key of its domain. So another
answer than the right one keeps a domain away, and does no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from wanderbus.federation.messages import FindGateways, GatewaysFound
from wanderbus.machine import Address, SetTimer

PAUSE_S_MIN: Final = 5.0
"""Time without a link to a domain after which its gateways are looked up again."""

PAUSE_S_MAX: Final = 60.0
"""Longest pause between two lookups, to which it doubles while there is no link."""

FOUND_MAX: Final = 8
"""Largest number of gateways of one domain that are used of an answer, those of the highest priority."""


class _Lookup:
    """Lookups of one domain."""

    def __init__(self) -> None:
        self.links: set[int] = set()
        self.pause_s = PAUSE_S_MIN
        self.known: Mapping[str, Address] | None = None
        """Gateways of the last answer, None before the first one."""


class GatewayLookups:
    """Looks up the gateways of ``domains``, as one gateway of the own domain sees its links."""

    def __init__(self, domains: Iterable[str]) -> None:
        self._lookups = {each: _Lookup() for each in domains}

    def start(self, now: float) -> list[FindGateways | SetTimer]:
        """Begin."""
        return [output for each in self._lookups for output in self._look_up(each, now)]

    def opened(self, domain: str, link: int) -> None:
        """Note a link, during which nothing is looked up."""
        if (lookup := self._lookups.get(domain)) is not None:
            lookup.links.add(link)
            lookup.pause_s = PAUSE_S_MIN

    def closed(self, domain: str, link: int, now: float) -> list[SetTimer]:
        """Note the end of a link."""
        lookup = self._lookups.get(domain)
        if lookup is None or link not in lookup.links:
            return []
        lookup.links.discard(link)
        return [] if lookup.links else [SetTimer(("lookup", domain), now + lookup.pause_s)]

    def timer_fired(self, domain: str, now: float) -> list[FindGateways | SetTimer]:
        """Look up a domain again that has no link."""
        lookup = self._lookups.get(domain)
        return [] if lookup is None or lookup.links else self._look_up(domain, now)

    def found(self, found: GatewaysFound) -> Mapping[str, Address] | None:
        """Return the gateways of a domain by their names, in the order to be tried; None if they are the same.

        The former ones stay if nothing was found. While there is a link, nothing changes.
        """
        lookup = self._lookups.get(found.domain)
        gateways = dict(found.gateways[:FOUND_MAX])
        if lookup is None or lookup.links or not gateways or gateways == lookup.known:
            return None
        lookup.known = gateways
        return gateways

    def is_unknown(self, domain: str) -> bool:
        """Return whether no gateway of a domain was ever found that has to be looked up."""
        lookup = self._lookups.get(domain)
        return lookup is not None and lookup.known is None

    def _look_up(self, domain: str, now: float) -> list[FindGateways | SetTimer]:
        lookup = self._lookups[domain]
        at = now + lookup.pause_s
        lookup.pause_s = min(2 * lookup.pause_s, PAUSE_S_MAX)
        return [FindGateways(domain), SetTimer(("lookup", domain), at)]
