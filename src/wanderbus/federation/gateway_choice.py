"""Choice of the gateway that keeps the link to another domain (decision 0161).

The domain with the lower name opens the link. There, the first gateway that the others can reach does so; it tries the
gateways of the other domain in turn, and stays with the first one that it reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wanderbus.machine import CancelTimer, SetTimer
from wanderbus.peers.messages import ConnectServer, DisconnectServer

GATEWAYS_MAX: Final = 256
"""Gateways of a domain at most."""

SWITCH_S: Final = 3.0
"""Time without a link after which the next gateway of a domain is tried, and after which a silent gateway here is
replaced by the next one."""

FOREIGN_RETRY_S_MAX: Final = 2.0
"""Longest wait for an answer of a foreign gateway, seconds: events flow within five once a domain is back, with jitter
and a link that fails meanwhile."""

Choice = ConnectServer | DisconnectServer | SetTimer | CancelTimer


def link_name(domain: str, gateway: str) -> str:
    """Return the name of a gateway among those of all domains."""
    return f"{domain}/{gateway}"


def domain_of_link(name: str) -> str:
    """Return the domain of the gateway with this name."""
    return name.rpartition("/")[0]


def epoch_of(life: int, place: int, known: int = 0) -> int:
    """Return the epoch of the filters that a gateway sends, above the one that others ``known``.

    It rises with each life. Two gateways never use the same: to others it would be one life, with one table.

    :param place: place of the gateway among those of its domain
    """
    own = life * GATEWAYS_MAX + place % GATEWAYS_MAX
    return own if own > known else own + ((known - own) // GATEWAYS_MAX + 1) * GATEWAYS_MAX


class GatewayChoice:
    """Keeps one link to one foreign domain, which this domain opens.

    :param gateways: names of its gateways, with their domain
    """

    def __init__(self, domain: str, gateways: Sequence[str]) -> None:
        self.domain = domain
        self._gateways = tuple(gateways)
        self._place = 0
        self._tried = ""
        self._is_open = False

    def start(self, now: float) -> list[Choice]:
        """Open a link, because it is this gateway's turn; nothing changes if there is one."""
        return [] if self._tried or not self._gateways else self._try(now)

    def stop(self) -> list[Choice]:
        """Keep no link any more: another gateway here does."""
        if not self._tried:
            return []
        tried, self._tried, self._is_open = self._tried, "", False
        return [DisconnectServer(tried), CancelTimer(("connect", self.domain))]

    def opened(self, name: str) -> list[Choice]:
        """Stay with a gateway that has been reached."""
        if name != self._tried:
            return []
        self._is_open = True
        return [CancelTimer(("connect", self.domain))]

    def closed(self, name: str, now: float) -> list[Choice]:
        """Try another gateway if this one stays away."""
        if name != self._tried:
            return []
        self._is_open = False
        return [SetTimer(("connect", self.domain), now + SWITCH_S)]

    def timer_fired(self, now: float) -> list[Choice]:
        """Try the next gateway."""
        if not self._tried or self._is_open:
            return []
        former, self._place = self._tried, (self._place + 1) % len(self._gateways)
        tried = self._try(now)
        return tried if former == self._tried else [DisconnectServer(former), *tried]

    def _try(self, now: float) -> list[Choice]:
        self._tried = self._gateways[self._place]
        return [ConnectServer(self._tried), SetTimer(("connect", self.domain), now + SWITCH_S)]
