"""Destinations of messages: transport, address and connection (RFC 3261 18 and 26.2; RFC 3263 4.1 and 4.2).

No name is resolved: a URI with a host name gives a target with that name, which the caller may resolve or refuse.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.hosts import is_ip_address
from wanderbus.machine import Address, Output, SendDatagram, SendOnStream
from wanderbus.sip.message.uri import SIPUri

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

    def send(self, data: bytes) -> Output:
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


def transport_params(transport: Transport) -> tuple[tuple[str, str | None], ...]:
    """Return the parameters of a ``sip:`` URI that is reached over ``transport``."""
    return () if transport == "UDP" else (("transport", transport.lower()),)
