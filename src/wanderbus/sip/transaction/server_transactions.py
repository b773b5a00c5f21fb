"""Server transactions: they report a request once and repeat its response (RFC 3261 17.2, RFC 6026 7.1).

Retransmissions of a request are absorbed here and answered with the last response. A response takes the path of the
newest copy of the request, so that a device that moves within a transaction still receives it.

Over UDP a stranger's source may be the address of a victim. So refusals and a 100 together send no more bytes there
than were received from there: a refusal is repeated only within that limit, and a 100 is omitted if it would leave no
room for the refusal.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from wanderbus.sip.message.message import Message, Request, Response, make_response
from wanderbus.sip.message.targets import Path
from wanderbus.sip.transaction.message_editor import MessageEditor
from wanderbus.sip.transaction.transaction_machine import Running, Table, TransactionMachine
from wanderbus.sip.transaction.transaction_signals import LayerOutput, TransactionTimedOut
from wanderbus.sip.transaction.transaction_states import BaseTimers, State, Trigger

INVITE_SERVER: Final[Table] = {
    (State.PROCEEDING, Trigger.REQUEST): State.PROCEEDING,
    (State.PROCEEDING, Trigger.TIMER_TRYING): State.PROCEEDING,
    (State.PROCEEDING, Trigger.SEND_PROVISIONAL): State.PROCEEDING,
    (State.PROCEEDING, Trigger.SEND_SUCCESS): State.ACCEPTED,
    (State.PROCEEDING, Trigger.SEND_FAILURE): State.COMPLETED,
    (State.COMPLETED, Trigger.REQUEST): State.COMPLETED,
    (State.COMPLETED, Trigger.TIMER_G): State.COMPLETED,
    (State.COMPLETED, Trigger.TIMER_H): State.TERMINATED,
    (State.COMPLETED, Trigger.ACK): State.CONFIRMED,
    (State.CONFIRMED, Trigger.TIMER_I): State.TERMINATED,
    (State.ACCEPTED, Trigger.SEND_SUCCESS): State.ACCEPTED,
    (State.ACCEPTED, Trigger.TIMER_L): State.TERMINATED,
}
"""RFC 3261 17.2.1, figure 7, with the Accepted state of RFC 6026 7.1, which absorbs a repeated INVITE."""

INVITE_SERVER_TIMERS: Final[Running] = {
    State.PROCEEDING: frozenset({Trigger.TIMER_TRYING}),
    State.COMPLETED: frozenset({Trigger.TIMER_G, Trigger.TIMER_H}),
    State.CONFIRMED: frozenset({Trigger.TIMER_I}),
    State.ACCEPTED: frozenset({Trigger.TIMER_L}),
}

NON_INVITE_SERVER: Final[Table] = {
    (State.TRYING, Trigger.SEND_PROVISIONAL): State.PROCEEDING,
    (State.TRYING, Trigger.SEND_FINAL): State.COMPLETED,
    (State.TRYING, Trigger.TIMER_EXPIRY): State.TERMINATED,
    (State.PROCEEDING, Trigger.REQUEST): State.PROCEEDING,
    (State.PROCEEDING, Trigger.SEND_PROVISIONAL): State.PROCEEDING,
    (State.PROCEEDING, Trigger.SEND_FINAL): State.COMPLETED,
    (State.PROCEEDING, Trigger.TIMER_EXPIRY): State.TERMINATED,
    (State.COMPLETED, Trigger.REQUEST): State.COMPLETED,
    (State.COMPLETED, Trigger.TIMER_J): State.TERMINATED,
}
"""RFC 3261 17.2.2, figure 8, with a timeout for our own response: after 64*T1 the client has given up, and RFC 4320 4.2
forbids a response.
"""

NON_INVITE_SERVER_TIMERS: Final[Running] = {
    State.TRYING: frozenset({Trigger.TIMER_EXPIRY}),
    State.PROCEEDING: frozenset({Trigger.TIMER_EXPIRY}),
    State.COMPLETED: frozenset({Trigger.TIMER_J}),
}


_TRYING_PART: Final = 3
"""A 100 is sent to a stranger if the INVITE is this many times larger: the rest must suffice for a challenge."""


class ServerTransaction(TransactionMachine):
    """Common part of INVITE and other server transactions: one request, the last response, its destination.

    ``datagram_bytes`` is the size of the request, which limits some responses; None (a stream) means no limit. Once the
    final response is sent, only its bytes are kept, for half a minute. ``key`` is the owner's index key.
    """

    __slots__ = (
        "_allowed_bytes",
        "_datagram_bytes",
        "_editor",
        "_interval_s",
        "_last_data",
        "_path",
        "_within_request",
        "answered_tag",
        "key",
        "known",
        "unanswered",
    )

    def __init__(
        self,
        name: str,
        request: Request,
        path: Path,
        timers: BaseTimers,
        datagram_bytes: int | None = None,
        key: Hashable = None,
        editor: MessageEditor | None = None,
    ) -> None:
        super().__init__(name, timers, reliable=path.target.reliable)
        self.key = key
        self._editor = editor or MessageEditor()
        self.known = False
        """True if the request is from a known peer, or from one that has become known since."""
        self.answered_tag: str | None = None
        """The To tag of the last response."""
        self.unanswered: Request | None = request
        """The request, while there is no final response."""
        self._last_data = b""
        self._path = path
        self._datagram_bytes = datagram_bytes
        self._allowed_bytes = datagram_bytes or 0
        """Number of bytes that may still be sent to a stranger."""
        self._within_request = True
        self._interval_s = timers.t1_s

    def start(self, now: float) -> list[LayerOutput]:
        """Start with the first copy of the request, which the layer reports."""
        return self._start_timers(now)

    def receive_again(self, path: Path, now: float, datagram_bytes: int | None = None) -> list[LayerOutput]:
        """Absorb a retransmission of the request, whose response must take ``path``.

        A datagram shorter than the request is no copy of it, and must not trigger a response sized for the request.
        """
        if self._datagram_bytes is not None and datagram_bytes is not None and datagram_bytes < self._datagram_bytes:
            return []
        self._path = path
        self._allowed_bytes += datagram_bytes or 0
        return self._advance(Trigger.REQUEST, now)

    def respond(self, response: Response, now: float, *, within_request: bool = False) -> list[LayerOutput]:
        """Send ``response`` if the present state allows it; see :class:`Respond` for ``within_request``."""
        self._within_request = within_request
        return self._advance(self._trigger(response.status), now, response)

    def refuse(self, response: Response) -> list[LayerOutput]:
        """Send ``response``, no larger than the request, and end at once."""
        data = self._editor.response(response, self._datagram_bytes)
        return [*([self._path.send(data)] if data else []), *self.stop()]

    @property
    def repeats_refusals(self) -> bool:
        """True if a refusal is retransmitted until it is acknowledged (RFC 3261 17.2.1)."""
        return Trigger.TIMER_G in self._running_in(State.COMPLETED)

    @property
    def kept_bytes(self) -> int:
        """Length of the response that may have to be retransmitted."""
        return len(self._last_data)

    def _trigger(self, status: int) -> Trigger:
        raise NotImplementedError

    def _send(self, response: Message | None) -> list[LayerOutput]:
        assert isinstance(response, Response)
        self.answered_tag = response.to.tag
        self.unanswered = None
        self._last_data = self._editor.response(response, self._bytes_max()) or b""
        if response.status < 200 and self._is_bounded and len(self._last_data) * _TRYING_PART > self._allowed_bytes:
            self._last_data = b""
        return self._replay()

    def _bytes_max(self) -> int | None:
        """Return the largest length of a response, None for no limit."""
        if self._datagram_bytes is None or not self._within_request:
            return None
        return min(self._datagram_bytes, self._allowed_bytes) if self._is_bounded else self._datagram_bytes

    @property
    def _is_bounded(self) -> bool:
        return self._datagram_bytes is not None and self._within_request and not self.known

    def _replay(self) -> list[LayerOutput]:
        if not self._last_data:
            return []
        if self._is_bounded:
            if len(self._last_data) > self._allowed_bytes:
                return []
            self._allowed_bytes -= len(self._last_data)
        return [self._path.send(self._last_data)]


class InviteServerTransaction(ServerTransaction):
    """RFC 3261 17.2.1."""

    table = INVITE_SERVER
    running = INVITE_SERVER_TIMERS
    initial = State.PROCEEDING

    __slots__ = ()

    def acknowledge(self, now: float) -> list[LayerOutput]:
        """Handle an ACK with the branch of this INVITE."""
        return self._advance(Trigger.ACK, now)

    def _trigger(self, status: int) -> Trigger:
        if status < 200:
            return Trigger.SEND_PROVISIONAL
        return Trigger.SEND_SUCCESS if status < 300 else Trigger.SEND_FAILURE

    def _act(self, trigger: Trigger, previous: State, now: float, message: Message | None) -> list[LayerOutput]:
        match trigger:
            case Trigger.SEND_SUCCESS:
                sent = self._send(message)
                self._last_data = b""  # the user retransmits it
                return sent
            case Trigger.SEND_PROVISIONAL if (
                isinstance(message, Response) and message.status == 100 and self._is_bounded
            ):
                # A stranger who has a 100 repeats nothing, and misses a challenge that is lost: the timer sends it.
                return []
            case Trigger.SEND_PROVISIONAL | Trigger.SEND_FAILURE:
                return self._send(message)
            case Trigger.REQUEST:
                return self._replay()
            case Trigger.TIMER_TRYING:
                return self._send(make_response(self.unanswered, 100)) if self.unanswered is not None else []
            case Trigger.TIMER_G:
                self._interval_s = min(2 * self._interval_s, self.timers.t2_s)
                return [*self._replay(), self._set(trigger, now, self._interval_s)]
            case Trigger.TIMER_H:
                return [TransactionTimedOut(self.name)]
            case _:
                return []


class NonInviteServerTransaction(ServerTransaction):
    """RFC 3261 17.2.2."""

    table = NON_INVITE_SERVER
    running = NON_INVITE_SERVER_TIMERS
    initial = State.TRYING

    __slots__ = ()

    def _trigger(self, status: int) -> Trigger:
        return Trigger.SEND_PROVISIONAL if status < 200 else Trigger.SEND_FINAL

    def _act(self, trigger: Trigger, previous: State, now: float, message: Message | None) -> list[LayerOutput]:
        match trigger:
            case Trigger.SEND_PROVISIONAL | Trigger.SEND_FINAL:
                return self._send(message)
            case Trigger.REQUEST:
                return self._replay()
            case Trigger.TIMER_EXPIRY:
                return [TransactionTimedOut(self.name)]
            case _:
                return []
