"""The transaction layer: reliable requests and responses over UDP and streams (RFC 3261 17, 18).

The layer receives bytes from sockets and connections, stamps the Via (RFC 3581), finds the transaction (RFC 3261
17.1.3, 17.2.3), and reports new messages to the transaction user: every request once, every final response once. It
responds itself to retransmissions (with the last response), to a CANCEL (9.2), to an INVITE without a response within
200 ms (100), to refusals of our INVITE (ACK), to keep-alives on streams (RFC 5626 4.4.1), and to bytes that are no SIP
message (statelessly, over UDP never with more bytes than received). Responses whose top Via is not ours are discarded
(18.1.2), also those of ended transactions (RFC 6026 7.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from wanderbus.errors import SIPParseError
from wanderbus.machine import (
    Address,
    DatagramReceived,
    Input,
    RandomSource,
    StreamClosed,
    StreamReceived,
    TimerFired,
)
from wanderbus.sip.message.message import Response, encode_message, make_response, parse_message, read_for_reply
from wanderbus.sip.message.targets import Origin, Target, response_path, stamped, with_via
from wanderbus.sip.transaction.client_side import ClientSide
from wanderbus.sip.transaction.client_transactions import make_cancel
from wanderbus.sip.transaction.message_editor import MessageEditor
from wanderbus.sip.transaction.server_side import ServerSide
from wanderbus.sip.transaction.transaction_places import KnownPeers
from wanderbus.sip.transaction.transaction_signals import (
    AckReceived,
    CancelInvite,
    CancelReceived,
    ForgetTransaction,
    LayerOutput,
    LocalAddressChanged,
    PathSeemsNarrow,
    PongReceived,
    RequestReceived,
    Respond,
    ResponseReceived,
    SendAck,
    SendPing,
    SendRequest,
    TransactionTimedOut,
)
from wanderbus.sip.transaction.transaction_states import DEFAULT_TIMERS, BaseTimers, Trigger
from wanderbus.sip.transaction.transport_table import TIMER, StreamSide, TransportTable

__all__ = [
    "TRANSACTIONS_MAX",
    "AckReceived",
    "BaseTimers",
    "CancelInvite",
    "CancelReceived",
    "ForgetTransaction",
    "LocalAddressChanged",
    "PathSeemsNarrow",
    "PongReceived",
    "RequestReceived",
    "Respond",
    "ResponseReceived",
    "SendAck",
    "SendPing",
    "SendRequest",
    "TransactionLayer",
    "TransactionTimedOut",
    "make_cancel",
]

TRANSACTIONS_MAX: Final = 16_384
"""Largest number of transactions of one layer in each direction: at 32 s each, 500 new requests a second."""


class TransactionLayer:
    """All transactions of one SIP socket, and of its streams.

    ``transports`` are the transports for sending; messages are received over any. If TCP is among them, requests of
    over 1,300 bytes are sent over TCP instead of UDP (RFC 3261 18.1.1); with ``narrow_paths`` also smaller ones that a
    path seems to drop for their size. ``local`` is the address in our Via, and ``local_streams`` overrides it by
    transport. ``editor`` edits every message before it is sent (SPEC C-08). ``peers`` are the sources of users.
    ``drops`` counts discarded and unreadable messages by reason.
    """

    def __init__(
        self,
        random: RandomSource,
        *,
        socket: str = "sip",
        timers: BaseTimers = DEFAULT_TIMERS,
        transactions_max: int = TRANSACTIONS_MAX,
        transports: Iterable[str] = ("UDP",),
        local: Address = ("127.0.0.1", 5060),
        local_streams: Mapping[str, Address] | None = None,
        editor: MessageEditor | None = None,
        peers: KnownPeers | None = None,
        narrow_paths: bool = False,
    ) -> None:
        self.drops: Counter[str] = Counter()
        self._socket = socket
        self._transports = TransportTable(socket, transports, local, local_streams, narrow_paths=narrow_paths)
        self._editor = editor = editor or MessageEditor()
        peers = KnownPeers() if peers is None else peers
        self._clients = ClientSide(random, self._transports, timers, transactions_max, self.drops, editor)
        self._servers = ServerSide(random, socket, timers, transactions_max, self.drops, editor, peers)
        self._streams = StreamSide(self._transports, self.drops)

    @property
    def local(self) -> Address:
        """The address in our Via."""
        return self._transports.local

    @property
    def transports(self) -> frozenset[str]:
        """Transports that this layer can send over."""
        return self._transports.transports

    @property
    def dropped(self) -> int:
        """Number of messages discarded or unreadable so far, for any of the reasons in ``drops``."""
        return self.drops.total()

    @property
    def transaction_count(self) -> int:
        """Number of active transactions in both directions."""
        return len(self._clients) + len(self._servers)

    @property
    def peers(self) -> KnownPeers:
        """Sources of users, whose requests strangers cannot displace."""
        return self._servers.peers

    def connection_from(self, target: Target) -> int | None:
        """Return the open connection to ``target``, whoever opened it; None if there is none."""
        return self._transports.connection_from(target)

    def step(self, inputs: Iterable[Input], now: float) -> list[LayerOutput]:
        """Process a batch of inputs at monotonic second ``now``; return messages to send, timers and reports.

        Raises:
            LocalProtocolError: a client transaction was started with an ACK, or under a name that still waits for its
                final response.
        """
        outputs: list[LayerOutput] = []
        for item in inputs:
            outputs += self._handle(item, now)
        return outputs

    def _handle(self, item: Input, now: float) -> list[LayerOutput]:
        match item:
            case DatagramReceived(socket=self._socket):
                return self._receive(Origin(item.source, datagram_bytes=len(item.data)), item.data, now)
            case StreamReceived(socket=self._socket):
                return self._receive_stream(item, now)
            case StreamClosed(socket=self._socket):
                return self._streams.closed(item) + self._clients.stream_closed(item, now)
            case TimerFired(key=(("client", (str(branch), str(method))), str(timer))):
                return self._clients.fire((branch, method), Trigger(timer), now)
            case TimerFired(key=(("server", str(name)), str(timer))):
                return self._servers.fire(name, Trigger(timer), now)
            case TimerFired(key=(str(kind), int(connection))) if kind == TIMER:
                return self._streams.expire(connection)
            case SendRequest():
                return self._clients.send(item, now)
            case Respond():
                return self._servers.respond(item, now)
            case SendAck():
                return self._send_ack(item)
            case SendPing():
                return self._streams.ping(item.destination, item.connection)
            case CancelInvite():
                return self._clients.cancel(item, now)
            case LocalAddressChanged(local=local):
                self._transports.move(local)
                return []
            case ForgetTransaction():
                return self._clients.forget(item.transaction, now) + self._servers.forget(item.transaction)
            case _:
                return []

    def _send_ack(self, item: SendAck) -> list[LayerOutput]:
        path = self._transports.path(item.destination, item.connection)
        if path is None:
            self.drops["no transport"] += 1
            return []
        ack = with_via(item.request, self._transports.via(path.target.transport, self._clients.fresh_branch()))
        return [path.send(encode_message(self._editor.request(ack)))]

    def _receive_stream(self, item: StreamReceived, now: float) -> list[LayerOutput]:
        messages, outputs = self._streams.receive(item, now)
        origin = Origin(item.source, item.transport, item.connection, peer_domains=item.peer_domains)
        return [output for data in messages for output in self._receive(origin, data, now)] + outputs

    def _receive(self, origin: Origin, data: bytes, now: float) -> list[LayerOutput]:
        try:
            message = parse_message(data)
            if isinstance(message, Response):
                return self._clients.receive(message, origin, now)
            return self._servers.receive(stamped(message, origin.source), origin, now)
        except SIPParseError as error:
            self.drops["unreadable"] += 1
            if error.status is None:
                return []
            return self.refuse(origin, data, error.status, reason=str(error) if error.status == 400 else None)

    def refuse(
        self,
        origin: Origin,
        data: bytes,
        status: int,
        headers: Sequence[tuple[str, str]] = (),
        *,
        reason: str | None = None,
    ) -> list[LayerOutput]:
        """Refuse the request in ``data`` without a transaction, for example if it cannot be read (RFC 3261 8.2.7).

        The source of a datagram may be forged, so the response never has more bytes than the datagram. The ``reason``
        of a 400 names the faulty header field (RFC 3261 21.4.1), if there is room.
        """
        request = read_for_reply(data)
        if request is None:
            return []
        try:
            stamp = stamped(request, origin.source)
            response = make_response(stamp, status, reason, to_tag=self._servers.fresh_tag(), headers=headers)
            path = response_path(request.via, origin, self._socket)
            answer = self._editor.response(response, None if origin.datagram_bytes is None else len(data))
        except SIPParseError:
            return []
        return [path.send(answer)] if answer is not None else []
