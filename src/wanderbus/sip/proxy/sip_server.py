"""The SIP server of one domain: registrar, location and proxy over one transaction layer (SPEC C-20, D-02, D-07).

::

    messages ──▶ transaction layer ──reports──▶ registrar, proxy ──commands──▶ transaction layer
                                                  proxy ──▶ media relays ──descriptions──▶ proxy

REGISTER goes to the registrar, everything else to the proxy. This module only connects the parts. Before that, it
refuses sources that send too much.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from wanderbus.composition import Composition, Part
from wanderbus.errors import SIPParseError
from wanderbus.hosts import network_of
from wanderbus.machine import (
    Address,
    CancelTimer,
    ClockRead,
    DatagramReceived,
    Input,
    Output,
    RandomSource,
    SetTimer,
    StreamClosed,
    StreamReceived,
    TimerFired,
    scoped,
)
from wanderbus.parameters.signalling import FloodLimits, LoginLimits
from wanderbus.sip.authentication import login_guard
from wanderbus.sip.authentication.digest import ALGORITHMS, Authenticator, Secret
from wanderbus.sip.authentication.login_guard import LoginGuard
from wanderbus.sip.message.message import Request, make_response
from wanderbus.sip.message.targets import Origin
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.proxy import anchoring, nat_contacts
from wanderbus.sip.proxy.access_policy import AccessPolicy
from wanderbus.sip.proxy.anchoring import Describe, Described, MediaAnchor, MediaInput, RelayCalls, Release
from wanderbus.sip.proxy.bindings import Binding, Domain, ExpiryPolicy
from wanderbus.sip.proxy.domain_servers import DomainLookedUp, FindDomain, OtherDomains
from wanderbus.sip.proxy.location import LocationService
from wanderbus.sip.proxy.proxy import Proxy
from wanderbus.sip.proxy.proxy_signals import Command, Report
from wanderbus.sip.proxy.registrar import Registrar
from wanderbus.sip.proxy.routing_script import RoutingFailed, RoutingScript
from wanderbus.sip.transaction.flood_limits import DEFAULT_LIMITS, FloodGuard
from wanderbus.sip.transaction.transaction_layer import TransactionLayer
from wanderbus.sip.transaction.transaction_places import KnownPeers
from wanderbus.sip.transaction.transaction_signals import (
    ForgetTransaction,
    LayerInput,
    LayerOutput,
    LayerReport,
    RequestReceived,
    Respond,
)
from wanderbus.sip.transaction.transaction_states import Judgement

SOCKET: Final = "sip"
"""Name of the machine's only socket."""

LAYER: Final = Part[LayerInput, LayerOutput]("transactions")
PROXY: Final = Part[Report, Command]("proxy")
MEDIA: Final = Part[MediaInput, Output]("media")
"""Parts of the SIP server; the registrar is an object whose methods it calls."""

RETRY_LATER: Final = ("Retry-After", "5")
"""Retry-After of a 503 to a source that sends too much, in seconds (RFC 3261 20.33)."""


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
    register through them. ``access`` decides which access server gets a request. With ``visit_key``, calls of users to
    trusted domains are proved, once the wall clock is known.

    Reports :class:`wanderbus.sip.proxy.location.BindingChanged`, :class:`wanderbus.sip.proxy.location.BindingsWritten`
    (before the response to the REGISTER), :class:`wanderbus.refusals.LoginRefused` and
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
        access: AccessPolicy | None = None,
        visit_key: bytes = b"",
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
        self._layer = TransactionLayer(
            random,
            socket=SOCKET,
            transports=served.transports,
            local=address,
            local_streams=served.streams,
            peers=KnownPeers(always=frozenset(map(network_of, edge_proxies))),
        )
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
            access,
            visit_key,
        )
        self._has_media = media is not None
        self._parts = Composition[Output]()
        self._parts.add(LAYER, self._layer.step, self._route_layer)
        self._parts.add(PROXY, self._proxy.step, self._route_proxy)
        if media is not None:
            self._parts.add(MEDIA, media.step, self._route_media)

    @property
    def transaction_count(self) -> int:
        """Return the number of transactions that exist."""
        return self._layer.transaction_count

    @property
    def drops(self) -> Mapping[str, int]:
        """Number of discarded or refused messages so far, by reason."""
        return self._layer.drops

    def restore(self, bindings: Mapping[str, Sequence[Binding]], now: float) -> list[Output]:
        """Restore the bindings of an earlier process, with times relative to ``now``; return their timers."""
        for each in (binding for held in bindings.values() for binding in held):
            with contextlib.suppress(SIPParseError):
                contact = SIPUri.parse(each.contact)
                target = nat_contacts.alias_target(contact)
                self._layer.peers.note(contact.host if target is None else target.address[0], now)
        return scoped("registrar", self._registrar.restore(bindings, now))

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Process inputs and timers at monotonic second ``now``; return messages to send, timers and reports."""
        for given in inputs:
            self._sort(given, now)
            self._parts.run(now)
        self._parts.emit(*self._authenticator.take_refusals(), *self._flood.take_limited(now))
        return self._parts.take_outputs()

    def _sort(self, given: Input, now: float) -> None:
        """Give one input to its part."""
        match given:
            case ClockRead(wall_us=wall_us):
                self._proxy.clock_read(wall_us)
            case TimerFired(key=("registrar", str(aor))):
                self._parts.emit(*scoped("registrar", self._registrar.expire(aor, now)))
            case TimerFired(key=key):
                self._parts.give_timer(key)
            case DomainLookedUp():
                self._parts.give(PROXY, [given])
            case DatagramReceived(socket=anchoring.SOCKET):
                if self._has_media:
                    self._parts.give(MEDIA, [given])
            case DatagramReceived(socket=socket, data=data) if socket == SOCKET and data[:4] != b"SIP/":
                self._admit(given, now)
            case DatagramReceived() | StreamReceived() | StreamClosed():
                self._parts.give(LAYER, [given])

    def _admit(self, given: DatagramReceived, now: float) -> None:
        """Admit a datagram that is no response, unless its source sends too many."""
        match self._judged(given.source, now, len(given.data)):
            case Judgement.ADMITTED:
                self._parts.give(LAYER, [given])
            case Judgement.REFUSED:
                origin = Origin(given.source, datagram_bytes=len(given.data))
                self._parts.emit(*self._layer.refuse(origin, given.data, 503, [RETRY_LATER]))
            case Judgement.DROPPED:
                pass

    def _judged(self, source: Address, now: float, size: int, *, vouched: bool = False) -> Judgement:
        known = vouched or self._layer.peers.knows(network_of(source[0]), now)
        judgement = self._flood.judge(source[0], now, size, known=known)
        if judgement is not Judgement.ADMITTED:
            self._layer.drops["flood"] += 1
        return judgement

    def _route_layer(self, outputs: list[LayerOutput], now: float) -> None:
        """Pass reports on REGISTER to the registrar, and all others to the proxy as one batch."""
        for_proxy: list[Report] = []
        for output in outputs:
            if isinstance(output, RequestReceived):
                if self._is_admitted(output, now):
                    if output.request.method == "REGISTER":
                        self._register(output, now)
                    else:
                        for_proxy.append(output)
            elif isinstance(output, LayerReport):
                for_proxy.append(output)
            else:
                self._parts.emit(output)
        self._parts.give(PROXY, for_proxy)

    def _route_proxy(self, commands: list[Command], now: float) -> None:
        """Pass commands to the transaction layer and to the relays, each as one batch."""
        for_layer: list[LayerInput] = []
        for_media: list[MediaInput] = []
        for command in commands:
            match command:
                case SetTimer() | CancelTimer() | RoutingFailed() | FindDomain():
                    self._parts.emit(command)
                case Describe() | Release():
                    for_media.append(command)
                case _:
                    for_layer.append(command)
        self._parts.give(MEDIA, for_media)
        self._parts.give(LAYER, for_layer)

    def _route_media(self, outputs: list[Output], now: float) -> None:
        """Pass the descriptions of relays to the proxy as one batch."""
        for output in outputs:
            if not isinstance(output, Described):
                self._parts.emit(output)
        self._parts.give(PROXY, [output for output in outputs if isinstance(output, Described)])

    def _is_admitted(self, report: RequestReceived, now: float) -> bool:
        """Return whether to serve a request; refuse one from a stream whose peer sends too many.

        A stream is limited by its requests: received data may be any part of one.
        """
        if report.connection is None:
            return True
        judgement = self._judged(report.source, now, report.request.content_bytes, vouched=bool(report.peer_domains))
        if judgement is not Judgement.ADMITTED:
            self._parts.give(LAYER, [_refused(report, judgement)])
        return judgement is Judgement.ADMITTED

    def _register(self, report: RequestReceived, now: float) -> None:
        response, written = self._registrar.register(self._with_alias(report), now, report.connection)
        # A 200 goes to an authenticated user; any other response to a source address that may be forged.
        # It needs no state either: a device that is challenged again after a loss needs one more round trip.
        proved = response.status == 200
        if proved:
            self._layer.peers.note(report.source[0], now)
        self._parts.emit(*scoped("registrar", written))
        self._parts.give(LAYER, [Respond(report.transaction, response, stateless=not proved)])

    def _with_alias(self, register: RequestReceived) -> Request:
        """Return a REGISTER with the alias of its source, unless a known proxy forwarded it.

        Anybody can write a second Via, and a Contact under it that leads to another device.
        """
        if register.source[0] in self._edge_proxies:
            return nat_contacts.with_alias(register)
        return nat_contacts.marked(register.request, register.source, register.transport)


def _refused(report: RequestReceived, judgement: Judgement) -> Respond | ForgetTransaction:
    if judgement is Judgement.DROPPED:
        return ForgetTransaction(report.transaction)
    return Respond(report.transaction, make_response(report.request, 503, headers=[RETRY_LATER]), stateless=True)
