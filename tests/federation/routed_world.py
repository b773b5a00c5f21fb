"""Routed links of some domains in virtual time, without gateways: it notes what these would get."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count

from wanderbus.federation.gateway_choice import domain_of_link, link_name
from wanderbus.federation.messages import ForeignLinkReport
from wanderbus.federation.routed.links import FIRST_ROUTED, RoutedLinks
from wanderbus.federation.routed.outputs import ForSharedLinks, RoutedOutput
from wanderbus.federation.routing_messages import Method, Neighbour, RoutingSettings
from wanderbus.federation.shared_outputs import AtGateway, LinksRequest
from wanderbus.machine import SetTimer
from wanderbus.peers.messages import (
    CloseServerLink,
    ConsumedOnServerLink,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)

DELAY_S = 0.01


def settings_of(
    names: str, types: Iterable[str] = ("T",), lengths: Mapping[str, float] | None = None, method: Method = "tree"
) -> dict[str, RoutingSettings]:
    """Return the settings of domains, each a letter, that share all types; ``lengths`` has links such as ``ab``."""
    shared, given = frozenset(types), lengths or {}
    return {
        name: RoutingSettings(
            name,
            {
                other: Neighbour(shared, shared, given.get("".join(sorted(name + other)), 1.0))
                for other in names
                if other != name
            },
            method,
        )
        for name in names
    }


class RoutedWorld:
    """Domains by name; ``link`` and ``unlink`` change their direct links, such as ``ab``."""

    def __init__(self, settings: Mapping[str, RoutingSettings]) -> None:
        self.now = 0.0
        self.settings = settings
        self.lives = dict.fromkeys(settings, 0)
        self.routed: dict[str, RoutedLinks] = {}
        self.reports: dict[str, list[ForeignLinkReport]] = defaultdict(list)
        """Reports of routed links, by the domain that gets them."""
        self.sent: list[tuple[str, str, bytes]] = []
        """Messages on direct links."""
        self.consumed: dict[str, int] = defaultdict(int)
        """Messages of direct links that are finished."""
        self.closed: list[tuple[str, str]] = []
        """Domains that have closed a direct link, each with the reason."""
        self.on_sent: Callable[[str, str, bytes], bool] = lambda source, target, payload: True
        """Called with each message of a direct link; False loses it."""
        self._links: dict[tuple[str, str], int] = {}
        self._new_number = count(1).__next__
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        for name in settings:
            self.start(name)

    def start(self, name: str) -> None:
        """Begin a life of the gateway of a domain; the former one ends, with its links."""
        for pair in [each for each in self._links if name == each[0]]:
            self.unlink("".join(pair))
        self.lives[name] += 1
        self.routed[name] = RoutedLinks(self.settings[name], self.lives[name], 0)

    def link(self, *pairs: str) -> None:
        """Open direct links, each between two domains."""
        for one, other in map(tuple, pairs):
            ends = ((one, other), (other, one))
            self._links |= {each: self._new_number() for each in ends}
            for name, peer in ends:
                number, server = self._links[name, peer], link_name(peer, "g")
                self.at_links(name, ServerLinkOpened(number, server, is_ours=name < peer))

    def unlink(self, *pairs: str) -> None:
        """Lose direct links, with all that is on the way."""
        for one, other in map(tuple, pairs):
            for name, peer in ((one, other), (other, one)):
                if (number := self._links.pop((name, peer), None)) is not None:
                    self.at_links(name, ServerLinkClosed(number, link_name(peer, "g"), "it failed"))

    def request(self, name: str, request: LinksRequest) -> None:
        """Let the gateway of a domain request something."""
        self._take(name, self.routed[name].requested(request))

    def at_links(self, name: str, report: ForeignLinkReport) -> None:
        """Let the direct links of a domain report something."""
        self._take(name, self.routed[name].at_links(report, self.now))

    def number(self, name: str, other: str) -> int:
        """Return the number of the routed link from one domain to another one."""
        (number,) = self.open_links(name)[other]
        return number

    def open_links(self, name: str) -> dict[str, list[int]]:
        """Return the routed links of a domain that are open, by the domain at the other end."""
        found: dict[str, list[int]] = defaultdict(list)
        for each in self.reports[name]:
            if isinstance(each, ServerLinkOpened):
                found[domain_of_link(each.server)].append(each.link)
            elif isinstance(each, ServerLinkClosed):
                found[domain_of_link(each.server)].remove(each.link)
        return {domain: links for domain, links in found.items() if links}

    def send(self, name: str, other: str, *payloads: bytes) -> None:
        """Send messages on a routed link."""
        for each in payloads:
            self.request(name, SendOnServerLink(self.number(name, other), each))

    def received(self, name: str) -> list[bytes]:
        """Return the messages that came on routed links."""
        return [each.payload for each in self.reports[name] if isinstance(each, ServerMessageReceived)]

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            self.now, _, action = heapq.heappop(self._due)
            action()
        self.now = end

    def inject(self, source: str, target: str, payload: bytes) -> None:
        """Let a message arrive on the direct link from one domain to another one."""
        self.at_links(target, ServerMessageReceived(self._links[target, source], link_name(source, "g"), payload))

    def _take(self, name: str, outputs: Iterable[RoutedOutput]) -> None:
        for output in outputs:
            match output:
                case AtGateway(report=report):
                    if report.server.endswith("(routed)"):
                        self.reports[name].append(report)
                case ForSharedLinks(request=request):
                    self._request(name, request)
                case SetTimer(at=at):
                    life = self.lives[name]
                    self._at(at, partial(self._fire, name, life))

    def _request(self, name: str, request: LinksRequest) -> None:
        peer = next((peer for (own, peer), link in self._links.items() if (own, link) == (name, _link(request))), None)
        assert _link(request) < FIRST_ROUTED
        match request:
            case SendOnServerLink(payload=payload) if peer is not None:
                self.sent.append((name, peer, payload))
                if self.on_sent(name, peer, payload):
                    there = self._links[peer, name]
                    self._at(self.now + DELAY_S, lambda: self._arrive(peer, there, name, payload))
            case ConsumedOnServerLink(messages=messages):
                self.consumed[name] += messages
            case CloseServerLink(reason=reason) if peer is not None:
                self.closed.append((name, reason))
                self.unlink(name + peer)

    def _arrive(self, name: str, link: int, source: str, payload: bytes) -> None:
        if self._links.get((name, source)) == link:
            self.at_links(name, ServerMessageReceived(link, link_name(source, "g"), payload))

    def _fire(self, name: str, life: int) -> None:
        if self.lives[name] == life:
            self._take(name, self.routed[name].timer_fired(self.now))

    def _at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, self._new_number(), action))


def _link(request: LinksRequest) -> int:
    link: int = getattr(request, "link", 0)
    return link
