"""Via: how a response finds its way back (RFC 3261 18.1.1, 18.2.1, 18.2.2; RFC 3581).

The server writes into the top Via where the request really came from, and answers there: over a stream on the
connection that brought the request, or on a new one to the port in the Via when that is closed. A ``maddr`` is not
obeyed: it would let anybody aim our answers at a third party.
"""

from __future__ import annotations

import msgspec

from wanderbus.machine import Address
from wanderbus.sip.message.headers import Via, find_param
from wanderbus.sip.message.interning import shared
from wanderbus.sip.message.message import Request
from wanderbus.sip.message.targets import PORTS, Path, Target, Transport


class Origin(msgspec.Struct, frozen=True):
    """Where a message came from: ``connection`` is the stream that brought it, None over UDP.

    ``datagram_bytes`` is the size of the datagram, None over a stream, whose source is no lie. ``peer_domains`` are the
    SIP domains that the certificate of the other side names.
    """

    source: Address
    transport: Transport = "UDP"
    connection: int | None = None
    datagram_bytes: int | None = None
    peer_domains: tuple[str, ...] = ()


def make_via(local: Address, branch: str, transport: Transport = "UDP") -> Via:
    """Return our Via: sent-by ``local``, asking for the answer at the port we send from (RFC 3581 3)."""
    return Via(transport, local[0].lower(), local[1], (("rport", None), ("branch", branch)))


def with_via(request: Request, via: Via) -> Request:
    """Return ``request`` with ``via`` on top."""
    return request.with_first("Via", str(via))


def stamped(request: Request, source: Address) -> Request:
    """Return ``request`` with the address it came from in its top Via (RFC 3261 18.2.1, RFC 3581 4).

    Raises:
        SIPParseError: the top Via cannot be read.
    """
    return with_via(request.without_first("Via"), stamped_via(request.via, source))


def stamped_via(via: Via, source: Address) -> Via:
    """Return ``via`` with ``received`` and, where asked for, ``rport``; what the sender claimed there is replaced."""
    params = tuple((name, value) for name, value in via.params if name.lower() not in ("rport", "received"))
    if find_param(via.params, "rport") is not None:
        params += (("received", source[0]), ("rport", str(source[1])))
    elif via.host.lower() != source[0].lower():
        params += (("received", source[0]),)
    return Via(via.transport, via.host, via.port, params)


def response_address(via: Via, source: Address) -> Address:
    """Return where an answer to a request with top Via ``via`` from ``source`` goes (RFC 3261 18.2.2, RFC 3581 4).

    The host is the source's, which is what ``received`` says; so is the port if ``rport`` was asked for, else it is
    that of the sent-by.
    """
    if find_param(via.params, "rport") is not None:
        return source
    return source[0], via.port or _port(via)


def response_path(via: Via, origin: Origin, socket: str) -> Path:
    """Return the way back of an answer to a request with top Via ``via`` (RFC 3261 18.2.2)."""
    if origin.connection is None:
        return Path(socket, Target("UDP", response_address(via, origin.source)))
    return Path(socket, Target(origin.transport, (origin.source[0], via.port or _port(via))), origin.connection)


def sent_by(via: Via) -> Address:
    """Return the sent-by of ``via`` in a form fit for comparison: lower case, with its port."""
    return shared(via.host.lower()), via.port or _port(via)


def _port(via: Via) -> int:
    return PORTS.get(via.transport.upper(), PORTS["UDP"])
