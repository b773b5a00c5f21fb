"""Client transactions: a request and its responses, with retransmission over UDP (RFC 3261 17.1, RFC 6026 7.2).

Requests are sent with our Via already on top. A stream failure ends every transaction that waits for a response on it.
The INVITE transaction acknowledges refusals itself; the ACK for a 2xx is the transaction user's.
"""

from __future__ import annotations

from typing import Final

from wanderbus.machine import CancelTimer
from wanderbus.sip.message.headers import Via
from wanderbus.sip.message.message import Message, Request, Response, encode_message
from wanderbus.sip.message.targets import Path, sent_by
from wanderbus.sip.transaction.message_editor import MessageEditor
from wanderbus.sip.transaction.transaction_machine import Running, Table, TransactionMachine
from wanderbus.sip.transaction.transaction_signals import LayerOutput, ResponseReceived, TransactionTimedOut
from wanderbus.sip.transaction.transaction_states import BaseTimers, State, Trigger

INVITE_CLIENT: Final[Table] = {
    (State.CALLING, Trigger.TIMER_A): State.CALLING,
    (State.CALLING, Trigger.TIMER_B): State.TERMINATED,
    (State.CALLING, Trigger.TRANSPORT_FAILED): State.TERMINATED,
    (State.CALLING, Trigger.PROVISIONAL): State.PROCEEDING,
    (State.CALLING, Trigger.SUCCESS): State.ACCEPTED,
    (State.CALLING, Trigger.FAILURE): State.COMPLETED,
    (State.PROCEEDING, Trigger.PROVISIONAL): State.PROCEEDING,
    (State.PROCEEDING, Trigger.SUCCESS): State.ACCEPTED,
    (State.PROCEEDING, Trigger.FAILURE): State.COMPLETED,
    (State.PROCEEDING, Trigger.TIMER_B): State.TERMINATED,
    (State.PROCEEDING, Trigger.TRANSPORT_FAILED): State.TERMINATED,
    (State.COMPLETED, Trigger.FAILURE): State.COMPLETED,
    (State.COMPLETED, Trigger.TIMER_D): State.TERMINATED,
    (State.ACCEPTED, Trigger.SUCCESS): State.ACCEPTED,
    (State.ACCEPTED, Trigger.TIMER_M): State.TERMINATED,
}
"""RFC 3261 17.1.1.2, figure 5, with the Accepted state of RFC 6026 7.2.

The figure has no transport error while Proceeding, because nothing is sent then. But the response was expected on the
closed connection, and a device that accepts no connections cannot receive it on another. The figure also has no timeout
for a cancelled INVITE: timer B ends it 64*T1 after its CANCEL (RFC 3261 9.1).
"""

INVITE_CLIENT_TIMERS: Final[Running] = {
    State.CALLING: frozenset({Trigger.TIMER_A, Trigger.TIMER_B}),
    State.PROCEEDING: frozenset({Trigger.TIMER_B}),
    State.COMPLETED: frozenset({Trigger.TIMER_D}),
    State.ACCEPTED: frozenset({Trigger.TIMER_M}),
}

NON_INVITE_CLIENT: Final[Table] = {
    (State.TRYING, Trigger.TIMER_E): State.TRYING,
    (State.TRYING, Trigger.TIMER_F): State.TERMINATED,
    (State.TRYING, Trigger.PROVISIONAL): State.PROCEEDING,
    (State.TRYING, Trigger.FINAL): State.COMPLETED,
    (State.TRYING, Trigger.TRANSPORT_FAILED): State.TERMINATED,
    (State.PROCEEDING, Trigger.TIMER_E): State.PROCEEDING,
    (State.PROCEEDING, Trigger.TIMER_F): State.TERMINATED,
    (State.PROCEEDING, Trigger.PROVISIONAL): State.PROCEEDING,
    (State.PROCEEDING, Trigger.FINAL): State.COMPLETED,
    (State.PROCEEDING, Trigger.TRANSPORT_FAILED): State.TERMINATED,
    (State.COMPLETED, Trigger.TIMER_K): State.TERMINATED,
}
"""RFC 3261 17.1.2.2, figure 6."""

NON_INVITE_CLIENT_TIMERS: Final[Running] = {
    State.TRYING: frozenset({Trigger.TIMER_E, Trigger.TIMER_F}),
    State.PROCEEDING: frozenset({Trigger.TIMER_E, Trigger.TIMER_F}),
    State.COMPLETED: frozenset({Trigger.TIMER_K}),
}

_MAX_FORWARDS = ("Max-Forwards", "70")


class ClientTransaction(TransactionMachine):
    """Common part of INVITE and other client transactions: one message, retransmitted over UDP.

    ``data`` is the message that may be sent again: the request, then the ACK of a refusal.
    """

    __slots__ = ("_interval_s", "data", "path", "request", "sent_by")

    def __init__(self, name: str, request: Request, path: Path, timers: BaseTimers) -> None:
        super().__init__(name, timers, reliable=path.target.reliable)
        self.request: Request | None = request
        """The request; None once there is a final response."""
        self.path = path
        self.sent_by = sent_by(request.via)
        """The sent-by of our Via: every response carries it (RFC 3261 18.1.2)."""
        self.data = encode_message(request)
        self._interval_s = timers.t1_s

    @property
    def via(self) -> Via:
        """Our Via, while there is no final response."""
        assert self.request is not None
        return self.request.via

    @property
    def repeated(self) -> bool:
        """Return whether the request was retransmitted."""
        return self._interval_s > self.timers.t1_s

    def continue_on(self, path: Path, request: Request) -> None:
        """Send everything further on ``path``, where ``request`` was sent too, and got the first answer."""
        self.path, self.request = path, request
        self.sent_by, self.data = sent_by(request.via), encode_message(request)

    def start(self, now: float) -> list[LayerOutput]:
        """Send the request for the first time."""
        return [self.path.send(self.data), *self._start_timers(now)]

    def fail(self, now: float) -> list[LayerOutput]:
        """Handle the failure of the stream; a transaction with a final response no longer needs it."""
        return self._advance(Trigger.TRANSPORT_FAILED, now)

    def receive(self, response: Response, now: float) -> list[LayerOutput]:
        """Handle a response that matches this transaction (RFC 3261 17.1.3)."""
        return self._advance(self._trigger(response.status), now, response)

    def conclude(self) -> None:
        """Delete the request after its final response."""
        self.request = None

    def _trigger(self, status: int) -> Trigger:
        raise NotImplementedError

    def _report(self, response: Message | None) -> LayerOutput:
        assert isinstance(response, Response)
        return ResponseReceived(self.name, response)


class InviteClientTransaction(ClientTransaction):
    """RFC 3261 17.1.1."""

    table = INVITE_CLIENT
    running = INVITE_CLIENT_TIMERS
    initial = State.CALLING

    __slots__ = ("_editor", "given_up", "repeats")

    def __init__(
        self, name: str, request: Request, path: Path, timers: BaseTimers, editor: MessageEditor | None = None
    ) -> None:
        super().__init__(name, request, path, timers)
        self._editor = editor
        self.given_up = False
        """True if it is cancelled, or will be after its first provisional response."""
        self.repeats = True
        """True if it is retransmitted until a response arrives."""

    def silence(self) -> list[LayerOutput]:
        """Stop retransmitting; responses are handled as before."""
        self.repeats = False
        return [CancelTimer(Trigger.TIMER_A.value)] if self.state is State.CALLING and not self.reliable else []

    def expire(self, now: float) -> list[LayerOutput]:
        """Set the timeout for the final response to 64*T1 from now."""
        return [self._set(Trigger.TIMER_B, now)]

    def _running_in(self, state: State) -> frozenset[Trigger]:
        """Return the timers of ``state``; while Proceeding, only a cancelled INVITE has one."""
        waits = state is State.PROCEEDING and not self.given_up
        return frozenset() if waits else super()._running_in(state)

    def _trigger(self, status: int) -> Trigger:
        if status < 200:
            return Trigger.PROVISIONAL
        return Trigger.SUCCESS if status < 300 else Trigger.FAILURE

    def _act(self, trigger: Trigger, previous: State, now: float, message: Message | None) -> list[LayerOutput]:
        match trigger:
            case Trigger.TIMER_A:
                self._interval_s *= 2
                return [self.path.send(self.data), self._set(trigger, now, self._interval_s)]
            case Trigger.TIMER_B:
                return [TransactionTimedOut(self.name)]
            case Trigger.TRANSPORT_FAILED:
                return [TransactionTimedOut(self.name, "transport")]
            case Trigger.SUCCESS:
                self.data = b""
                return [self._report(message)]
            case Trigger.PROVISIONAL:
                return [self._report(message)]
            case Trigger.FAILURE:
                return self._confirm(message)
            case _:
                return []

    def _confirm(self, message: Message | None) -> list[LayerOutput]:
        """Acknowledge each copy of a refusal with the same ACK; report the first copy."""
        assert isinstance(message, Response)
        if self.request is None:
            return [self.path.send(self.data)]
        ack = make_failure_ack(self.request, message)
        self.data = encode_message(ack if self._editor is None else self._editor.request(ack))
        return [self.path.send(self.data), self._report(message)]


class NonInviteClientTransaction(ClientTransaction):
    """RFC 3261 17.1.2."""

    table = NON_INVITE_CLIENT
    running = NON_INVITE_CLIENT_TIMERS
    initial = State.TRYING

    __slots__ = ()

    def _trigger(self, status: int) -> Trigger:
        return Trigger.PROVISIONAL if status < 200 else Trigger.FINAL

    def _act(self, trigger: Trigger, previous: State, now: float, message: Message | None) -> list[LayerOutput]:
        match trigger:
            case Trigger.TIMER_E:
                doubled_s = min(2 * self._interval_s, self.timers.t2_s)
                self._interval_s = self.timers.t2_s if self.state is State.PROCEEDING else doubled_s
                return [self.path.send(self.data), self._set(trigger, now, self._interval_s)]
            case Trigger.TIMER_F:
                return [TransactionTimedOut(self.name)]
            case Trigger.TRANSPORT_FAILED:
                return [TransactionTimedOut(self.name, "transport")]
            case Trigger.FINAL:
                self.data = b""
                return [self._report(message)]
            case Trigger.PROVISIONAL:
                return [self._report(message)]
            case _:
                return []


def make_failure_ack(invite: Request, response: Response) -> Request:
    """Return the ACK for a 300-699 ``response`` to ``invite``, which carries our Via (RFC 3261 17.1.1.3).

    Raises:
        SIPParseError: ``invite`` or ``response`` lacks a header field that the ACK copies.
    """
    headers = [("Via", str(invite.via)), _MAX_FORWARDS, ("From", _header(invite, "From"))]
    headers += [("To", _header(response, "To")), ("Call-ID", invite.call_id), ("CSeq", f"{invite.cseq.number} ACK")]
    return Request("ACK", invite.uri, (*headers, *_routes(invite)))


def make_cancel(invite: Request) -> Request:
    """Return the CANCEL of ``invite``, without a Via: :class:`SendRequest` gives it the INVITE's (RFC 3261 9.1).

    Raises:
        SIPParseError: ``invite`` lacks a header field that the CANCEL copies.
    """
    headers = [_MAX_FORWARDS, ("From", _header(invite, "From")), ("To", _header(invite, "To"))]
    headers += [("Call-ID", invite.call_id), ("CSeq", f"{invite.cseq.number} CANCEL")]
    return Request("CANCEL", invite.uri, (*headers, *_routes(invite)))


def _header(message: Message, name: str) -> str:
    return message.header(name) or ""


def _routes(request: Request) -> list[tuple[str, str]]:
    return [("Route", value) for value in request.headers_all("Route")]
