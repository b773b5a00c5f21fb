"""The SIP server of one domain: registrar, location and proxy over one transaction layer (SPEC C-20, D-02, D-07).

REGISTER goes to the registrar, everything else to the proxy. This file only joins the parts: it feeds each what the
transaction layer reports, and the layer what they ask for, until all is quiet. Before that, it turns away sources
that ask too much.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from wanderbus.errors import SIPParseError
from wanderbus.hosts import network_of
from wanderbus.machine import (
    Address,
    CancelTimer,
    DatagramReceived,
    Input,
    Output,
    RandomSource,
    SetTimer,
    TimerFired,
    scoped,
)
from wanderbus.sip.authentication import login_guard
from wanderbus.sip.authentication.digest import ALGORITHMS, Authenticator, Secret
from wanderbus.sip.authentication.login_guard import LoginGuard, LoginLimits
from wanderbus.sip.message.message import Request, make_response
from wanderbus.sip.message.response_routing import Origin
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.proxy import anchoring, nat_contacts
from wanderbus.sip.proxy.anchoring import Describe, Described, MediaAnchor, RelayCalls, Release
from wanderbus.sip.proxy.domain_routes import DomainLookedUp, FindDomain, OtherDomains
from wanderbus.sip.proxy.location import Binding, Domain, LocationService
from wanderbus.sip.proxy.proxy import Proxy
from wanderbus.sip.proxy.proxy_signals import Command, Report
from wanderbus.sip.proxy.registrar import ExpiryPolicy, Registrar
from wanderbus.sip.proxy.routing_script import RoutingFailed, RoutingScript
from wanderbus.sip.transaction.flood_limits import DEFAULT_LIMITS, FloodGuard, FloodLimits, Judgement
from wanderbus.sip.transaction.transaction_layer import TransactionLayer
from wanderbus.sip.transaction.transaction_signals import (
    AckReceived,
    CancelReceived,
    ForgetTransaction,
    RequestReceived,
    Respond,
    ResponseReceived,
    TransactionTimedOut,
)

SOCKET: Final = "sip"
"""Name of the only socket this machine uses."""

RETRY_LATER: Final = ("Retry-After", "5")
"""What a source is told that sends too much, in seconds (RFC 3261 20.33)."""

_REPORTS = (RequestReceived, AckReceived, CancelReceived, ResponseReceived, TransactionTimedOut)


class SIPServer:
    """Registrar and proxy for ``domain``, listening on ``address``.

    ``passwords`` maps a user name to the password or None; ``key`` is a secret for Record-Route, of use to the next
    process at this address, which is then on the path of the same dialogs; the three times bound what a registration
    may last; ``streams`` says where TCP and TLS are served, and so sent over too; ``routing`` decides where requests
    go, ``flood`` how many one source may send, and ``logins`` how many wrong passwords. ``algorithms`` are the digests
    that are offered, best first; some clients look at the first alone and know nothing but ``MD5``. ``media`` commands
    media relays, over the socket "ng", for those calls that ``relay_calls`` names. ``others`` says what may go to other
    domains and come from there; :class:`wanderbus.sip.proxy.domain_routes.FindDomain` is answered with an input.
    ``edge_proxies`` are the IP addresses of proxies before this one, which know where the devices that register through
    them are.

    Reports :class:`wanderbus.sip.proxy.location.BindingChanged`, :class:`wanderbus.sip.proxy.location.BindingsWritten`
    (before the REGISTER is answered), :class:`wanderbus.sip.authentication.login_guard.LoginRefused` and
    :class:`wanderbus.sip.proxy.routing_script.RoutingFailed`.
    """

    def __init__(
        self,
        domain: str,
        address: Address,
        passwords: Callable[[str], Secret | None],
        random: RandomSource,
        key: bytes,
        *,
        expires_min_s: int = 5,
        expires_max_s: int = 3600,
        expires_default_s: int = 300,
        streams: Mapping[str, Address] | None = None,
        routing: RoutingScript | None = None,
        flood: FloodLimits = DEFAULT_LIMITS,
        logins: LoginLimits = login_guard.DEFAULT_LIMITS,
        algorithms: Sequence[str] = ALGORITHMS,
        media: MediaAnchor | None = None,
        relay_calls: RelayCalls = "nat",
        others: OtherDomains | None = None,
        edge_proxies: Collection[str] = (),
    ) -> None:
        served = Domain(domain.lower(), address, streams or {})
        policy = ExpiryPolicy(expires_min_s, expires_max_s, expires_default_s)
        guard = LoginGuard(logins, edge_proxies)
        self._authenticator = authenticator = Authenticator(
            domain, passwords, random.token(32), algorithms=algorithms, guard=guard
        )
        self.location = LocationService()
        self._registrar = Registrar(served, self.location, authenticator, random, policy)
        self._edge_proxies = frozenset(edge_proxies)
        self._flood = FloodGuard(flood)
        self._layer = TransactionLayer(random, socket=SOCKET, transports=served.transports)
        self._layer.local = address
        self._layer.peers.always = frozenset(map(network_of, edge_proxies))
        self._layer.local_streams = served.streams
        self._media = media
        self._proxy = Proxy(
            served,
            self.location,
            authenticator.knows,
            random,
            key,
            routing,
            self._layer.connection_from,
            None if media is None else relay_calls,
            others,
            authenticator,
        )

    @property
    def drops(self) -> Mapping[str, int]:
        """What was thrown away or turned away so far, by reason."""
        return self._layer.drops

    def restore(self, bindings: Mapping[str, Sequence[Binding]], now: float) -> list[Output]:
        """Take over the bindings of an earlier process, their times being those of ``now``; return their timers."""
        for each in (binding for held in bindings.values() for binding in held):
            with contextlib.suppress(SIPParseError):
                contact = SIPUri.parse(each.contact)
                way = nat_contacts.way_back(contact)
                self._layer.peers.note(contact.host if way is None else way.address[0], now)
        return scoped("registrar", self._registrar.restore(bindings, now))

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Take what arrived, and timers, at monotonic second ``now``; return what to send, timers and reports."""
        outputs: list[Output] = []
        for given in inputs:
            match given:
                case TimerFired(key=("registrar", str(aor))):
                    outputs += scoped("registrar", self._registrar.expire(aor, now))
                case TimerFired(key=("proxy", key)):
                    outputs += self._run(self._proxy.step([TimerFired(key)], now), now)
                case DomainLookedUp():
                    outputs += self._run(self._proxy.step([given], now), now)
                case TimerFired(key=("media", _)):
                    outputs += self._run([given], now)
                case TimerFired(key=("transactions", key)):
                    outputs += self._run([TimerFired(key)], now)
                case TimerFired():
                    pass
                case DatagramReceived(socket=socket, data=data) if socket == SOCKET and data[:4] != b"SIP/":
                    outputs += self._admit(given, now)
                case _:
                    outputs += self._run([given], now)
        return [*outputs, *self._authenticator.take_refusals(), *self._flood.take_limited(now)]

    def _admit(self, given: DatagramReceived, now: float) -> list[Output]:
        """Let a datagram in that is no response, unless its source sends too many."""
        match self._judged(given.source, now, len(given.data)):
            case Judgement.ADMITTED:
                return self._run([given], now)
            case Judgement.REFUSED:
                origin = Origin(given.source, datagram_bytes=len(given.data))
                return self._layer.refuse(origin, given.data, 503, [RETRY_LATER])
            case Judgement.DROPPED:
                return []

    def _judged(self, source: Address, now: float, size: int, *, vouched: bool = False) -> Judgement:
        known = vouched or self._layer.peers.knows(network_of(source[0]), now)
        judgement = self._flood.judge(source[0], now, size, known=known)
        if judgement is not Judgement.ADMITTED:
            self._layer.drops["flood"] += 1
        return judgement

    def _run(self, work: Sequence[Input | Command], now: float) -> list[Output]:
        """Carry ``work`` back and forth between the layer and its users until none is left."""
        outputs: list[Output] = []
        pending = deque(work)
        while pending:
            commands, done = self._carried_out(pending.popleft(), now)
            pending += commands
            outputs += done
        return outputs

    def _carried_out(self, task: Input | Command, now: float) -> tuple[list[Command], list[Output]]:
        """Return what one piece of work leads to: more of it, and what the world has to do."""
        match task:
            case SetTimer() | CancelTimer():
                return [], scoped("proxy", [task])
            case RoutingFailed() | FindDomain():
                return [], [task]
            case Describe() | Release() | DatagramReceived(socket=anchoring.SOCKET):
                return self._anchored(task, now)
            case TimerFired(key=("media", key)):
                return self._anchored(TimerFired(key), now)
        commands: list[Command] = []
        outputs: list[Output] = []
        for result in self._layer.step([task], now):
            if isinstance(result, _REPORTS):
                following, reports = self._handled(result, now)
                commands += following
                outputs += reports
            else:
                outputs += scoped("transactions", [result])
        return commands, outputs

    def _anchored(self, given: Input, now: float) -> tuple[list[Command], list[Output]]:
        """Let relays be commanded, and the proxy go on with what they have described."""
        results = [] if self._media is None else self._media.step([given], now)
        described = [result for result in results if isinstance(result, Described)]
        others = [result for result in results if not isinstance(result, Described)]
        return self._proxy.step(described, now), scoped("media", others)

    def _handled(self, report: Report, now: float) -> tuple[Sequence[Command], list[Output]]:
        """Let the registrar or the proxy handle ``report``."""
        if not isinstance(report, RequestReceived):
            return self._proxy.step([report], now), []
        if report.connection is not None:
            # A stream is judged by its requests: what it brings may be any part of one.
            judgement = self._judged(
                report.source, now, report.request.content_bytes, vouched=bool(report.peer_domains)
            )
            if judgement is not Judgement.ADMITTED:
                return [_turned_away(report, judgement)], []
        if report.request.method != "REGISTER":
            return self._proxy.step([report], now), []
        response, written = self._registrar.register(self._with_way_back(report), now, report.connection)
        # A 200 goes to a user who proved to be one; anything else to whoever claims the source address.
        # It needs no memory either: who is challenged again for a lost answer has one round trip more.
        proved = response.status == 200
        if proved:
            self._layer.peers.note(report.source[0], now)
        return [Respond(report.transaction, response, stateless=not proved)], scoped("registrar", written)

    def _with_way_back(self, register: RequestReceived) -> Request:
        """Return a REGISTER with the way back to where it came from, unless a proxy that we know passed it on.

        Anybody can write a second Via, and a Contact under it that leads to somebody else.
        """
        if register.source[0] in self._edge_proxies:
            return nat_contacts.with_way_back(register)
        return nat_contacts.marked(register.request, register.source, register.transport)


def _turned_away(report: RequestReceived, judgement: Judgement) -> Command:
    if judgement is Judgement.DROPPED:
        return ForgetTransaction(report.transaction)
    return Respond(report.transaction, make_response(report.request, 503, headers=[RETRY_LATER]), stateless=True)
