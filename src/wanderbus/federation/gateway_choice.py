"""Choice of the gateway that keeps the link to another domain (decision 0161).

The domain with the lower name opens the link. There, the first gateway that the others can reach does so; it tries the
gateways of the other domain in turn, and stays with the first one that it reaches.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from wanderbus.federation.shared_outputs import ByOpener
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


Choice = ConnectServer | DisconnectServer | ByOpener | SetTimer | CancelTimer


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

    This gateway tries the gateways there, and then it has those openers try them that it can reach.

    :param gateways: names of its gateways, with their domain
    :param openers: gateways of the own domain that can open the link for this one, in their order
    """

    def __init__(self, domain: str, gateways: Sequence[str], openers: Sequence[str] = ()) -> None:
        self.domain = domain
        self._openers = ("", *openers)
        self._places = [(opener, each) for opener in self._openers for each in gateways]
        self._place = 0
        self._tried: tuple[str, str] | None = None
        self._is_open = False

    def start(self, now: float) -> list[Choice]:
        """Open a link, because it is this gateway's turn; nothing changes if there is one."""
        if self._tried is not None or not self._places:
            return []
        self._place = 0
        return self._try(now)

    def stop(self) -> list[Choice]:
        """Keep no link any more: another gateway here does."""
        if self._tried is None:
            return []
        (opener, tried), self._tried, self._is_open = self._tried, None, False
        return [_by(opener, DisconnectServer(tried)), CancelTimer(("connect", self.domain))]

    def replace(self, gateways: Sequence[str]) -> list[Choice]:
        """Choose from other gateways of the domain from now on; a link that is open stays, and an attempt ends."""
        stopped = [] if self._is_open else self.stop()
        self._places = [(opener, each) for opener in self._openers for each in gateways]
        self._place = -1
        return stopped

    def opened(self, name: str) -> list[Choice]:
        """Stay with a gateway that has been reached."""
        if self._tried is None or name != self._tried[1]:
            return []
        self._is_open = True
        return [CancelTimer(("connect", self.domain))]

    def closed(self, name: str, now: float) -> list[Choice]:
        """Try another gateway if this one stays away."""
        if self._tried is None or name != self._tried[1]:
            return []
        self._is_open = False
        return [SetTimer(("connect", self.domain), now + SWITCH_S)]

    def timer_fired(self, now: float, reachable: Container[str] = ()) -> list[Choice]:
        """Try the next gateway, by an opener only if that is ``reachable``."""
        if self._tried is None or self._is_open:
            return []
        former = self._tried
        while True:  # the places of this gateway itself are always tried
            self._place = (self._place + 1) % len(self._places)
            if not self._places[self._place][0] or self._places[self._place][0] in reachable:
                break
        tried = self._try(now)
        opener, name = former
        return tried if former == self._tried else [_by(opener, DisconnectServer(name)), *tried]

    def has_several(self, reachable: Container[str]) -> bool:
        """Return whether there is more than one way to the domain."""
        return len([opener for opener, _ in self._places if not opener or opener in reachable]) > 1

    def _try(self, now: float) -> list[Choice]:
        self._tried = opener, name = self._places[self._place]
        return [_by(opener, ConnectServer(name)), SetTimer(("connect", self.domain), now + SWITCH_S)]


def _by(opener: str, request: ConnectServer | DisconnectServer) -> ConnectServer | DisconnectServer | ByOpener:
    return ByOpener(opener, request) if opener else request
