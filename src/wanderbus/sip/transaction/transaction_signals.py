"""Inputs and reports of a transaction layer: its interface to the transaction user (RFC 3261 17).

The transaction user chooses the names of client transactions, and may reuse one after its final response. The layer
chooses the names of server transactions.
"""

from __future__ import annotations

from typing import Literal

from wanderbus.machine import (
    Address,
    CancelTimer,
    CloseStream,
    DatagramReceived,
    Input,
    Output,
    SendDatagram,
    SendOnStream,
    SetTimer,
    StreamClosed,
    StreamReceived,
    TimerFired,
)
from wanderbus.sip.message.message import Request, Response
from wanderbus.sip.message.targets import Target, Transport


class LocalAddressChanged(Input, frozen=True):
    """Put ``local`` into our Via from now on; running transactions keep the previous address."""

    local: Address


class SendRequest(Input, frozen=True):
    """Start the client transaction ``transaction``: send ``request`` to ``destination`` under a Via of our own.

    ``request`` has no Via of ours; the layer adds it. ``branch_suffix`` is appended to the new branch (a proxy stores
    its loop hash there, RFC 3261 16.6 item 8). A CANCEL uses the branch of the INVITE with its Call-ID, CSeq number and
    Request-URI (9.1), and waits for that INVITE's first provisional response.

    A bare address as ``destination`` means UDP. ``connection`` is preferred to a new one while it is open, because some
    devices accept no connection (RFC 5626). A ``fixed`` request uses the transport of its destination whatever its
    size: nothing else passes a NAT.
    """

    transaction: str
    request: Request
    destination: Address | Target
    branch_suffix: str = ""
    connection: int | None = None
    fixed: bool = False


class Respond(Input, frozen=True):
    """Send ``response`` in the server transaction ``transaction``; ignored if that has ended.

    A 2xx to an INVITE may be given repeatedly, because the user retransmits it (RFC 6026 7.1). With ``within_request``
    the response to a UDP request is reduced to the size of the request, or not sent if that is impossible: its source
    may be forged, and we must not amplify traffic.

    A ``stateless`` final response implies that, and ends the transaction, unless a known peer waits for it over UDP. It
    is for a request whose sender is not authenticated, and must be its first response (RFC 3261 8.2.7, 26.3.2.4). Its
    To tag is the layer's.
    """

    transaction: str
    response: Response
    within_request: bool = False
    stateless: bool = False


class SendAck(Input, frozen=True):
    """Send the ACK ``request`` for a 2xx to ``destination`` under a Via of ours, outside any transaction (13.2.2.4)."""

    request: Request
    destination: Address | Target
    connection: int | None = None


class SendPing(Input, frozen=True):
    """Send a keep-alive on the stream to ``destination``, which responds with :class:`PongReceived` (RFC 5626 4.4.1).

    No response within 10 s means that the connection is dead; the user sets that timer.
    """

    destination: Target
    connection: int | None = None


class CancelInvite(Input, frozen=True):
    """Cancel the INVITE of ``transaction``: send its CANCEL after its first provisional response (RFC 3261 9.1).

    The transaction continues until the final response: it acknowledges a refusal and reports a 2xx, each time it is
    received. Without one it times out 64*T1 after the CANCEL, or at once if there is no such unanswered INVITE. With
    ``repeats`` False the INVITE is not retransmitted meanwhile.
    """

    transaction: str
    repeats: bool = True


class ForgetTransaction(Input, frozen=True):
    """End the client or server transaction ``transaction`` and its timers without a report, if it exists."""

    transaction: str


class RequestReceived(Output, frozen=True):
    """A new request from ``source``; respond with :class:`Respond` to ``transaction``.

    Its top Via carries ``received`` and ``rport`` (RFC 3581 4). ACK and CANCEL are never reported here. ``connection``
    is its stream, None over UDP; ``peer_domains`` are the SIP domains in the peer's certificate. ``crowded``: its
    source holds all the transactions that it may, so the user should respond at once.
    """

    transaction: str
    request: Request
    source: Address
    transport: Transport = "UDP"
    connection: int | None = None
    peer_domains: tuple[str, ...] = ()
    crowded: bool = False


class AckReceived(Output, frozen=True):
    """An ACK that belongs to no refused INVITE: it acknowledges a 2xx, or nothing at all (RFC 3261 13.3.1.4)."""

    request: Request
    source: Address
    transport: Transport = "UDP"
    connection: int | None = None


class PongReceived(Output, frozen=True):
    """The peer of ``connection`` at ``source`` responded to a :class:`SendPing`."""

    connection: int
    source: Address


class CancelReceived(Output, frozen=True):
    """The unanswered INVITE ``transaction`` was cancelled by ``request``, to which the layer responded 200 (RFC 3261
    9.2).

    The user must now refuse the INVITE with 487.
    """

    transaction: str
    request: Request


class ResponseReceived(Output, frozen=True):
    """A response for the client transaction ``transaction``, still with our Via on top.

    Every provisional response is reported, the final one once, and each retransmission of a 2xx to INVITE. ``source``
    is the sender's address.
    """

    transaction: str
    response: Response
    source: Address | None = None
    transport: Transport = "UDP"


class TransactionTimedOut(Output, frozen=True):
    """``transaction`` ended without the expected message.

    For a client transaction that is the final response (timers B and F; also a CANCEL without an INVITE to cancel, or a
    request over the limit); for an INVITE server transaction the ACK (timer H); for any other server transaction our
    own response, which is too late after 64*T1 (RFC 4320 4.2).

    ``reason`` is "transport" for an immediate failure: the connection could not be opened or was closed, or the
    transport is not available (RFC 3261 8.1.3.1 and 16.9: to be treated as a 503).
    """

    transaction: str
    reason: Literal["timeout", "transport"] = "timeout"


class PathSeemsNarrow(Output, frozen=True):
    """The peer answers short requests by UDP, but neither one of ``size_bytes`` nor its copy over TCP.

    Its path may drop datagrams of that size. This is reported at most once in ten minutes for a peer.
    """

    size_bytes: int


LayerInput = (
    DatagramReceived
    | StreamReceived
    | StreamClosed
    | TimerFired
    | LocalAddressChanged
    | SendRequest
    | Respond
    | SendAck
    | SendPing
    | CancelInvite
    | ForgetTransaction
)
"""Inputs of the transaction layer."""

LayerReport = RequestReceived | AckReceived | CancelReceived | ResponseReceived | TransactionTimedOut
"""Reports on transactions."""

LayerOutput = (
    LayerReport | PongReceived | PathSeemsNarrow | SendDatagram | SendOnStream | CloseStream | SetTimer | CancelTimer
)
"""Outputs of the transaction layer."""
