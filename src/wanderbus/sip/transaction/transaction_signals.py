"""What a transaction layer is told and what it reports: the words between it and the transaction user (RFC 3261 17).

Names of client transactions are chosen by the transaction user, which may use one again once it had the final
response; names of server transactions are chosen by the layer.
"""

from __future__ import annotations

from typing import Literal

from wanderbus.machine import Address, Input, Output
from wanderbus.sip.message.message import Request, Response
from wanderbus.sip.message.targets import Target, Transport


class SendRequest(Input, frozen=True):
    """Start the client transaction ``transaction``: send ``request`` to ``destination`` under a Via of our own.

    ``request`` comes without our Via; the layer puts one on top. ``branch_suffix`` is appended to the fresh branch
    (a proxy keeps its loop hash there, RFC 3261 16.6 item 8). A CANCEL takes the branch of the INVITE that has its
    Call-ID, CSeq number and Request-URI (9.1), and waits for that INVITE's first provisional response.

    A bare address as ``destination`` means UDP. ``connection`` is preferred to a new one while it is open, as the
    way back to a device that cannot be connected to (RFC 5626). A ``fixed`` request goes over the transport of its
    destination whatever its size: nothing else leads through a NAT.
    """

    transaction: str
    request: Request
    destination: Address | Target
    branch_suffix: str = ""
    connection: int | None = None
    fixed: bool = False


class Respond(Input, frozen=True):
    """Send ``response`` in the server transaction ``transaction``; nothing happens if that has ended.

    A 2xx to an INVITE may be given again and again, as its retransmission is up to the user (RFC 6026 7.1). With
    ``within_request`` the response is cut down to the size of a request that came over UDP, or not sent if that
    cannot be: its source may be forged, and nobody may be flooded through us.

    A ``stateless`` final response is that too, and ends the transaction, unless a known peer waits for it over UDP: it
    is for a request that nobody has proved to have sent, and is given before any other answer to it (RFC 3261 8.2.7,
    26.3.2.4). Its To tag is the layer's.
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
    """Send a keep-alive on the stream to ``destination``, which answers with :class:`PongReceived` (RFC 5626 4.4.1).

    No answer within 10 s means that the connection is dead; that is the user's to time.
    """

    destination: Target
    connection: int | None = None


class CancelInvite(Input, frozen=True):
    """Give up the INVITE of ``transaction``: send its CANCEL as soon as it has a provisional response (RFC 3261 9.1).

    The transaction lives on for the final response: it acknowledges a refusal and reports a 2xx, each time it comes.
    Without one it times out 64*T1 after the CANCEL, and at once if there is no such INVITE, or none unanswered. With
    ``repeats`` False the INVITE is not retransmitted meanwhile.
    """

    transaction: str
    repeats: bool = True


class ForgetTransaction(Input, frozen=True):
    """Drop the client or server transaction ``transaction`` and its timers in silence; no harm if there is none."""

    transaction: str


class RequestReceived(Output, frozen=True):
    """A new request came from ``source``; answer it with :class:`Respond` to ``transaction``.

    Its top Via carries ``received`` and ``rport`` (RFC 3581 4). ACK and CANCEL are never reported here.
    ``connection`` is the stream that it came on, None over UDP; ``peer_domains`` are the SIP domains that the
    certificate of its other side names. Where its source holds all the transactions that it may (``crowded``), it
    should be answered at once.
    """

    transaction: str
    request: Request
    source: Address
    transport: Transport = "UDP"
    connection: int | None = None
    peer_domains: tuple[str, ...] = ()
    crowded: bool = False


class AckReceived(Output, frozen=True):
    """An ACK came that belongs to no refused INVITE: it confirms a 2xx, or nothing at all (RFC 3261 13.3.1.4)."""

    request: Request
    source: Address
    transport: Transport = "UDP"
    connection: int | None = None


class PongReceived(Output, frozen=True):
    """The other side of ``connection`` at ``source`` answered a :class:`SendPing`."""

    connection: int
    source: Address


class CancelReceived(Output, frozen=True):
    """The unanswered INVITE ``transaction`` was cancelled by ``request``, to which the layer said 200 (RFC 3261 9.2).

    The user now refuses the INVITE with 487.
    """

    transaction: str
    request: Request


class ResponseReceived(Output, frozen=True):
    """A response for the client transaction ``transaction``, still with our Via on top.

    Every provisional response is reported, the final one once, and each retransmission of a 2xx to INVITE. ``source``
    is where it came from.
    """

    transaction: str
    response: Response
    source: Address | None = None
    transport: Transport = "UDP"


class TransactionTimedOut(Output, frozen=True):
    """``transaction`` ended without what it waited for.

    For a client transaction that is the final response (timers B and F; also a CANCEL that had nothing to cancel,
    or a request over the limit); for an INVITE server transaction the ACK (timer H); for any other server
    transaction our own answer, which comes too late after 64*T1 (RFC 4320 4.2).

    ``reason`` is "transport" when no time had to pass: the connection could not be opened or was closed, or there is
    no such transport here (RFC 3261 8.1.3.1 and 16.9: to be treated as a 503).
    """

    transaction: str
    reason: Literal["timeout", "transport"] = "timeout"
