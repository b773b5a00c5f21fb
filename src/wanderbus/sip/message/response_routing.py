"""Via: routing of a response back to the sender (RFC 3261 18.1.1, 18.2.1, 18.2.2; RFC 3581).

The server writes the real source of the request into the top Via, and responds to it: over a stream on the connection
of the request, or, when that is closed, on a new one to the port in the Via. A ``maddr`` is ignored: with it, anybody
could aim our responses at a third party.
"""

from __future__ import annotations

import msgspec

from wanderbus.machine import Address
from wanderbus.sip.message.headers import Via, find_param
from wanderbus.sip.message.interning import shared
from wanderbus.sip.message.message import Request
from wanderbus.sip.message.targets import PORTS, Path, Target, Transport


class Origin(msgspec.Struct, frozen=True):
    """Source of a message; ``connection`` is its stream, None over UDP.

    ``datagram_bytes`` is the size of the datagram, None over a stream, whose source cannot be forged. ``peer_domains``
    are the SIP domains in the certificate of the peer.
    """

    source: Address
    transport: Transport = "UDP"
    connection: int | None = None
    datagram_bytes: int | None = None
    peer_domains: tuple[str, ...] = ()


def make_via(local: Address, branch: str, transport: Transport = "UDP") -> Via:
    """Return our Via with sent-by ``local``; it asks for the response at our source port (RFC 3581 3)."""
    return Via(transport, local[0].lower(), local[1], (("rport", None), ("branch", branch)))


def with_via(request: Request, via: Via) -> Request:
    """Return ``request`` with ``via`` on top."""
    return request.with_first("Via", str(via))


def stamped(request: Request, source: Address) -> Request:
    """Return ``request`` with its source address in its top Via (RFC 3261 18.2.1, RFC 3581 4).

    Raises:
        SIPParseError: the top Via cannot be read.
    """
    return with_via(request.without_first("Via"), stamped_via(request.via, source))


def stamped_via(via: Via, source: Address) -> Via:
    """Return ``via`` with ``received`` and, if requested, ``rport``; values from the sender are replaced."""
    params = tuple((name, value) for name, value in via.params if name.lower() not in ("rport", "received"))
    if find_param(via.params, "rport") is not None:
        params += (("received", source[0]), ("rport", str(source[1])))
    elif via.host.lower() != source[0].lower():
        params += (("received", source[0]),)
    return Via(via.transport, via.host, via.port, params)


def response_address(via: Via, source: Address) -> Address:
    """Return the destination of a response to a request with top Via ``via`` from ``source`` (RFC 3261 18.2.2, RFC 3581
    4).

    The host is that of the source, as in ``received``. The port is that of the source if ``rport`` was requested, else
    that of the sent-by.
    """
    if find_param(via.params, "rport") is not None:
        return source
    return source[0], via.port or _port(via)


def response_path(via: Via, origin: Origin, socket: str) -> Path:
    """Return the path of a response to a request with top Via ``via`` (RFC 3261 18.2.2)."""
    if origin.connection is None:
        return Path(socket, Target("UDP", response_address(via, origin.source)))
    return Path(socket, Target(origin.transport, (origin.source[0], via.port or _port(via))), origin.connection)


def sent_by(via: Via) -> Address:
    """Return the sent-by of ``via`` in a comparable form: lower case, with its port."""
    return shared(via.host.lower()), via.port or _port(via)


def _port(via: Via) -> int:
    return PORTS.get(via.transport.upper(), PORTS["UDP"])
