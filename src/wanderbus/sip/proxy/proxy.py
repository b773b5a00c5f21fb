"""The proxy: forwards requests to the current contacts of the domain's users (RFC 3261 16, SPEC D-07, D-09, X11).

It is stateful and pure: inputs are reports of the transaction layer, outputs are commands for the layer. A request is
forked to all its targets at once; the first device to accept it wins and the other branches are cancelled. Access
servers are tried one after another (:mod:`.access_choice`). The proxy leaves the path once a call is established,
unless the routing script keeps it there or the call joins two domains. It forwards nothing unrelated to its domain, so
that it is no open relay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.machine import RandomSource, TimerFired
from wanderbus.sip.authentication.digest import Authenticator
from wanderbus.sip.message.message import Request, make_response
from wanderbus.sip.message.targets import Target
from wanderbus.sip.proxy import domain_crossing, nat_contacts
from wanderbus.sip.proxy.access_choice import AccessChoice
from wanderbus.sip.proxy.access_policy import AccessPolicy
from wanderbus.sip.proxy.anchoring import Anchored, Described, RelayCalls, described, offers, release_of
from wanderbus.sip.proxy.asserted_identity import SenderAuthentication, vouched
from wanderbus.sip.proxy.bindings import Domain
from wanderbus.sip.proxy.decisions import Aim, Attempt, DialogSide, Passage, ProxyRefusal, Unproved
from wanderbus.sip.proxy.default_routing import DefaultRouting
from wanderbus.sip.proxy.domain_crossing import DomainCrossing
from wanderbus.sip.proxy.domain_routes import DomainRoutes
from wanderbus.sip.proxy.domain_servers import DomainLookedUp, NotFound, OtherDomains
from wanderbus.sip.proxy.location import LocationService
from wanderbus.sip.proxy.media_queue import MediaQueue
from wanderbus.sip.proxy.proxy_responses import ProxyResponses
from wanderbus.sip.proxy.proxy_signals import Command, Report, refusal, refused_at_once
from wanderbus.sip.proxy.request_preparation import (
    PathMarks,
    arrived,
    destination_of,
    leaving,
    recorded,
    shares_of_breadth,
)
from wanderbus.sip.proxy.response_context import ResponseContext
from wanderbus.sip.proxy.response_forwarding import ResponseForwarding
from wanderbus.sip.proxy.routing_script import RoutingScript
from wanderbus.sip.proxy.target_selection import TargetSelector
from wanderbus.sip.transaction.transaction_signals import (
    AckReceived,
    CancelReceived,
    RequestReceived,
    Respond,
    ResponseReceived,
    SendAck,
    TransactionTimedOut,
)

PROXIED_TRANSACTIONS_MAX: Final = 10_000
"""Largest number of active requests; further ones are refused with 503."""

RELAY_UNREACHABLE: Final = "Media Relay Unreachable"
"""Reason phrase for an offer that no relay describes."""


class Proxy:
    """Forwards the requests that the transaction layer reports, except REGISTER, which the registrar handles.

    ``knows`` returns whether a user of the domain exists; ``key`` is a secret for Record-Route; ``routing`` decides the
    targets of requests; ``connected`` finds the open connection to a device behind NAT; ``relay`` names the calls that
    pass a media relay, None if there is none; ``others`` is the policy for other domains, None forbids them;
    ``authenticator`` authenticates the senders of requests to them; ``access`` is the policy for access servers;
    ``visit_key`` is that of the servers of the domain, for proofs of calls to other domains.
    """

    def __init__(
        self,
        domain: Domain,
        location: LocationService,
        knows: Callable[[str], bool],
        random: RandomSource,
        key: bytes,
        routing: RoutingScript | None = None,
        connected: Callable[[Target], int | None] = lambda target: None,
        relay: RelayCalls | None = None,
        others: OtherDomains | None = None,
        authenticator: Authenticator | None = None,
        access: AccessPolicy | None = None,
        visit_key: bytes = b"",
    ) -> None:
        self._domain = domain
        self._has_relay = relay is not None
        self._answers = ProxyResponses(domain, random)
        self._media = MediaQueue()
        self._marks = PathMarks(domain, key)
        self._routes = DomainRoutes(others)
        self._crossing = DomainCrossing(self._routes, SenderAuthentication(domain, authenticator), visit_key)
        self._access = AccessChoice(access or AccessPolicy())
        self._selector = TargetSelector(
            domain,
            location,
            knows,
            routing or DefaultRouting(),
            connected,
            relay,
            self._access,
            crosses=self._crossing.leads_away,
        )
        self._forwarding = ResponseForwarding(domain, self._answers, self._media, self._crossing.avoid, self._access)

    def __len__(self) -> int:
        return len(self._forwarding) + len(self._media) + len(self._crossing)

    def clock_read(self, wall_us: int) -> None:
        """Note the wall clock."""
        self._crossing.clock_read(wall_us)

    def step(self, reports: Iterable[Report], now: float) -> list[Command]:
        """Process reports in order at monotonic second ``now``; return commands for the transaction layer."""
        commands: list[Command] = []
        for report in reports:
            if isinstance(report, Described):
                commands += self._described(report, now)
            else:
                commands += self._media.in_turn(self._handle(report, now))
        return commands

    def _handle(self, report: Report, now: float) -> list[Command]:
        match report:
            case RequestReceived():
                return self._request(report, now)
            case AckReceived():
                return self._ack(report, now)
            case CancelReceived(transaction=transaction):
                return self._cancelled(transaction, now)
            case ResponseReceived():
                return self._forwarding.responded(report, now)
            case TransactionTimedOut(transaction=name, reason=reason):
                return self._timed_out(name, reason == "transport", now)
            case DomainLookedUp():
                return self._looked_up(report, now)
            case TimerFired(key=(domain_crossing.TIMER, str(domain), int() | None as port)):
                return self._looked_up(DomainLookedUp(domain, port, timed_out=True), now)
            case TimerFired(key=str(name)):
                return self._forwarding.fired(name, now)
        return []

    def _request(self, received: RequestReceived, now: float) -> list[Command]:
        """Respond to the request here or forward it (RFC 3261 16.2 to 16.6)."""
        request, transaction = received.request, received.transaction
        try:
            request = nat_contacts.with_alias(received)
            came = arrived(vouched(request, self._routes.trusted(received.peer_domains)), self._domain, self._marks)
            answer = self._answers.to(came.request, request)
            if answer is not None:
                return [refused_at_once(transaction, answer)]
            chosen = self._selector.select(came, received.source, now)
            if isinstance(chosen, ProxyRefusal):
                return self._refuse(transaction, request, chosen)
            return self._carry(Passage(received, came, chosen), now)
        except SIPParseError as error:
            return [self._unreadable(transaction, request, error)]

    def _carry(self, passage: Passage, now: float) -> list[Command]:
        """Forward the request, after the lookup of another domain if needed; end the calls that the request ends.

        Raises:
            SIPParseError: a target cannot be sent to, or Max-Breadth cannot be read; nothing was stored.
        """
        request, transaction = passage.received.request, passage.transaction
        shares = shares_of_breadth(request, len(passage.targets.aims))
        if shares is None or passage.received.crowded or len(self) >= PROXIED_TRANSACTIONS_MAX:
            return [refused_at_once(transaction, self._answers.make(request, 440 if shares is None else 503))]
        following = self._cross(passage, now)
        if request.method != "INVITE" or any(isinstance(each, Respond) for each in following):
            return following
        return [refusal(transaction, make_response(request, 100)), *following]

    def _cross(self, passage: Passage, now: float) -> list[Command]:
        """Find the servers of the request's other domains, and forward it unless a lookup is needed.

        Raises:
            SIPParseError: as :meth:`_carry`.
        """
        request, transaction = passage.received.request, passage.transaction
        match self._crossing.prepared(passage, now):
            case Unproved(status=status, reason=reason, challenges=challenges, headers=others):
                headers = [*(("Proxy-Authenticate", challenge) for challenge in challenges), *others]
                return [refused_at_once(transaction, self._answers.make(request, status, headers, reason=reason))]
            case NotFound(status=status, reason=reason):
                return [refusal(transaction, self._answers.make(request, status, reason=reason))]
            case Passage() as found:
                return self._anchor(found, now)
            case waiting:
                return waiting

    def _anchor(self, passage: Passage, now: float) -> list[Command]:
        """Forward the request; one with an offer waits until a relay has described it.

        Raises:
            SIPParseError: as :meth:`_carry`.
        """
        request = passage.received.request
        if passage.targets.relay and offers(request):
            return [self._media.wait(passage, nat_contacts.source_ip(request, passage.received.source))]
        ended = release_of(request) if self._has_relay and request.method == "BYE" else []
        return [*self._fork(passage, now), *ended]

    def _looked_up(self, answer: DomainLookedUp, now: float) -> list[Command]:
        """Continue with the requests that waited for the resolver."""
        waiting, commands = self._crossing.looked_up(answer, now)
        for each in waiting:
            if not isinstance(each, Passage):
                commands += self._ack(each.received, now)
                continue
            try:
                commands += self._cross(each, now)
            except SIPParseError as error:
                commands.append(self._unreadable(each.transaction, each.received.request, error))
        return commands

    def _described(self, report: Described, now: float) -> list[Command]:
        """Continue with the messages that waited for a relay."""
        passage = self._media.take(report.key)
        if passage is None:
            return [*self._media.release(report)]
        request, transaction = passage.received.request, passage.transaction
        ended: list[Command] = []
        if report.sdp is not None:
            came = msgspec.structs.replace(passage.came, request=described(passage.came.request, report.sdp))
            passage = msgspec.structs.replace(passage, came=came)
        elif passage.targets.relay_optional:
            targets = msgspec.structs.replace(passage.targets, relay=False)
            passage = msgspec.structs.replace(passage, targets=targets)
            ended += self._media.left(Anchored.of(request), None)
        else:
            answer = self._answers.make(request, 503, reason=RELAY_UNREACHABLE)
            return [refusal(transaction, answer), *self._media.left(Anchored.of(request), None)]
        try:
            return [*ended, *self._fork(passage, now)]
        except SIPParseError as error:
            dropped = self._media.drop(request) if report.sdp is not None else []
            return [self._unreadable(transaction, request, error), *dropped]

    def _refuse(self, transaction: str, request: Request, refused: ProxyRefusal) -> list[Command]:
        headers = [("Contact", contact) for contact in refused.contacts]
        answer = self._answers.make(request, refused.status, headers, reason=refused.reason)
        responded: list[Command] = [refused_at_once(transaction, answer)]
        return responded if refused.failure is None else [refused.failure, *responded]

    def _unreadable(self, transaction: str, request: Request, error: SIPParseError) -> Command:
        return refused_at_once(transaction, self._answers.make(request, error.status or 400))

    def _fork(self, passage: Passage, now: float) -> list[Command]:
        """Send the request to every target and store its context (RFC 3261 16.6).

        Raises:
            SIPParseError: a target cannot be sent to, or Max-Breadth cannot be read; nothing was stored.
        """
        request, chosen = passage.received.request, passage.targets
        context = ResponseContext(passage.transaction, request, now)
        if self._has_relay and offers(request):
            context.anchored = Anchored.of(request) if chosen.relay else None
            context.releases_relay = not chosen.relay and request.to.tag is not None
        commands: list[Command] = []
        for aim, share in zip(chosen.aims, shares_of_breadth(request, len(chosen.aims)) or (), strict=True):
            commands += self._forwarding.send(context, self._attempts(passage, aim, share), now)
        self._forwarding.add(context)
        if request.method == "BYE":
            self._access.end(request.call_id)
        return commands

    def _attempts(self, passage: Passage, aim: Aim, share: int) -> list[Attempt]:
        """Return the attempts to reach ``aim``, in order: further servers follow if the first one fails.

        Raises:
            SIPParseError: a target cannot be sent to.
        """
        sent, destination = self._leaving(passage, aim, share)
        fixed = aim.destination is not None and aim.domain is None
        attempts = [Attempt(sent, destination, aim.connection, fixed, aim.server)]
        attempts += [Attempt(sent, server) for server in aim.alternatives]
        return attempts + [each for other in aim.others for each in self._attempts(passage, other, share)]

    def _leaving(self, passage: Passage, aim: Aim, share: int) -> tuple[Request, Target]:
        """Return the request as sent to ``aim``, and its destination; we stay on the path if it joins two domains.

        Raises:
            SIPParseError: the target cannot be sent to.
        """
        received = passage.received
        sent, hop = leaving(passage.came.request, aim.uri, breadth=share)
        destination = aim.destination or destination_of(hop)
        if passage.targets.stay_on_path or aim.domain is not None or received.peer_domains:
            came = DialogSide(received.transport, by_name=bool(received.peer_domains))
            leaves = DialogSide(
                destination.transport, by_name=aim.domain is not None and destination.transport == "TLS"
            )
            sent = recorded(sent, self._marks.record_routes(received.request, came, leaves))
        return self._crossing.signed(sent, aim, passage.sender), destination

    def _cancelled(self, transaction: str, now: float) -> list[Command]:
        """Cancel a request that waits here, or all its open branches (RFC 3261 16.10)."""
        waiting = self._media.take(transaction)
        dropped = [] if waiting is None else self._media.drop(waiting.received.request)
        waiting = waiting or self._crossing.take(transaction)
        if waiting is not None:
            return [refusal(transaction, self._answers.make(waiting.received.request, 487)), *dropped]
        return self._forwarding.cancelled(transaction, now)

    def _timed_out(self, name: str, unreachable: bool, now: float) -> list[Command]:
        """Give up a request that waits here too long, or a branch that ended (RFC 3261 16.9)."""
        if self._crossing.take(name) is not None:
            return []
        if (waiting := self._media.take(name)) is not None:
            return [*self._media.drop(waiting.received.request)]
        return self._forwarding.timed_out(name, unreachable, now)

    def _ack(self, received: AckReceived, now: float) -> list[Command]:
        """Forward the ACK for a 2xx, statelessly; discard it if that is impossible, for it has no response."""
        request = received.request
        try:
            if request.max_forwards == 0 or any(map(self._answers.is_ours, request.vias)):
                return []
            came = arrived(vouched(nat_contacts.with_alias(received), ()), self._domain, self._marks)
            chosen = self._selector.select(came, received.source, now)
            if isinstance(chosen, ProxyRefusal):
                return [] if chosen.failure is None else [chosen.failure]
            found = self._crossing.acknowledged(received, came, chosen, now)
            if isinstance(found, list):
                return found
            commands: list[Command] = []
            for aim in found.aims:
                sent, hop = leaving(came.request, aim.uri)
                sent = self._crossing.signed(sent, aim, "")
                commands.append(SendAck(sent, aim.destination or destination_of(hop), aim.connection))
            return commands
        except SIPParseError:
            return []
