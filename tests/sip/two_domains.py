"""SIP servers of several domains in virtual time, TLS with certificates between them, and phones over UDP."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from tests.sip.phone_world import CountingRandom
from wanderbus.machine import (
    Address,
    CancelTimer,
    DatagramReceived,
    Input,
    SendDatagram,
    SendOnStream,
    SetTimer,
    StreamClosed,
    StreamReceived,
    StreamTarget,
    TimerFired,
)
from wanderbus.sip.authentication.digest import DigestClient
from wanderbus.sip.message.message import Message, Request, Response, encode_message, parse_message
from wanderbus.sip.message.targets import Target
from wanderbus.sip.proxy.domain_servers import DomainServer, FindDomain, OtherDomains
from wanderbus.sip.proxy.sip_server import SIPServer

PASSWORD: Final = "open sesame"
USERS: Final = {"a.example": ("alice", "carol"), "b.example": ("bob",), "c.example": ("dave",)}


def tls(domain: str, host: str) -> DomainServer:
    return DomainServer(Target("TLS", (host, 5061), None, domain))


class Site:
    """One domain: its server at ``host``, and the names that its certificate has."""

    def __init__(
        self, net: Net, domain: str, host: str, others: OtherDomains | None, certified: tuple[str, ...] | None = None
    ) -> None:
        self.net = net
        self.domain = domain
        self.host = host
        self.certified = (domain,) if certified is None else certified
        users = USERS.get(domain, ())
        self.server = SIPServer(
            domain,
            (host, 5060),
            lambda user: PASSWORD if user in users else None,
            CountingRandom(),
            domain.encode() * 4,
            streams={"TLS": (host, 5061)},
            others=others,
        )
        self.timers: dict[Hashable, float] = {}
        self.asked: list[FindDomain] = []
        self.opened: dict[StreamTarget, int] = {}
        """Connections that this site opened, by their target."""

    def step(self, *given: Input) -> None:
        for output in self.server.step(given, self.net.now):
            match output:
                case SetTimer(key=key, at=at):
                    self.timers[key] = at
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case SendDatagram(destination=destination, data=data):
                    self.net.datagram((self.host, 5060), destination, data)
                case SendOnStream():
                    self.net.stream(self, output)
                case FindDomain():
                    self.asked.append(output)


class Net:
    """Network between the sites and the phones; ``dead`` hosts accept no connections."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sites: dict[str, Site] = {}
        self.inboxes: dict[Address, list[Message]] = {}
        self.dead: set[str] = set()
        self.between: list[tuple[str, str, Message]] = []
        """Messages from one site to another: their hosts, and the message."""
        self._numbers = itertools.count(1)
        self._ends: dict[int, tuple[Site, int, Address]] = {}
        """The other site of a connection, its number there, and our address as seen there, by the number at one
        site.
        """

    def add(self, site: Site) -> Site:
        self.sites[site.host] = site
        return site

    def datagram(self, source: Address, destination: Address, data: bytes) -> None:
        site = self.sites.get(destination[0])
        if site is None:
            self.inboxes.setdefault(destination, []).append(parse_message(data))
        else:
            if source[0] in self.sites:
                self.between.append((source[0], destination[0], parse_message(data)))
            site.step(DatagramReceived("sip", source, data))

    def stream(self, sender: Site, wanted: SendOnStream) -> None:
        number = wanted.connection if wanted.connection in self._ends else self._connect(sender, wanted.target)
        if number is None:
            sender.step(StreamClosed("sip", next(self._numbers), "refused", wanted.target))
            return
        receiver, there, seen_as = self._ends[number]
        self.between.append((sender.host, receiver.host, parse_message(wanted.data)))
        target = next((each for each, known in receiver.opened.items() if known == there), None)
        receiver.step(StreamReceived("sip", there, seen_as, wanted.data, "TLS", target, sender.certified))

    def _connect(self, sender: Site, target: StreamTarget) -> int | None:
        if target in sender.opened:
            return sender.opened[target]
        receiver = self.sites.get(target.address[0])
        wrong = receiver is None or receiver.host in self.dead or target.sip_domain not in receiver.certified
        if receiver is None or wrong:
            return None
        here, there = next(self._numbers), next(self._numbers)
        self._ends[here] = receiver, there, (sender.host, 40_000 + here)
        self._ends[there] = sender, here, target.address
        sender.opened[target] = here
        return here

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [
            (at, repr(key), site.host, key)
            for site in self.sites.values()
            for key, at in site.timers.items()
            if at <= end
        ]:
            at, _, host, key = min(due)
            self.now = max(self.now, at)
            del self.sites[host].timers[key]
            self.sites[host].step(TimerFired(key))
        self.now = end


class Telephone:
    """A user's phone over UDP: it sends requests with digests to its home server, and answers 200 when called."""

    def __init__(self, site: Site, user: str, host: str) -> None:
        self.site = site
        self.net = site.net
        self.user = user
        self.uri = f"sip:{user}@{site.domain}"
        self.address: Address = (host, 5062)
        self.cseq = 0
        self._digest = DigestClient(user, PASSWORD, CountingRandom())

    @property
    def contact(self) -> tuple[str, str]:
        return ("Contact", f"<sip:{self.user}@{self.address[0]}:5062>")

    def request(self, method: str, uri: str, *extra: tuple[str, str], call_id: str = "", to_tag: str = "") -> Request:
        self.cseq += 1
        headers = (
            ("Via", f"SIP/2.0/UDP {self.address[0]}:5062;rport;branch=z9hG4bK{self.user}{self.cseq}{method}"),
            ("From", f"<{self.uri}>;tag=of-{self.user}"),
            ("To", f"<{uri}>" + (f";tag={to_tag}" if to_tag else "")),
            ("Call-ID", call_id or f"call-{self.user}-{uri}"),
            ("CSeq", f"{self.cseq} {method}"),
            ("Max-Forwards", "70"),
            self.contact,
            ("User-Agent", "a phone whose requests are large enough for a challenge to fit into the answer " * 6),
            *extra,
        )
        return Request(method, uri, headers)

    def send(self, message: Message) -> list[Message]:
        """Send to the home server; return its immediate outputs."""
        self.net.datagram(self.address, (self.site.host, 5060), encode_message(message))
        return self.take()

    def take(self) -> list[Message]:
        return self.net.inboxes.pop(self.address, [])

    def ask(self, request: Request) -> list[Response]:
        """Send ``request``, with credentials once it is challenged; return its answers but for 100 and challenges."""
        answers = [each for each in self.send(self._digest.authorize(request)) if isinstance(each, Response)]
        if answers and answers[-1].status in (401, 407) and self._digest.learn(answers[-1]):
            self.cseq += 1
            via = f"SIP/2.0/UDP {self.address[0]}:5062;rport;branch=z9hG4bK{self.user}{self.cseq}again"
            again = request.replacing("CSeq", f"{self.cseq} {request.method}").replacing("Via", via)
            answers = [each for each in self.send(self._digest.authorize(again)) if isinstance(each, Response)]
        return [answer for answer in answers if answer.status > 100]

    def register(self) -> None:
        (answer,) = self.ask(self.request("REGISTER", f"sip:{self.site.domain}").replacing("To", f"<{self.uri}>"))
        assert answer.status == 200


def two_domains(
    a: OtherDomains | None = None, b: OtherDomains | None = None, *, b_certified: tuple[str, ...] | None = None
) -> tuple[Net, Site, Site]:
    """Return two domains that know each other by static routes and trust each other, unless given otherwise."""
    net = Net()
    routes: Mapping[str, tuple[DomainServer, ...]] = {
        "a.example": (tls("a.example", "10.0.1.1"),),
        "b.example": (tls("b.example", "10.0.2.1"),),
    }
    friends = OtherDomains(routes, lookup=False, trusted=frozenset(routes))
    site_a = net.add(Site(net, "a.example", "10.0.1.1", a or friends))
    site_b = net.add(Site(net, "b.example", "10.0.2.1", b or friends, b_certified))
    return net, site_a, site_b


def requests_of(messages: Iterable[Message]) -> list[Request]:
    return [message for message in messages if isinstance(message, Request)]
