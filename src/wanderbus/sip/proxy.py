"""The proxy: carries requests for users of the domain to where they are now (RFC 3261 16, SPEC D-07, D-09, X11).

Stateful and pure: it takes what the transaction layer reports and returns what the layer has to do. Each request
goes to one target, the first binding of the address of record. It adds no Record-Route, so that once a call stands
the parties talk directly; and it forwards nothing that is not for its own domain, so that it is no open relay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import Final

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.machine import Address, CancelTimer, RandomSource, SetTimer, TimerFired
from wanderbus.sip.client_transactions import make_cancel
from wanderbus.sip.headers import Via
from wanderbus.sip.location import SIP_PORT, Domain, LocationService
from wanderbus.sip.message import Request, Response, make_response
from wanderbus.sip.response_routing import sent_by
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

MAX_FORWARDS: Final = 70
"""Hops a request may still make, at most (RFC 3261 16.6 item 3)."""

TIMER_C_S: Final = 185.0
"""How long a callee may let an INVITE wait after each sign of life (RFC 3261 16.6 item 11: over 3 minutes)."""

SETTLING_S: Final = 32.0
"""64*T1: how long repeated 2xx come in, or the end of a cancelled INVITE is awaited (RFC 3261 9.1, 13.3.1.4)."""

ALLOWED_METHODS: Final = "INVITE, ACK, CANCEL, OPTIONS, BYE, REGISTER"

Report = RequestReceived | AckReceived | CancelReceived | ResponseReceived | TransactionTimedOut | TimerFired
"""What the proxy is told: the transaction layer's reports and its own timers."""

Command = SendRequest | Respond | SendAck | ForgetTransaction | SetTimer | CancelTimer
"""What the proxy asks for: inputs of the transaction layer, and timers whose key is a server transaction."""


class _Stage(Enum):
    WAITING = auto()
    CANCELLED = auto()
    ACCEPTED = auto()


class _Forwarding:
    """One request under way: the response context of RFC 3261 16, with a single branch."""

    def __init__(self, received: Request, sent: Request, destination: Address) -> None:
        self.received = received
        self.sent = sent
        self.destination = destination
        self.stage = _Stage.WAITING


class Proxy:
    """Forwards what the transaction layer reports; REGISTER is the registrar's and does not come here.

    ``knows`` says whether a user of the domain exists.
    """

    def __init__(
        self, domain: Domain, location: LocationService, knows: Callable[[str], bool], random: RandomSource
    ) -> None:
        self._domain = domain
        self._location = location
        self._knows = knows
        self._random = random
        self._forwardings: dict[str, _Forwarding] = {}

    def __len__(self) -> int:
        return len(self._forwardings)

    def step(self, reports: Iterable[Report], now: float) -> list[Command]:
        """Take reports in order at monotonic second ``now``; return what the transaction layer has to do."""
        commands: list[Command] = []
        for report in reports:
            commands += self._handle(report, now)
        return commands

    def _handle(self, report: Report, now: float) -> list[Command]:
        match report:
            case RequestReceived(transaction=transaction, request=request):
                return self._request(transaction, request, now)
            case AckReceived(request=request):
                return self._ack(request, now)
            case CancelReceived(transaction=transaction):
                return self._cancel(transaction, now)
            case ResponseReceived(transaction=branch, response=response):
                return self._response(_transaction_of(branch), response, now)
            case TransactionTimedOut(transaction=name):
                return self._timed_out(name)
            case TimerFired(key=str(transaction)):
                return self._timer_c(transaction, now)
        return []

    def _request(self, transaction: str, request: Request, now: float) -> list[Command]:
        """Answer the request here or send it on (RFC 3261 16.2)."""
        try:
            answer = self._answered_here(request)
            target = self._target(request, now) if answer is None else None
        except SIPParseError as error:
            answer, target = self._answer(request, error.status or 400), None
        if isinstance(target, int):
            answer = self._answer(request, target)
        if answer is not None:
            return [Respond(transaction, answer)]
        assert isinstance(target, SIPUri)
        if len(self._forwardings) >= PROXIED_TRANSACTIONS_MAX:
            return [Respond(transaction, self._answer(request, 503))]
        return self._forward(transaction, request, target, now)

    def _answered_here(self, request: Request) -> Response | None:
        """Answer what is for this server itself or must go no further (RFC 3261 16.3)."""
        if request.uri.partition(":")[0].lower() != "sip":
            return self._answer(request, 416)
        uri = SIPUri.parse(request.uri)
        if uri.user is None and self._domain.serves(uri):
            return self._answer(request, 200 if request.method == "OPTIONS" else 405, [("Allow", ALLOWED_METHODS)])
        if request.max_forwards == 0:
            return self._answer(request, 483)
        if self._has_looped(request):
            return self._answer(request, 482)
        required = request.headers_all("Proxy-Require")
        if required:
            return self._answer(request, 420, [("Unsupported", ", ".join(required))])
        return None

    def _target(self, request: Request, now: float) -> SIPUri | int:
        """Return the contact to send ``request`` to, or the status to refuse it with (RFC 3261 16.4 and 16.5).

        Raises:
            SIPParseError: Request-URI or Route cannot be read.
        """
        uri = SIPUri.parse(request.uri)
        if not self._domain.serves(uri) or not all(self._domain.serves(route.uri) for route in request.routes):
            return 403
        user = SIPUri.parse(uri.address_of_record).user
        if user is None or not self._knows(user):
            return 404
        contacts = self._location.contacts(self._domain.address_of_record(user), now)
        return SIPUri.parse(contacts[0]) if contacts else 480

    def _forward(self, transaction: str, request: Request, target: SIPUri, now: float) -> list[Command]:
        """Send ``request`` to ``target`` and keep its context (RFC 3261 16.6)."""
        forwarding = _Forwarding(request, _onward(request, target), _address(target))
        self._forwardings[transaction] = forwarding
        send = SendRequest(_branch_of(transaction), forwarding.sent, forwarding.destination, _loop_mark(request))
        if request.method != "INVITE":
            return [send]
        return [Respond(transaction, make_response(request, 100)), send, SetTimer(transaction, now + TIMER_C_S)]

    def _response(self, transaction: str, response: Response, now: float) -> list[Command]:
        """Pass a response back along the Vias (RFC 3261 16.7); a lone Via is our own, so the response ends here."""
        forwarding = self._forwardings.get(transaction)
        if forwarding is None or len(response.headers_all("Via")) < 2:
            return []
        invite = forwarding.received.method == "INVITE"
        commands: list[Command] = []
        if response.status >= 300 or (response.status >= 200 and not invite):
            commands += self._drop(transaction)
        elif response.status >= 200:
            forwarding.stage = _Stage.ACCEPTED
            commands.append(SetTimer(transaction, now + SETTLING_S))
        elif invite and forwarding.stage is _Stage.WAITING:
            commands.append(SetTimer(transaction, now + TIMER_C_S))
        if response.status != 100:
            commands.append(Respond(transaction, _backward(response)))
        return commands

    def _cancel(self, transaction: str, now: float) -> list[Command]:
        """Cancel the branch of an INVITE (RFC 3261 16.10); its 487 comes back as any response does."""
        forwarding = self._forwardings.get(transaction)
        if forwarding is None or forwarding.stage is not _Stage.WAITING:
            return []
        forwarding.stage = _Stage.CANCELLED
        cancel = SendRequest(f"cancel {transaction}", make_cancel(forwarding.sent), forwarding.destination)
        return [cancel, SetTimer(transaction, now + SETTLING_S)]

    def _timed_out(self, name: str) -> list[Command]:
        """End a context whose callee or caller is gone (RFC 3261 16.9); only an INVITE gets a 408 (RFC 4320 4.2)."""
        transaction = _transaction_of(name)
        forwarding = self._forwardings.get(transaction)
        if forwarding is None:
            return []
        commands = self._drop(transaction)
        if name == transaction:
            commands.append(ForgetTransaction(_branch_of(transaction)))
        elif forwarding.received.method == "INVITE":
            commands.append(Respond(transaction, self._answer(forwarding.received, 408)))
        return commands

    def _timer_c(self, transaction: str, now: float) -> list[Command]:
        """Cancel a callee who rings for ever, give up one who does not end (RFC 3261 16.8)."""
        forwarding = self._forwardings.get(transaction)
        if forwarding is None:
            return []
        if forwarding.stage is _Stage.WAITING:
            return self._cancel(transaction, now)
        commands = self._drop(transaction)
        if forwarding.stage is _Stage.CANCELLED:
            commands.append(ForgetTransaction(_branch_of(transaction)))
            commands.append(Respond(transaction, self._answer(forwarding.received, 408)))
        return commands

    def _ack(self, request: Request, now: float) -> list[Command]:
        """Pass on the ACK for a 2xx, statelessly; what cannot be passed on is dropped, for an ACK has no answer."""
        try:
            target = self._target(request, now)
            exhausted = request.max_forwards == 0 or any(map(self._is_ours, request.vias))
        except SIPParseError:
            return []
        if exhausted or isinstance(target, int):
            return []
        return [SendAck(_onward(request, target), _address(target))]

    def _has_looped(self, request: Request) -> bool:
        """Say whether this very request was here before, with the same target (RFC 3261 16.3 item 4, RFC 5393)."""
        mark = _loop_mark(request)
        return any(self._is_ours(via) and (via.branch or "").endswith(mark) for via in request.vias)

    def _is_ours(self, via: Via) -> bool:
        return sent_by(via) == self._domain.address

    def _drop(self, transaction: str) -> list[Command]:
        forwarding = self._forwardings.pop(transaction)
        return [CancelTimer(transaction)] if forwarding.received.method == "INVITE" else []

    def _answer(self, request: Request, status: int, headers: Sequence[tuple[str, str]] = ()) -> Response:
        return make_response(request, status, to_tag=self._random.token(8).hex(), headers=headers)


def _branch_of(transaction: str) -> str:
    """Name the client transaction that carries on a server transaction."""
    return f"proxy {transaction}"


def _transaction_of(branch: str) -> str:
    return branch.removeprefix("proxy ")


def _address(target: SIPUri) -> Address:
    return target.host, target.port or SIP_PORT


def _onward(request: Request, target: SIPUri) -> Request:
    """Return ``request`` as it leaves: new Request-URI, one hop less, our Route gone (RFC 3261 16.6 items 1 to 6)."""
    hops = request.max_forwards
    left = MAX_FORWARDS if hops is None else min(hops, MAX_FORWARDS) - 1
    moved = msgspec.structs.replace(request, uri=str(target)).without("Route")
    return moved.replacing("Max-Forwards", str(left))


def _backward(response: Response) -> Response:
    """Return ``response`` without our Via; a 503 is the callee's, not ours, and becomes 500 (RFC 3261 16.7 item 6)."""
    passed = response.without_first("Via")
    if passed.status == 503:
        return msgspec.structs.replace(passed, status=500, reason="Server Internal Error")
    return passed


def _loop_mark(request: Request) -> str:
    """Digest what decides where ``request`` goes; it ends our branch (RFC 3261 16.6 item 8; no Via: RFC 5393)."""
    parts = [request.uri, request.call_id, str(request.cseq.number), request.from_.tag or "", request.to.tag or ""]
    parts += [str(route) for route in request.routes]
    return "." + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
