"""Sockets of the relay: one for the commands of proxies, and one for each port that it has handed out (SPEC I).

The path of a datagram is short: the port reads it into one shared buffer, its side returns the destination, and the
port sends it. The machine's ``step`` processes commands only.
"""

from __future__ import annotations

import asyncio
import re
import socket
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Final, Self

from wanderbus.errors import ConfigurationError
from wanderbus.machine import Address, Output, shown
from wanderbus.refusal_table import Limited
from wanderbus.relay import NG_SOCKET, ClosePort, OpenPort, PortOpened, PortRefused, Relay, RelayLimits, Side
from wanderbus.relay.statistics import of_relay
from wanderbus.runtime.limit_log import Refusals
from wanderbus.runtime.net.descriptors import allow_files
from wanderbus.runtime.net.driver import Driver, open_udp
from wanderbus.runtime.net.relayed_connections import Listener
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.settings.server import RelaySettings

_DATAGRAMS_A_TURN: Final = 64
"""Datagrams read from one port before other ports have their turn."""

_DATAGRAM_BYTES: Final = 65_536
LOOPBACK: Final = "127.0.0.1"
_PORTS: Final = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_PORT_MAX: Final = 65_535


class RelayServer:
    """A relay on asyncio; it runs within its ``async with`` block.

    :param refusals: table that records refusals of this process
    :raises ConfigurationError: a setting cannot be used; on entering, an address or port cannot be bound
    """

    def __init__(self, settings: RelaySettings, refusals: Refusals | None = None) -> None:
        self._refusals = refusals or Refusals()
        self.ng_address = _place(settings.ng_listen)
        """Address that receives commands; after entering, with the port in use."""
        self._host = _ip(settings.address or LOOPBACK, "address")
        self._limits = settings.limits or RelayLimits()
        self._open: dict[Side, _DatagramPort | Listener] = {}
        proxies = [_ip(each, "ng_from") for each in settings.ng_from]
        if not proxies and not ip_address(self.ng_address[0]).is_loopback:
            raise ConfigurationError(
                "ng_from: name the proxies that may send commands, since ng_listen is not on loopback"
            )
        self._relay = Relay(
            SystemRandom(),
            address=_ip(settings.advertise or self._host, "advertise"),
            ports=_ports(settings.ports),
            limits=self._limits,
            proxies=proxies,
            loopback=settings.loopback_peers or ip_address(self._host).is_loopback,
        )

    async def __aenter__(self) -> Self:
        allow_files()
        self._driver = Driver(self._relay, self._perform, wall_clock=True)
        try:
            with open_udp((self._host, 0)):
                pass  # fail now rather than at the first call
            self.ng_address = self._driver.bind({NG_SOCKET: self.ng_address})[NG_SOCKET]
        except OSError as error:
            raise ConfigurationError(
                f"address {self._host} or ng_listen {shown(self.ng_address)} cannot be used: {error.strerror}"
            ) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._driver.close()
        for opened in self._open.values():
            opened.close()

    def figures(self) -> dict[str, Any]:
        """Return the current and the cumulative figures of the relay."""
        return of_relay(self._relay)

    def _perform(self, output: Output) -> None:
        match output:
            case Limited():
                self._refusals.note(output)
            case OpenPort(side=side, port=port):
                try:
                    self._open[side] = self._opened(side, (self._host, port))
                except OSError:
                    self._driver.feed(PortRefused(side, port))
                else:
                    self._driver.feed(PortOpened(side, port))
            case ClosePort(side=side):
                if (opened := self._open.pop(side, None)) is not None:
                    opened.close()

    def _opened(self, side: Side, address: Address) -> _DatagramPort | Listener:
        if side.transport == "TCP":
            return Listener(side, address, self._limits)
        port = _DatagramPort(side, address)
        other = self._open.get(side.other)
        if isinstance(other, _DatagramPort):
            port.pair(other)
        return port


class _DatagramPort:
    """Socket of one side; sends what it receives through the socket of the other side."""

    buffer = bytearray(_DATAGRAM_BYTES)
    view = memoryview(buffer)

    def __init__(self, side: Side, address: Address) -> None:
        self._side = side
        self._loop = asyncio.get_running_loop()
        self._socket = open_udp(address)
        self._other: socket.socket | None = None
        self._loop.add_reader(self._socket, self._forward)

    def pair(self, other: _DatagramPort) -> None:
        """Forward what each of the two ports receives through the other."""
        self._other, other._other = other._socket, self._socket

    def close(self) -> None:
        """Close the socket."""
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _forward(self) -> None:
        """Forward the datagrams that have arrived, up to the bound for one turn."""
        receive, send = self._socket.recvfrom_into, self._other.sendto if self._other is not None else None
        take, now, buffer, view = self._side.take, self._loop.time(), self.buffer, self.view
        for _ in range(_DATAGRAMS_A_TURN):
            try:
                size, source = receive(buffer)
            except BlockingIOError:
                return
            except OSError:
                continue  # an ICMP error for an earlier datagram, which is lost
            datagram = view[:size]
            destination = take(source[:2], datagram, now)
            if destination is not None and send is not None:
                try:
                    send(datagram, destination)
                except OSError:
                    self._side.figures.unsent += 1


def _place(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > _PORT_MAX:
        raise ConfigurationError(f"ng_listen: {text} is not HOST:PORT")
    return _ip(host.strip("[]"), "ng_listen"), int(port)


def _ip(text: str, key: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise ConfigurationError(f"{key}: {text} is not an IP address") from None


def _ports(text: str) -> range:
    found = _PORTS.fullmatch(text)
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 0 < first < last <= _PORT_MAX:
        raise ConfigurationError(f"ports: {text} is not FIRST-LAST, two ports or more")
    return range(first, last + 1)
