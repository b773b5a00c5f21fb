"""The proxy: carries requests for users of the domain to where they are now (RFC 3261 16, SPEC D-07, D-09, X11).

Stateful and pure: it takes what the transaction layer reports and returns what the layer has to do. A request goes
to all its targets at once; the first device to accept it wins and the others are cancelled. The proxy steps aside
once a call stands, unless the routing script wants it to stay; and it forwards nothing that is none of its domain's
business, so that it is no open relay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.machine import CancelTimer, RandomSource, SetTimer, TimerFired
from wanderbus.sip import nat
from wanderbus.sip.anchoring import (
    Anchored,
    Describe,
    Described,
    RelayCalls,
    Release,
    described,
    describes,
    offers,
    release_of,
)
from wanderbus.sip.checks import unforwardable
from wanderbus.sip.client_transactions import make_cancel
from wanderbus.sip.headers import NameAddr
from wanderbus.sip.location import Domain, LocationService
from wanderbus.sip.media_desk import MediaDesk, Passage
from wanderbus.sip.message import Request, Response, make_response
from wanderbus.sip.own_answers import OwnAnswers
from wanderbus.sip.request_preparation import (
    PathMarks,
    arrived,
    destination_of,
    leaving,
    loop_mark,
    recorded,
    shares_of_breadth,
)
from wanderbus.sip.response_context import Branch, ResponseContext, transaction_of
from wanderbus.sip.routing import DefaultRouting, RoutingFailed, RoutingScript
from wanderbus.sip.target_selection import Refusal, TargetSelector
from wanderbus.sip.targets import Target
from wanderbus.sip.transaction_signals import (
    AckReceived,
    CancelReceived,
    ForgetTransaction,
    RequestReceived,
    Respond,
    ResponseReceived,
    SendAck,
    SendRequest,
    TransactionTimedOut,
)

PROXIED_TRANSACTIONS_MAX: Final = 10_000
"""Requests under way at once; one more is answered 503."""

TIMER_C_S: Final = 185.0
"""How long a callee may let an INVITE wait after each sign of life (RFC 3261 16.6 item 11: over 3 minutes)."""

SETTLING_S: Final = 32.0
"""64*T1: how long repeated 2xx come in, or the end of a cancelled INVITE is awaited (RFC 3261 9.1, 13.3.1.4)."""

CHALLENGE_PATIENCE_S: Final = 1.0
"""How long a challenge waits for devices that give no sign of life: each was asked twice by then."""

RELAY_UNREACHABLE: Final = "Media Relay Unreachable"
"""Why an offer goes nowhere that no relay describes."""

Report = (
    RequestReceived | AckReceived | CancelReceived | ResponseReceived | TransactionTimedOut | TimerFired | Described
)
"""What the proxy is told: the transaction layer's reports, its own timers, and what relays have described."""

Command = (
    SendRequest | Respond | SendAck | ForgetTransaction | SetTimer | CancelTimer | RoutingFailed | Describe | Release
)
"""What the proxy asks for: inputs of the transaction layer, timers whose key is a transaction's name, a report, and
commands for relays."""


class Proxy:
    """Forwards what the transaction layer reports; REGISTER is the registrar's and does not come here.

    ``knows`` says whether a user of the domain exists; ``key`` is a secret for Record-Route; ``routing`` decides
    where requests go; ``connected`` finds the open connection to a device behind NAT; ``relay`` says which calls go by
    a media relay, None where there is none.
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
    ) -> None:
        self._domain = domain
        self._has_relay = relay is not None
        self._answers = OwnAnswers(domain, random)
        self._media = MediaDesk()
        self._marks = PathMarks(domain, key)
        self._selector = TargetSelector(domain, location, knows, routing or DefaultRouting(), connected, relay)
        self._contexts: dict[str, ResponseContext] = {}

    def __len__(self) -> int:
        return len(self._contexts) + len(self._media)

    def step(self, reports: Iterable[Report], now: float) -> list[Command]:
        """Take reports in order at monotonic second ``now``; return what the transaction layer has to do."""
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
                return self._response(report, now)
            case TransactionTimedOut(transaction=name, reason=reason):
                return self._timed_out(name, reason == "transport", now)
            case TimerFired(key=str(name)):
                return self._fired(name, now)
        return []

    def _request(self, received: RequestReceived, now: float) -> list[Command]:
        """Answer the request here or send it on (RFC 3261 16.2 to 16.6)."""
        request, transaction = received.request, received.transaction
        try:
            request = nat.with_way_back(received)
            came = arrived(request, self._domain, self._marks)
            answer = self._answers.to(came.request, request)
            if answer is not None:
                return [_refusal(transaction, answer)]
            chosen = self._selector.select(came, received.source, now)
            if isinstance(chosen, Refusal):
                return self._refuse(transaction, request, chosen)
            return self._carry(Passage(received, came, chosen), now)
        except SIPParseError as error:
            return [self._unreadable(transaction, request, error)]

    def _carry(self, passage: Passage, now: float) -> list[Command]:
        """Send the request on, with an offer once a relay has described that; end what the request ends.

        Raises:
            SIPParseError: a target cannot be sent to, or Max-Breadth cannot be read; nothing was kept.
        """
        request, transaction = passage.received.request, passage.transaction
        shares = shares_of_breadth(request, len(passage.targets.aims))
        if shares is None or len(self) >= PROXIED_TRANSACTIONS_MAX:
            return [_refusal(transaction, self._answers.make(request, 440 if shares is None else 503))]
        trying: list[Command] = (
            [_refusal(transaction, make_response(request, 100))] if request.method == "INVITE" else []
        )
        if passage.targets.relay and offers(request):
            return [*trying, self._media.wait(passage, nat.source_ip(request, passage.received.source))]
        ended = release_of(request) if self._has_relay and request.method == "BYE" else []
        return [*trying, *self._fork(passage, now), *ended]

    def _described(self, report: Described, now: float) -> list[Command]:
        """Go on with what waited for a relay."""
        passage = self._media.take(report.key)
        if passage is None:
            return [*self._media.release(report)]
        request, transaction = passage.received.request, passage.transaction
        if report.sdp is None:
            answer = self._answers.make(request, 503, reason=RELAY_UNREACHABLE)
            return [_refusal(transaction, answer), *self._media.left(Anchored.of(request), None)]
        came = msgspec.structs.replace(passage.came, request=described(passage.came.request, report.sdp))
        try:
            return self._fork(msgspec.structs.replace(passage, came=came), now)
        except SIPParseError as error:
            return [self._unreadable(transaction, request, error), *self._media.drop(request)]

    def _refuse(self, transaction: str, request: Request, refusal: Refusal) -> list[Command]:
        headers = [("Contact", contact) for contact in refusal.contacts]
        answer = self._answers.make(request, refusal.status, headers, reason=refusal.reason)
        responded: list[Command] = [_refusal(transaction, answer)]
        return responded if refusal.failure is None else [refusal.failure, *responded]

    def _unreadable(self, transaction: str, request: Request, error: SIPParseError) -> Command:
        return _refusal(transaction, self._answers.make(request, error.status or 400))

    def _fork(self, passage: Passage, now: float) -> list[Command]:
        """Send the request to every target and keep its context (RFC 3261 16.6).

        Raises:
            SIPParseError: a target cannot be sent to, or Max-Breadth cannot be read; nothing was kept.
        """
        request, chosen = passage.received.request, passage.targets
        context = ResponseContext(passage.transaction, request, now)
        if self._has_relay and offers(request):
            context.anchored = Anchored.of(request) if chosen.relay else None
            context.lets_go = not chosen.relay and request.to.tag is not None
        commands: list[Command] = []
        for aim, share in zip(chosen.aims, shares_of_breadth(request, len(chosen.aims)) or (), strict=True):
            sent, hop = leaving(passage.came.request, aim.uri, breadth=share)
            destination = aim.destination or destination_of(hop)
            if chosen.stay_on_path:
                over = passage.received.transport, destination.transport
                sent = recorded(sent, self._marks.record_routes(request, *over))
            branch = context.add(sent, destination)
            mark, fixed = loop_mark(request), aim.destination is not None
            commands.append(SendRequest(branch.name, sent, destination, mark, aim.connection, fixed))
            if context.is_invite:
                commands.append(SetTimer(branch.name, now + TIMER_C_S))
        self._contexts[context.transaction] = context
        return commands

    def _response(self, received: ResponseReceived, now: float) -> list[Command]:
        """Handle an answer of a branch (RFC 3261 16.7); a lone Via is our own, so the response ends here."""
        response = received.response
        context, branch = self._find(received.transaction)
        if context is None or branch is None or len(response.headers_all("Via")) < 2 or unforwardable(response):
            return []
        branch.showed_life = True
        if response.status >= 300:
            return self._refused(context, branch, response.without_first("Via"), now)
        if response.status == 100 or (response.status < 200 and context.answered):
            return []
        passed = self._passed(context, branch, received)
        if response.status >= 200:
            let_go = release_of(response) if context.lets_go and not context.answered else []
            return [*self._accepted(context, branch, now), *passed, *let_go]
        if context.is_invite and not branch.cancelled:
            return [SetTimer(branch.name, now + TIMER_C_S), *passed]
        return passed

    def _passed(self, context: ResponseContext, branch: Branch, received: ResponseReceived) -> list[Command]:
        """Pass a response on, with the way back to its device; its answer to an anchored offer goes by the relay too.

        What came through another proxy is that one's affair (:mod:`.nat`).
        """
        response, source, seen_at = received.response, received.source, ""
        if source is not None and branch.straight and self._is_recorded_last_by_us(response):
            seen_at = nat.source_ip(response, source)
            response = nat.marked(response, source, received.transport)
        respond = Respond(context.transaction, response.without_first("Via"))
        if context.anchored is None or not describes(response):
            return [respond]
        return [*self._media.hold(respond, seen_at)]

    def _is_recorded_last_by_us(self, response: Response) -> bool:
        return all(self._domain.serves(NameAddr.parse(value).uri) for value in response.headers_all("Record-Route")[:1])

    def _accepted(self, context: ResponseContext, branch: Branch, now: float) -> list[Command]:
        """End the search, for all others are too late; more 2xx to an INVITE may come (RFC 3261 16.7 items 5, 10)."""
        commands = self._ended(context, branch)
        if not context.is_invite:
            return [*commands, *self._drop(context)]
        return commands if context.answered else [*commands, *self._settle(context, now)]

    def _settle(self, context: ResponseContext, now: float) -> list[Command]:
        """Let the branches of an answered INVITE come to their end."""
        context.settle()
        return [*self._cancel_pending(context, now), SetTimer(context.transaction, now + SETTLING_S)]

    def _refused(self, context: ResponseContext, branch: Branch, response: Response, now: float) -> list[Command]:
        """Keep a refusal until all branches have ended; a 6xx speaks for all (RFC 3261 16.7 items 5 and 6)."""
        commands = self._ended(context, branch)
        context.refusals.append(response)
        if response.status >= 600 and context.is_invite:
            commands += self._cancel_pending(context, now)
        return commands + self._conclude(context, now)

    def _conclude(self, context: ResponseContext, now: float) -> list[Command]:
        """Pass on the best answer if there is nothing more to wait for."""
        if context.answered:
            return []
        if not any(context.pending()):
            status = context.best().status if context.refusals else 408
            return [*self._drop(context, refused_with=status), *self._best(context)]
        if context.waits_for_the_silent_alone():
            return [SetTimer(context.transaction, max(now, context.started_at + CHALLENGE_PATIENCE_S))]
        return []

    def _best(self, context: ResponseContext) -> list[Command]:
        """Pass on the best answer; a request nobody answered gets none, unless it is an INVITE (RFC 4320 4.2)."""
        return [_refusal(context.transaction, context.best())] if context.refusals else []

    def _cancelled(self, transaction: str, now: float) -> list[Command]:
        """Cancel all that is open of an INVITE (RFC 3261 16.10); its 487 comes back as any response does."""
        waiting = self._media.take(transaction)
        if waiting is not None:
            request = waiting.received.request
            return [_refusal(transaction, self._answers.make(request, 487)), *self._media.drop(request)]
        context = self._contexts.get(transaction)
        if context is None:
            return []
        context.cancelled = True
        return self._cancel_pending(context, now)

    def _cancel_pending(self, context: ResponseContext, now: float) -> list[Command]:
        commands: list[Command] = []
        for branch in context.pending():
            commands += self._cancel(branch, now)
        return commands

    def _cancel(self, branch: Branch, now: float) -> list[Command]:
        if branch.cancelled:
            return []
        branch.cancelled = True
        cancel = SendRequest(f"{branch.name}/cancel", make_cancel(branch.sent), branch.destination)
        return [cancel, SetTimer(branch.name, now + SETTLING_S)]

    def _timed_out(self, name: str, unreachable: bool, now: float) -> list[Command]:
        """End what waits for somebody who is gone; one who cannot be sent to counts as a 503 (RFC 3261 16.9)."""
        waiting = self._media.take(name)
        if waiting is not None:
            return [*self._media.drop(waiting.received.request)]
        context, branch = self._find(name)
        if context is None:
            return []
        if branch is not None and branch.ended:
            return []
        if branch is not None and unreachable:
            return self._refused(context, branch, self._answers.make(context.received, 503), now)
        if branch is not None:
            return self._gave_up(context, branch, now)
        if name != context.transaction:
            return []
        forgotten = [ForgetTransaction(branch.name) for branch in context.pending()]
        return [*self._drop(context), *forgotten]

    def _fired(self, name: str, now: float) -> list[Command]:
        context, branch = self._find(name)
        if context is None:
            return []
        if branch is None:
            return self._patience_ended(context, now)
        if branch.ended:
            return []
        if branch.cancelled:
            return [ForgetTransaction(branch.name), *self._gave_up(context, branch, now)]
        return self._cancel(branch, now)

    def _patience_ended(self, context: ResponseContext, now: float) -> list[Command]:
        """Forget an INVITE that was answered long ago, or pass on a challenge without waiting for the silent."""
        if context.answered:
            forgotten = [ForgetTransaction(branch.name) for branch in context.pending()]
            return [*self._drop(context), *forgotten]
        if not context.waits_for_the_silent_alone():
            return []
        ending = self._settle(context, now) if context.is_invite else self._drop(context)
        return [*ending, *self._best(context)]

    def _gave_up(self, context: ResponseContext, branch: Branch, now: float) -> list[Command]:
        """Count a branch without a final answer as a 408, or as 487 if nobody waits for it any more (16.8)."""
        if not context.is_invite:
            return [*self._ended(context, branch), *self._conclude(context, now)]
        answer = self._answers.make(context.received, 487 if context.cancelled else 408)
        return self._refused(context, branch, answer, now)

    def _ack(self, received: AckReceived, now: float) -> list[Command]:
        """Pass on the ACK for a 2xx, statelessly; what cannot be passed on is dropped, for an ACK has no answer."""
        request = received.request
        try:
            if request.max_forwards == 0 or any(map(self._answers.is_ours, request.vias)):
                return []
            came = arrived(nat.with_way_back(received), self._domain, self._marks)
            chosen = self._selector.select(came, received.source, now)
            if isinstance(chosen, Refusal):
                return [] if chosen.failure is None else [chosen.failure]
            commands: list[Command] = []
            for aim in chosen.aims:
                sent, hop = leaving(came.request, aim.uri)
                commands.append(SendAck(sent, aim.destination or destination_of(hop), aim.connection))
            return commands
        except SIPParseError:
            return []

    def _find(self, name: str) -> tuple[ResponseContext | None, Branch | None]:
        context = self._contexts.get(transaction_of(name))
        return context, None if context is None else context.branches.get(name)

    def _ended(self, context: ResponseContext, branch: Branch) -> list[Command]:
        branch.end()
        return [CancelTimer(branch.name)] if context.is_invite else []

    def _drop(self, context: ResponseContext, *, refused_with: int | None = None) -> list[Command]:
        """Forget the context and its timers; transactions that still run come to nothing by themselves."""
        del self._contexts[context.transaction]
        ended = [] if context.anchored is None else self._media.left(context.anchored, refused_with)
        names = [context.transaction]
        if context.is_invite:
            names += [branch.name for branch in context.pending()]
        return [*(CancelTimer(name) for name in names), *ended]


def _refusal(transaction: str, response: Response) -> Respond:
    """Return the answer to a request that nobody vouched for: its source may be forged."""
    return Respond(transaction, response, within_request=True)
