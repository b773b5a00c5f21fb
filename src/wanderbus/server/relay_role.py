"""Media relay: one socket for the commands of proxies, and one for each port that the relay hands out (SPEC I)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final

from wanderbus.errors import ConfigurationError
from wanderbus.machine import Address, Machine, Output, shown
from wanderbus.metrics import Sample, counted
from wanderbus.relay import NG_SOCKET, ClosePort, OpenPort, PortOpened, PortRefused, Relay, RelayLimits, Side
from wanderbus.relay.statistics import of_relay
from wanderbus.runtime.net.driver import open_udp
from wanderbus.runtime.net.relayed_connections import RelayedListener
from wanderbus.runtime.net.relayed_datagrams import DatagramPort
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.server.ports import Bound, Port, UdpPort
from wanderbus.server.role import HostOffer, Role
from wanderbus.settings.server import RelaySettings

LOOPBACK: Final = "127.0.0.1"
_PORTS: Final = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_PORT_MAX: Final = 65_535


class RelayRole(Role):
    """The relay of these settings.

    :param table: prefix of keys in errors, if the settings are a table of a file
    :raises ConfigurationError: a setting cannot be used
    """

    name = "relay"
    reads_clock = True

    def __init__(self, settings: RelaySettings, table: str = "") -> None:
        self._table = table
        self.ng_address = _place(settings.ng_listen)
        """Address that receives commands; once started, with the port in use."""
        self.host = _ip(settings.address or LOOPBACK, "address")
        """Address of the relayed streams."""
        self._limits = settings.limits or RelayLimits()
        self._open: dict[Side, DatagramPort | RelayedListener] = {}
        self._offer: HostOffer | None = None
        proxies = [_ip(each, "ng_from") for each in settings.ng_from]
        if not proxies and not ip_address(self.ng_address[0]).is_loopback:
            raise ConfigurationError(
                "ng_from: name the proxies that may send commands, since ng_listen is not on loopback"
            )
        self.machine = Relay(
            SystemRandom(),
            address=_ip(settings.advertise or self.host, "advertise"),
            ports=_ports(settings.ports),
            limits=self._limits,
            proxies=proxies,
            loopback=settings.loopback_peers or ip_address(self.host).is_loopback,
        )

    async def open(self, offer: HostOffer) -> None:
        """Fail now rather than at the first call if streams cannot be bound."""
        self._offer = offer
        try:
            with open_udp((self.host, 0)):
                pass
        except OSError as error:
            raise self._unusable(error) from None

    def ports(self) -> Sequence[Port]:
        """Return the socket for commands."""
        host, port = self.ng_address
        return [UdpPort(name=NG_SOCKET, host=host, port=port)]

    def port_error(self, port: Port, error: OSError) -> ConfigurationError:
        """Return the error for that socket."""
        return self._unusable(error)

    def make_machine(self, bound: Mapping[str, Bound]) -> Machine:
        """Return the relay."""
        self.ng_address = bound[NG_SOCKET].address
        return self.machine

    def report(self, output: Output) -> None:
        """Open and close ports of calls."""
        match output:
            case OpenPort(side=side, port=port):
                assert self._offer is not None
                try:
                    self._open[side] = self._opened(side, (self.host, port))
                except OSError:
                    self._offer.feed(PortRefused(side, port))
                else:
                    self._offer.feed(PortOpened(side, port))
            case ClosePort(side=side):
                if (opened := self._open.pop(side, None)) is not None:
                    opened.close()

    def close(self) -> None:
        """Close the ports of every call."""
        for opened in self._open.values():
            opened.close()
        self._open.clear()

    def metrics(self) -> Iterable[Sample]:
        """Return the samples of the relay."""
        figures = self.figures()
        yield Sample("relay_calls", len(self.machine.calls))
        yield from counted("relay_commands_total", figures["counters"])
        yield from counted("relay_streams_total", figures["streams"])

    def figures(self) -> dict[str, Any]:
        """Return the current and the cumulative figures of the relay."""
        return of_relay(self.machine)

    def _unusable(self, error: OSError) -> ConfigurationError:
        places = f"{self._table}address {self.host} or ng_listen {shown(self.ng_address)}"
        return ConfigurationError(f"{places} cannot be used: {error.strerror}")

    def _opened(self, side: Side, address: Address) -> DatagramPort | RelayedListener:
        if side.transport == "TCP":
            return RelayedListener(side, address, self._limits)
        port = DatagramPort(side, address)
        other = self._open.get(side.other)
        if isinstance(other, DatagramPort):
            port.pair(other)
        return port


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
