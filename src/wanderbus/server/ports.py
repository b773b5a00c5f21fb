"""Sockets of a role, described before they are bound: the host binds them, at the previous ports if it can."""

from __future__ import annotations

import errno
import logging
import ssl
from collections.abc import Mapping
from typing import Protocol

import msgspec

from wanderbus.machine import Address, shown
from wanderbus.parameters.transports import StreamLimits
from wanderbus.runtime.net.driver import Driver
from wanderbus.runtime.net.sip_listening import listen_for_sip

_log = logging.getLogger("wanderbus.server")


class Bound(msgspec.Struct, frozen=True):
    """Addresses in use by one socket of a role."""

    address: Address
    """Address for datagrams; of a socket without datagrams, for connections."""
    streams: Mapping[str, Address] = {}
    """Addresses that accept connections, by transport."""


class Port(Protocol):
    """Socket that a role needs."""

    @property
    def name(self) -> str:
        """Name of the socket in the inputs and outputs of the machine."""
        ...

    @property
    def host(self) -> str:
        """IP address to bind."""
        ...

    @property
    def port(self) -> int | None:
        """Port to bind; 0 is a free one, None the one of the previous run if it is free."""
        ...

    @property
    def setting(self) -> str:
        """Key of the setting that names this port; the port in use is kept under it for the next run, unless ""."""
        ...

    def listen(self, driver: Driver, port: int) -> Bound:
        """Bind the socket to ``port``; raise ``OSError`` if that is impossible."""
        ...


class UdpPort(msgspec.Struct, frozen=True, kw_only=True):
    """A socket for datagrams."""

    name: str
    host: str
    port: int | None = None
    setting: str = ""

    def listen(self, driver: Driver, port: int) -> Bound:
        """Bind the socket to ``port``; raise ``OSError`` if that is impossible."""
        wanted = self.host, port
        try:
            return Bound(driver.bind({self.name: wanted})[self.name])
        except OverflowError as error:
            raise OSError(errno.EINVAL, str(error), f"UDP port {shown(wanted)}") from None


class MulticastPort(msgspec.Struct, frozen=True, kw_only=True):
    """A socket for the datagrams of a multicast group, whose address is ``host`` and ``port``.

    ``local_host`` and ``interface`` are those of :func:`~wanderbus.runtime.net.multicast.open_multicast`.
    """

    name: str
    host: str
    port: int | None = None
    setting: str = ""
    local_host: str
    interface: str | None = None
    ttl: int = 1

    def listen(self, driver: Driver, port: int) -> Bound:
        """Join the group at ``port``; raise ``OSError`` if that is impossible."""
        group = self.host, port
        return Bound(
            driver.bind_multicast(self.name, group, host=self.local_host, interface=self.interface, ttl=self.ttl)
        )


class StreamPort(msgspec.Struct, frozen=True, kw_only=True):
    """A socket for connections, with TLS if there is ``server_tls``."""

    name: str
    host: str
    port: int | None = None
    setting: str = ""
    server_tls: ssl.SSLContext | None = None
    limits: StreamLimits | None = None

    def listen(self, driver: Driver, port: int) -> Bound:
        """Bind the socket to ``port``; raise ``OSError`` if that is impossible."""
        kind = "TCP" if self.server_tls is None else "TLS"
        wanted = {kind: (self.host, port)}
        streams = driver.bind_streams(self.name, wanted, server_tls=self.server_tls, limits=self.limits)
        return Bound(streams[kind], streams)


class SIPPort(msgspec.Struct, frozen=True, kw_only=True):
    """A socket for SIP: UDP, TCP at the same port, and TLS; :func:`listen_for_sip` describes the fields."""

    name: str
    host: str
    port: int | None = None
    setting: str = ""
    tcp: bool
    tls_port: int | None = None
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None
    peer_tls: ssl.SSLContext | None = None
    limits: StreamLimits | None = None

    def listen(self, driver: Driver, port: int) -> Bound:
        """Bind the socket to ``port``; raise ``OSError`` if that is impossible."""
        address, streams = listen_for_sip(
            driver,
            self.name,
            (self.host, port),
            tcp=self.tcp,
            tls_port=self.tls_port,
            server_tls=self.server_tls,
            client_tls=self.client_tls,
            peer_tls=self.peer_tls,
            limits=self.limits,
        )
        return Bound(address, streams)


def bind(driver: Driver, port: Port, previous: int) -> Bound:
    """Bind ``port``; if no number is set, the ``previous`` one, which agents know, or another if that is in use.

    Agents call again after a change. A number that is set is never replaced. Raises ``OSError`` if nothing can be
    bound.
    """
    if port.port is not None:
        return port.listen(driver, port.port)
    if previous:
        try:
            return port.listen(driver, previous)
        except OSError as error:
            _log.warning("cannot bind the previous port %s (%s); using another", previous, error.strerror)
    return port.listen(driver, 0)
