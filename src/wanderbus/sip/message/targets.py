"""Destinations of messages: transport, address and connection (RFC 3261 18 and 26.2; RFC 3263 4.1 and 4.2).

No name is resolved: a URI with a host name gives a target with that name, which the caller may resolve or refuse.

Responses go back by the top Via (RFC 3261 18.1.1, 18.2.1, 18.2.2; RFC 3581): the server writes the real source of the
request into it, and responds to that: over a stream on the connection of the request, or, when that is closed, on a new
one to the port in the Via. A ``maddr`` is ignored: with it, anybody could aim our responses at a third party.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Final, Literal

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.hosts import is_ip_address, is_single_host
from wanderbus.machine import Address, SendDatagram, SendOnStream
from wanderbus.sip.message.headers import CONTACT_STAR, NameAddr, Via, find_param
from wanderbus.sip.message.message import Request, Response
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.message.words import shared

Transport = Literal["UDP", "TCP", "TLS"]

TRANSPORTS: Final[dict[str, Transport]] = {"udp": "UDP", "tcp": "TCP", "tls": "TLS"}
"""Supported values of the URI parameter ``transport``, with their names in a Via."""

PORTS: Final[dict[str, int]] = {"UDP": 5060, "TCP": 5060, "TLS": 5061}
"""Default port of each transport (RFC 3261 19.1.2)."""


class Target(msgspec.Struct, frozen=True):
    """One destination.

    ``server_name`` is the name that the certificate must contain; None means the IP address itself. If ``sip_domain``
    is given, the certificate must contain that instead (RFC 5922 7). Both are ignored without TLS.
    """

    transport: Transport
    address: Address
    server_name: str | None = None
    sip_domain: str | None = None

    @property
    def reliable(self) -> bool:
        """True if data arrive there once and in order, or an error is reported (RFC 3261 17)."""
        return self.transport != "UDP"

    @property
    def fingerprint(self) -> None:
        """None: a SIP server is identified by its name, which an authority certifies (RFC 3261 26.3.1)."""
        return None


class Path(msgspec.Struct, frozen=True):
    """Path of messages: the local ``socket``, the target, and the open connection if one is required."""

    socket: str
    target: Target
    connection: int | None = None

    def send(self, data: bytes) -> SendDatagram | SendOnStream:
        """Return the output that sends ``data`` on this path."""
        if self.target.reliable:
            return SendOnStream(self.socket, self.target, data, self.connection)
        return SendDatagram(self.socket, self.target.address, data)


def as_target(destination: Address | Target) -> Target:
    """Return ``destination`` as a target; a bare address means UDP."""
    return destination if isinstance(destination, Target) else Target("UDP", destination)


def target_of(uri: SIPUri, *, default: Transport = "UDP") -> Target:
    """Return the target that ``uri`` names; ``default`` is the transport of a ``sip:`` URI that names none.

    ``sips:`` is TLS whatever stream it names (RFC 3261 26.2.2). A ``maddr`` is ignored.

    Raises:
        SIPParseError: it is not a SIP URI, or names an unsupported transport.
    """
    if not uri.is_sip:
        raise SIPParseError("URI: cannot send to a scheme that is neither sip nor sips")
    named = uri.param("transport")
    transport = default if named is None else TRANSPORTS.get(named.lower())
    if uri.scheme == "sips":
        transport = None if named is not None and transport in (None, "UDP") else "TLS"
    if transport is None:
        raise SIPParseError(f"URI: cannot send over the transport {named!r}")
    server_name = uri.host if transport == "TLS" and not is_ip_address(uri.host) else None
    return Target(transport, (uri.host, uri.port or PORTS[transport]), server_name)


def transport_params(transport: str) -> tuple[tuple[str, str | None], ...]:
    """Return the parameters of a ``sip:`` URI that is reached over ``transport``."""
    return () if transport == "UDP" else (("transport", transport.lower()),)


def uri_at(user: str | None, address: Address, transport: str) -> str:
    """Return the ``sip:`` URI of ``user`` at ``address`` over ``transport``."""
    return str(SIPUri("sip", user, *address, params=transport_params(transport)))


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


_FOLLOWED: Final = (300, 301, 302)
"""The followed statuses: Use Proxy (305) and Alternative Service (380) give no other address of the same user."""


def redirected_to(
    response: Response, asked: str, transports: Sequence[str], peer: SIPUri | None = None
) -> SIPUri | None:
    """Return the best Contact of a 3xx to our request for the URI ``asked``; None if there is none to follow.

    Of contacts with the same preference, the one with the first of ``transports`` is the best. One that needs another
    transport is left out, and so is a sips URI: without TLS on the whole path it would lose its security. With
    ``peer``, so is a contact that names another user or domain. Header fields and the method in a URI are ignored,
    because only the target is needed (RFC 3261 19.1.5).
    """
    if response.status not in _FOLLOWED:
        return None
    contacts = [contact for contact in response.contacts if contact != CONTACT_STAR and contact.uri.scheme == "sip"]
    found: list[tuple[float, int, SIPUri]] = []
    for contact in contacts:
        params = tuple(param for param in contact.uri.params if param[0].lower() != "method")
        target = msgspec.structs.replace(contact.uri, headers=(), params=params)
        if peer is not None and not _is_server_of(peer, target):
            continue
        if str(target) != asked and is_single_host(target.host.strip("[]")) and _reached_over(target) in transports:
            found.append((_rank(contact), transports.index(_reached_over(target)), target))
    return min(found, key=itemgetter(0, 1), default=(0, 0, None))[2]


def service_elsewhere(response: Response, service: str) -> str:
    """Return the address of record of a ``service`` in another domain, to which a 3xx leads; "" if none does.

    Not its server is named but the domain: the caller goes there as to a service of that domain, by its own proxy.
    """
    if response.status not in _FOLLOWED:
        return ""
    peer = SIPUri.parse(service)
    for contact in response.contacts:
        if contact == CONTACT_STAR or contact.uri.scheme != "sip" or is_ip_address(contact.uri.host):
            continue
        uri = contact.uri
        is_same = msgspec.structs.replace(uri, host=peer.host).address_of_record == peer.address_of_record
        if is_same and uri.host.lower() != peer.host.lower() and uri.port is None:
            return uri.address_of_record
    return ""


def _is_server_of(peer: SIPUri, target: SIPUri) -> bool:
    """Return whether ``target`` names the user ``peer``, at an address or in the same domain."""
    named = msgspec.structs.replace(target, host=peer.host)
    in_domain = is_ip_address(target.host) or target.host.lower() == peer.host.lower()
    return in_domain and named.address_of_record == peer.address_of_record


def _reached_over(target: SIPUri) -> str | None:
    try:
        return target_of(target).transport
    except SIPParseError:
        return None


def direct_hop(target: SIPUri, proxy: Target) -> Target:
    """Return the next hop of a request for ``target``: ``target`` itself if it is an address, else ``proxy``.

    It is ``proxy``, too, if that is reached over TLS and ``target`` is not: nothing may be readable on the path.
    """
    hop = target_of(target) if is_ip_address(target.host) else proxy
    return proxy if proxy.transport == "TLS" and hop.transport != "TLS" else hop


def _rank(contact: NameAddr) -> float:
    """Return the sort key: highest q first, a missing q is the highest (RFC 3261 20.10 is silent, RFC 2616 has 1)."""
    try:
        return -float(contact.param("q") or 1.0)
    except (ValueError, SIPParseError):
        return 0.0
