"""The transaction layer: requests and responses in order over a network that loses them (RFC 3261 17 and 18, UDP).

Bytes come in from the socket; the layer stamps the Via (RFC 3581), finds the transaction they belong to
(RFC 3261 17.1.3, 17.2.3), and reports what is new to the transaction user: every request once, every final response
once. It answers by itself: retransmissions (with the last response), a CANCEL (9.2), an INVITE nobody answered within
200 ms (100), refusals of our INVITE (ACK), and bytes that are no SIP message (statelessly, never with more bytes
than came). Responses whose top Via is not ours are dropped (18.1.2), also those of ended transactions (RFC 6026 7.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from wanderbus.errors import SIPParseError
from wanderbus.machine import Address, DatagramReceived, Input, Output, RandomSource, SendDatagram, TimerFired
from wanderbus.sip.client_side import ClientSide
from wanderbus.sip.client_transactions import make_cancel
from wanderbus.sip.message import Response, encode_message, make_response, parse_message, read_for_reply
from wanderbus.sip.response_routing import make_via, response_address, stamped, with_via
from wanderbus.sip.server_side import ServerSide
from wanderbus.sip.transaction_machine import DEFAULT_TIMERS, Timers, Trigger
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

__all__ = [
    "TRANSACTIONS_MAX",
    "AckReceived",
    "CancelReceived",
    "ForgetTransaction",
    "RequestReceived",
    "Respond",
    "ResponseReceived",
    "SendAck",
    "SendRequest",
    "Timers",
    "TransactionLayer",
    "TransactionTimedOut",
    "make_cancel",
]

TRANSACTIONS_MAX: Final = 16_384
"""Transactions of one layer in each direction: at 32 s for each, 500 new requests a second."""


class TransactionLayer:
    """All transactions of one SIP socket.

    ``local`` is the address we put into our Via; it may change at any time, running transactions keep theirs.
    ``drops`` counts by reason what was thrown away or could not be read.
    """

    def __init__(
        self,
        random: RandomSource,
        *,
        socket: str = "sip",
        timers: Timers = DEFAULT_TIMERS,
        transactions_max: int = TRANSACTIONS_MAX,
    ) -> None:
        self.local: Address = ("127.0.0.1", 5060)
        self.drops: Counter[str] = Counter()
        self._socket = socket
        self._clients = ClientSide(random, socket, timers, transactions_max, self.drops)
        self._servers = ServerSide(random, socket, timers, transactions_max, self.drops)

    @property
    def dropped(self) -> int:
        """Messages thrown away or not readable so far, for any of the reasons in ``drops``."""
        return self.drops.total()

    @property
    def transaction_count(self) -> int:
        """Transactions alive now, both directions."""
        return len(self._clients) + len(self._servers)

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Take a batch of inputs at monotonic second ``now``; return what to send, to set and what happened.

        Raises:
            LocalProtocolError: a client transaction was started with an ACK, or under a name that still waits for
                its final response.
        """
        outputs: list[Output] = []
        for item in inputs:
            outputs += self._handle(item, now)
        return outputs

    def _handle(self, item: Input, now: float) -> list[Output]:
        match item:
            case DatagramReceived(socket=socket) if socket == self._socket:
                return self._receive(item.source, item.data, now)
            case TimerFired(key=(("client", (str(branch), str(method))), str(timer))):
                return self._clients.fire((branch, method), Trigger(timer), now)
            case TimerFired(key=(("server", str(name)), str(timer))):
                return self._servers.fire(name, Trigger(timer), now)
            case SendRequest():
                return self._clients.send(item, self.local, now)
            case Respond():
                return self._servers.respond(item, now)
            case SendAck():
                ack = with_via(item.request, make_via(self.local, self._clients.fresh_branch()))
                return [SendDatagram(self._socket, item.destination, encode_message(ack))]
            case ForgetTransaction():
                return self._clients.forget(item.transaction, now) + self._servers.forget(item.transaction)
            case _:
                return []

    def _receive(self, source: Address, data: bytes, now: float) -> list[Output]:
        try:
            message = parse_message(data)
            if isinstance(message, Response):
                return self._clients.receive(message, now)
            return self._servers.receive(stamped(message, source), source, now)
        except SIPParseError as error:
            self.drops["unreadable"] += 1
            return [] if error.status is None else self._refuse(source, data, error.status)

    def _refuse(self, source: Address, data: bytes, status: int) -> list[Output]:
        """Answer a request that cannot be read, without a transaction (RFC 3261 8.2.7).

        Its source may be forged, so an answer with more bytes than what came is not sent.
        """
        request = read_for_reply(data)
        if request is None:
            return []
        try:
            response = make_response(stamped(request, source), status, to_tag=self._servers.fresh_tag())
        except SIPParseError:
            return []
        answer = encode_message(response)
        if len(answer) > len(data):
            return []
        return [SendDatagram(self._socket, response_address(request.via, source), answer)]
