"""The proxy: carries requests for users of the domain to where they are now (RFC 3261 16, SPEC D-07, D-09, X11).

Stateful and pure: it takes what the transaction layer reports and returns what the layer has to do. A request goes
to all its targets at once; the first device to accept it wins and the others are cancelled. The proxy steps aside
once a call stands, unless the routing script wants it to stay; and it forwards nothing that is none of its domain's
business, so that it is no open relay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from wanderbus.errors import SIPParseError
from wanderbus.machine import CancelTimer, RandomSource, SetTimer, TimerFired
from wanderbus.sip import nat
from wanderbus.sip.checks import proxy_refusal, unforwardable, unsupported_extension
from wanderbus.sip.client_transactions import make_cancel
from wanderbus.sip.headers import NameAddr, Via
from wanderbus.sip.location import Domain, LocationService
from wanderbus.sip.message import Request, Response, make_response
from wanderbus.sip.request_preparation import (
    Arrived,
    PathMarks,
    arrived,
    destination_of,
    leaving,
    loop_mark,
    recorded,
    shares_of_breadth,
)
from wanderbus.sip.response_context import Branch, ResponseContext, transaction_of
from wanderbus.sip.response_routing import sent_by
from wanderbus.sip.routing import DefaultRouting, RoutingFailed, RoutingScript
from wanderbus.sip.target_selection import Refusal, Targets, TargetSelector
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
from wanderbus.sip.uri import SIPUri

PROXIED_TRANSACTIONS_MAX: Final = 10_000
"""Requests under way at once; one more is answered 503."""

TIMER_C_S: Final = 185.0
"""How long a callee may let an INVITE wait after each sign of life (RFC 3261 16.6 item 11: over 3 minutes)."""

SETTLING_S: Final = 32.0
"""64*T1: how long repeated 2xx come in, or the end of a cancelled INVITE is awaited (RFC 3261 9.1, 13.3.1.4)."""

CHALLENGE_PATIENCE_S: Final = 1.0
"""How long a challenge waits for devices that give no sign of life: each was asked twice by then."""

ALLOWED_METHODS: Final = "INVITE, ACK, CANCEL, OPTIONS, BYE, REGISTER"

_CAPABILITIES: Final = (("Allow", ALLOWED_METHODS), ("Accept", "*/*"), ("Supported", ""))
"""What the server can do (RFC 3261 11.2): carry any body, and no extension of its own."""

_TAG_BYTES: Final = 4

Report = RequestReceived | AckReceived | CancelReceived | ResponseReceived | TransactionTimedOut | TimerFired
"""What the proxy is told: the transaction layer's reports and its own timers."""

Command = SendRequest | Respond | SendAck | ForgetTransaction | SetTimer | CancelTimer | RoutingFailed
"""What the proxy asks for: inputs of the transaction layer, timers whose key is a transaction's name, and a report."""


class Proxy:
    """Forwards what the transaction layer reports; REGISTER is the registrar's and does not come here.

    ``knows`` says whether a user of the domain exists; ``key`` is a secret for Record-Route; ``routing`` decides
    where requests go; ``connected`` finds the open connection to a device behind NAT.
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
    ) -> None:
        self._domain = domain
        self._random = random
        self._marks = PathMarks(domain, key)
        self._selector = TargetSelector(domain, location, knows, routing or DefaultRouting(), connected)
        self._contexts: dict[str, ResponseContext] = {}

    def __len__(self) -> int:
        return len(self._contexts)

    def step(self, reports: Iterable[Report], now: float) -> list[Command]:
        """Take reports in order at monotonic second ``now``; return what the transaction layer has to do."""
        commands: list[Command] = []
        for report in reports:
            commands += self._handle(report, now)
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
            request = with_way_back(received)
            came = arrived(request, self._domain, self._marks)
            answer = self._answered_here(came.request, request)
            if answer is not None:
                return [_refusal(transaction, answer)]
            chosen = self._selector.select(came, received.source, now)
            if isinstance(chosen, Refusal):
                return self._refuse(transaction, request, chosen)
            return self._fork(received, came, chosen, now)
        except SIPParseError as error:
            return [_refusal(transaction, self._answer(request, error.status or 400))]

    def _answered_here(self, request: Request, as_it_came: Request) -> Response | None:
        """Answer what is for this server itself or must go no further (RFC 3261 16.3).

        Raises:
            SIPParseError: a header field cannot be read.
        """
        uri = SIPUri.parse(request.uri)
        if uri.user is None and self._domain.serves(uri):
            return self._answered_as_user_agent(request)
        if refusal := proxy_refusal(request):
            return self._answer(request, refusal.status, refusal.headers)
        return self._answer(request, 482) if self._has_looped(as_it_came) else None

    def _answered_as_user_agent(self, request: Request) -> Response:
        """Answer a request to the server itself (RFC 3261 8.2.1, 8.2.2.3, 11.2)."""
        if request.method != "OPTIONS":
            return self._answer(request, 405, [("Allow", ALLOWED_METHODS)])
        if refusal := unsupported_extension(request, "Require", ()):
            return self._answer(request, refusal.status, refusal.headers)
        return self._answer(request, 200, _CAPABILITIES)

    def _refuse(self, transaction: str, request: Request, refusal: Refusal) -> list[Command]:
        headers = [("Contact", contact) for contact in refusal.contacts]
        answer = self._answer(request, refusal.status, headers, reason=refusal.reason)
        responded: list[Command] = [_refusal(transaction, answer)]
        return responded if refusal.failure is None else [refusal.failure, *responded]

    def _fork(self, received: RequestReceived, came: Arrived, chosen: Targets, now: float) -> list[Command]:
        """Send the request to every target and keep its context (RFC 3261 16.6).

        Raises:
            SIPParseError: a target cannot be sent to, or Max-Breadth cannot be read; nothing was kept.
        """
        request, transaction = received.request, received.transaction
        shares = shares_of_breadth(request, len(chosen.aims))
        if shares is None or len(self._contexts) >= PROXIED_TRANSACTIONS_MAX:
            return [_refusal(transaction, self._answer(request, 440 if shares is None else 503))]
        context = ResponseContext(transaction, request, now)
        commands: list[Command] = [_refusal(transaction, make_response(request, 100))] if context.is_invite else []
        for aim, share in zip(chosen.aims, shares, strict=True):
            sent, hop = leaving(came.request, aim.uri, breadth=share)
            destination = aim.destination or destination_of(hop)
            if chosen.stay_on_path:
                sent = recorded(sent, self._marks.record_routes(request, received.transport, destination.transport))
            branch = context.add(sent, destination)
            mark, fixed = loop_mark(request), aim.destination is not None
            commands.append(SendRequest(branch.name, sent, destination, mark, aim.connection, fixed))
            if context.is_invite:
                commands.append(SetTimer(branch.name, now + TIMER_C_S))
        self._contexts[transaction] = context
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
        passed = Respond(context.transaction, self._with_way_back(received, branch).without_first("Via"))
        if response.status >= 200:
            return [*self._accepted(context, branch, now), passed]
        if response.status == 100 or context.answered:
            return []
        if context.is_invite and not branch.cancelled:
            return [SetTimer(branch.name, now + TIMER_C_S), passed]
        return [passed]

    def _with_way_back(self, received: ResponseReceived, branch: Branch) -> Response:
        """Return the response with the way back to its device, unless another proxy lies between (:mod:`.nat`)."""
        response = received.response
        recorded_first = response.headers_all("Record-Route")[:1]
        straight = branch.straight and all(self._domain.serves(NameAddr.parse(value).uri) for value in recorded_first)
        if received.source is None or not straight:
            return response
        return nat.marked(response, received.source, received.transport)

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
            return [*self._drop(context), *self._best(context)]
        if context.waits_for_the_silent_alone():
            return [SetTimer(context.transaction, max(now, context.started_at + CHALLENGE_PATIENCE_S))]
        return []

    def _best(self, context: ResponseContext) -> list[Command]:
        """Pass on the best answer; a request nobody answered gets none, unless it is an INVITE (RFC 4320 4.2)."""
        return [_refusal(context.transaction, context.best())] if context.refusals else []

    def _cancelled(self, transaction: str, now: float) -> list[Command]:
        """Cancel all that is open of an INVITE (RFC 3261 16.10); its 487 comes back as any response does."""
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
        context, branch = self._find(name)
        if context is None:
            return []
        if branch is not None and branch.ended:
            return []
        if branch is not None and unreachable:
            return self._refused(context, branch, self._answer(context.received, 503), now)
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
        answer = self._answer(context.received, 487 if context.cancelled else 408)
        return self._refused(context, branch, answer, now)

    def _ack(self, received: AckReceived, now: float) -> list[Command]:
        """Pass on the ACK for a 2xx, statelessly; what cannot be passed on is dropped, for an ACK has no answer."""
        request = received.request
        try:
            if request.max_forwards == 0 or any(map(self._is_ours, request.vias)):
                return []
            came = arrived(with_way_back(received), self._domain, self._marks)
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

    def _has_looped(self, request: Request) -> bool:
        """Say whether this very request was here before, with the same target (RFC 3261 16.3 item 4, RFC 5393)."""
        mark = loop_mark(request)
        return any(self._is_ours(via) and (via.branch or "").endswith(mark) for via in request.vias)

    def _is_ours(self, via: Via) -> bool:
        return self._domain.is_ours(sent_by(via))

    def _find(self, name: str) -> tuple[ResponseContext | None, Branch | None]:
        context = self._contexts.get(transaction_of(name))
        return context, None if context is None else context.branches.get(name)

    def _ended(self, context: ResponseContext, branch: Branch) -> list[Command]:
        branch.end()
        return [CancelTimer(branch.name)] if context.is_invite else []

    def _drop(self, context: ResponseContext) -> list[Command]:
        """Forget the context and its timers; transactions that still run come to nothing by themselves."""
        del self._contexts[context.transaction]
        names = [context.transaction]
        if context.is_invite:
            names += [branch.name for branch in context.pending()]
        return [CancelTimer(name) for name in names]

    def _answer(
        self, request: Request, status: int, headers: Sequence[tuple[str, str]] = (), *, reason: str | None = None
    ) -> Response:
        return make_response(request, status, reason, to_tag=self._random.token(_TAG_BYTES).hex(), headers=headers)


def with_way_back(received: RequestReceived | AckReceived) -> Request:
    """Return a request with the way back to its device, if it came straight from behind NAT (:mod:`.nat`).

    Raises:
        SIPParseError: a Contact cannot be read.
    """
    request = received.request
    return nat.marked(request, received.source, received.transport) if nat.came_straight(request) else request


def _refusal(transaction: str, response: Response) -> Respond:
    """Return the answer to a request that nobody vouched for: its source may be forged."""
    return Respond(transaction, response, within_request=True)
