"""The SIP server of one domain: registrar, location and proxy over one transaction layer (SPEC C-20, D-02, D-07).

REGISTER goes to the registrar, everything else to the proxy. This module only connects the parts: it passes reports of
the transaction layer to them and their commands to the layer, until none is left. Before that, it refuses sources that
send too much.
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
from wanderbus.sip.message.targets import Origin
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
"""Name of the machine's only socket."""

RETRY_LATER: Final = ("Retry-After", "5")
"""Retry-After of a 503 to a source that sends too much, in seconds (RFC 3261 20.33)."""

_REPORTS = (RequestReceived, AckReceived, CancelReceived, ResponseReceived, TransactionTimedOut)


class SIPServer:
    """Registrar and proxy for ``domain``, listening on ``address``.

    ``passwords`` maps a user name to the password or None; ``key`` is a secret for Record-Route, which the next process
    at this address may reuse to stay on the path of the same dialogs; the three times limit the lifetime of a
    registration; ``streams`` are the addresses for TCP and TLS, which are then used for sending too; ``routing``
    decides the targets of requests, ``flood`` limits the requests of one source, ``logins`` the wrong passwords.
    ``algorithms`` are the offered digests, best first; some clients read the first alone and support only ``MD5``.
    ``media`` commands media relays, over the socket "ng", for the calls that ``relay_calls`` names. ``others`` is the
    policy for other domains; respond to :class:`wanderbus.sip.proxy.domain_routes.FindDomain` with an input.
    ``edge_proxies`` are the IP addresses of proxies before this one, which know the addresses of the devices that
    register through them.

    Reports :class:`wanderbus.sip.proxy.location.BindingChanged`, :class:`wanderbus.sip.proxy.location.BindingsWritten`
    (before the response to the REGISTER), :class:`wanderbus.sip.authentication.login_guard.LoginRefused` and
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
        """Number of discarded or refused messages so far, by reason."""
        return self._layer.drops

    def restore(self, bindings: Mapping[str, Sequence[Binding]], now: float) -> list[Output]:
        """Restore the bindings of an earlier process, with times relative to ``now``; return their timers."""
        for each in (binding for held in bindings.values() for binding in held):
            with contextlib.suppress(SIPParseError):
                contact = SIPUri.parse(each.contact)
                way = nat_contacts.way_back(contact)
                self._layer.peers.note(contact.host if way is None else way.address[0], now)
        return scoped("registrar", self._registrar.restore(bindings, now))

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Process inputs and timers at monotonic second ``now``; return messages to send, timers and reports."""
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
        """Admit a datagram that is no response, unless its source sends too many."""
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
        """Pass ``work`` between the layer and its users until none is left."""
        outputs: list[Output] = []
        pending = deque(work)
        while pending:
            commands, done = self._run_task(pending.popleft(), now)
            pending += commands
            outputs += done
        return outputs

    def _run_task(self, task: Input | Command, now: float) -> tuple[list[Command], list[Output]]:
        """Return the results of one piece of work: more work, and outputs of this machine."""
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
        """Pass inputs to the relay machine, and its descriptions to the proxy."""
        results = [] if self._media is None else self._media.step([given], now)
        described = [result for result in results if isinstance(result, Described)]
        others = [result for result in results if not isinstance(result, Described)]
        return self._proxy.step(described, now), scoped("media", others)

    def _handled(self, report: Report, now: float) -> tuple[Sequence[Command], list[Output]]:
        """Pass ``report`` to the registrar or the proxy."""
        if not isinstance(report, RequestReceived):
            return self._proxy.step([report], now), []
        if report.connection is not None:
            # A stream is limited by its requests: received data may be any part of one.
            judgement = self._judged(
                report.source, now, report.request.content_bytes, vouched=bool(report.peer_domains)
            )
            if judgement is not Judgement.ADMITTED:
                return [_refused(report, judgement)], []
        if report.request.method != "REGISTER":
            return self._proxy.step([report], now), []
        response, written = self._registrar.register(self._with_way_back(report), now, report.connection)
        # A 200 goes to an authenticated user; any other response to a source address that may be forged.
        # It needs no state either: a device that is challenged again after a loss needs one more round trip.
        proved = response.status == 200
        if proved:
            self._layer.peers.note(report.source[0], now)
        return [Respond(report.transaction, response, stateless=not proved)], scoped("registrar", written)

    def _with_way_back(self, register: RequestReceived) -> Request:
        """Return a REGISTER with the alias of its source, unless a known proxy forwarded it.

        Anybody can write a second Via, and a Contact under it that leads to another device.
        """
        if register.source[0] in self._edge_proxies:
            return nat_contacts.with_way_back(register)
        return nat_contacts.marked(register.request, register.source, register.transport)


def _refused(report: RequestReceived, judgement: Judgement) -> Command:
    if judgement is Judgement.DROPPED:
        return ForgetTransaction(report.transaction)
    return Respond(report.transaction, make_response(report.request, 503, headers=[RETRY_LATER]), stateless=True)
