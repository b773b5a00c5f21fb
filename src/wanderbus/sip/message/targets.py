"""Where a message goes and over what: transport, address and connection (RFC 3261 18 and 26.2; RFC 3263 4.1 and 4.2).

Nothing is looked up: a URI with a host name gives a target with that name, which its user may resolve or refuse.
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
"""The values of the URI parameter ``transport`` that we can send over, and their names in a Via."""

PORTS: Final[dict[str, int]] = {"UDP": 5060, "TCP": 5060, "TLS": 5061}
"""Where a transport is served when nothing names a port (RFC 3261 19.1.2)."""


class Target(msgspec.Struct, frozen=True):
    """One place to send to.

    ``server_name`` is the name that its certificate has to carry; the IP address itself when None. It has to
    name ``sip_domain`` instead, if that is given (RFC 5922 7). Neither plays a part without TLS.
    """

    transport: Transport
    address: Address
    server_name: str | None = None
    sip_domain: str | None = None

    @property
    def reliable(self) -> bool:
        """Whether what is sent there arrives, once and in order, or an error comes back (RFC 3261 17)."""
        return self.transport != "UDP"

    @property
    def fingerprint(self) -> None:
        """A SIP server is known by its name, which an authority vouches for (RFC 3261 26.3.1)."""
        return None


class Path(msgspec.Struct, frozen=True):
    """How messages leave: from which ``socket``, where to, and on which open connection if it has to be that one."""

    socket: str
    target: Target
    connection: int | None = None

    def send(self, data: bytes) -> Output:
        """Return the request to send ``data`` this way."""
        if self.target.reliable:
            return SendOnStream(self.socket, self.target, data, self.connection)
        return SendDatagram(self.socket, self.target.address, data)


def as_target(destination: Address | Target) -> Target:
    """Return ``destination`` as a target; a bare address means UDP."""
    return destination if isinstance(destination, Target) else Target("UDP", destination)


def target_of(uri: SIPUri, *, default: Transport = "UDP") -> Target:
    """Return where ``uri`` says to send; ``default`` is the transport of a ``sip:`` URI that names none.

    ``sips:`` is TLS whatever stream it names (RFC 3261 26.2.2). A ``maddr`` is not obeyed.

    Raises:
        SIPParseError: it is no SIP URI, or names a transport that we have not got.
    """
    if not uri.is_sip:
        raise SIPParseError("URI: neither sip nor sips, so there is nowhere to send to")
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
