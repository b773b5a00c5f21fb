"""Sockets of an agent, the state machine that uses them, and their replacement when the device moves."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from wanderbus.client.machine import core
from wanderbus.client.machine.data_path import allowed_paths
from wanderbus.client.machine.messages import AgentProperties, Moved
from wanderbus.datachannel import DISCARD_PORT
from wanderbus.detection import MakeDetector
from wanderbus.errors import ConfigurationError, Unreachable
from wanderbus.limits import EVENT_BYTES_MOST
from wanderbus.machine import Address
from wanderbus.parameters.transports import DATA_STREAM_LIMITS, RudpConfig, TcpConfig, carrying
from wanderbus.runtime.files.device_file import Device
from wanderbus.runtime.net.addresses import AddressMonitor, address_towards
from wanderbus.runtime.net.driver import Driver
from wanderbus.runtime.net.resolver import resolved
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.settings.agent import AgentSettings

_log = logging.getLogger("wanderbus.agent")

ECI_SCHEME: Final = "eci://"

LEFT_FILE: Final = "left"
"""Name of the file of subscriptions without an end in the state directory of a device."""

OUTBOX_FILE: Final = "outbox.db"
"""Name of the outbox file in the state directory of a device."""


def shared_properties(settings: AgentSettings) -> dict[str, Any]:
    """Return the settings that a machine takes unchanged, and a random epoch for this agent."""
    names = set(AgentProperties.__struct_fields__) & set(AgentSettings.__struct_fields__)
    epoch = int.from_bytes(SystemRandom().token(7), "big")
    return {name: getattr(settings, name) for name in names} | {"device": "", "epoch": epoch}


class AgentSockets(Protocol):
    """Interface between an agent and its sockets."""

    properties: AgentProperties
    """Identity and parameters of the agent; some are known only once it is open."""

    @property
    def ephemeral(self) -> bool:
        """True if this device identity is used only once; the agent then leaves its session when it is closed."""
        ...

    @property
    def has_outbox(self) -> bool:
        """True if this device has an outbox file, which may contain events."""
        ...

    def outbox_file(self) -> Path:
        """Return the path of this device's outbox; :class:`ConfigurationError` if it cannot have one."""
        ...

    def keep_server(self, name: str) -> None:
        """Keep the server that knows what this device has published, for its later agents."""
        ...

    @property
    def left_file(self) -> Path | None:
        """File for the subscriptions that this device leaves without an end; None without a state directory."""
        ...

    @property
    def outbox_owner(self) -> str:
        """Owner of the outbox: only this user, broker and device can publish its events."""
        ...

    async def locate(self, wait_s_max: float) -> None:
        """Look up the server's host name without blocking the loop; call it before :meth:`open`.

        :raises ConfigurationError: there is no such host
        :raises NoResponse: no name server answered within ``wait_s_max``
        """
        ...

    def open(self, driver: Driver) -> None:
        """Bind the sockets of ``driver`` and create its machine, which needs their addresses.

        :raises ConfigurationError: the local address cannot be used
        :raises Unreachable: there is no route to the server
        """
        ...

    def rebind(self, local_address: str, others: Sequence[AgentSockets] = ()) -> None:
        """Use ``local_address`` from now on, whatever the route; :class:`ConfigurationError` if it cannot be used.

        The sockets of ``others``, further devices of the user, move as well, and this one reports their places.
        """
        ...

    def rebind_along(self, local_address: str, reporter: AgentProperties) -> str:
        """Use ``local_address`` without a report to the broker; return the place, which ``reporter`` sends.

        :raises ConfigurationError: the address cannot be used, or the other agent has another user or broker
        """
        ...

    def close(self) -> None:
        """Stop following the route, and release the device's directory."""
        ...


class MobileEnd:
    """Sockets for SIP and for the data channel, rebound when the device's address changes (SPEC D-05, D-08)."""

    def __init__(
        self,
        properties: AgentProperties,
        rudp: RudpConfig | None,
        tcp_channels: TcpConfig | None,
        *,
        state_dir: Path,
        outbox_file: Path | None,
        local_address: str | None,
        data_port: int,
        offline: bool,
        tls: ssl.SSLContext | None,
        make_detector: MakeDetector | None,
    ) -> None:
        self.properties = properties
        self._rudp = rudp
        self._tcp_channels = tcp_channels
        self._state_dir = state_dir if outbox_file is None else outbox_file.with_name(f"{outbox_file.name}.device")
        self._outbox_file = outbox_file
        self._outbox = outbox_file or state_dir / OUTBOX_FILE
        self._local_address = local_address
        self._data_port = data_port
        self._offline = offline
        self._tls = tls
        self._make_detector = make_detector
        self._device: Device | None = None
        self._monitor: AddressMonitor | None = None

    @property
    def ephemeral(self) -> bool:
        """True if the device's directory was in use, so that this agent has a temporary identity."""
        return self._device is not None and self._device.ephemeral

    @property
    def has_outbox(self) -> bool:
        """See :meth:`AgentSockets.has_outbox`."""
        return not self.ephemeral and self._outbox.exists()

    def keep_server(self, name: str) -> None:
        """See :meth:`AgentSockets.keep_server`."""
        if self._device is not None:
            self._device.keep_server(name)

    @property
    def left_file(self) -> Path | None:
        """See :meth:`AgentSockets.left_file`."""
        return None if self.ephemeral else self._state_dir / LEFT_FILE

    def outbox_file(self) -> Path:
        """See :meth:`AgentSockets.outbox_file`."""
        if self.ephemeral and self._outbox_file:
            raise ConfigurationError(
                f"another agent uses the outbox {self._outbox_file}; wait for it to end, or give another file"
            )
        if self.ephemeral:
            raise ConfigurationError(
                f"no outbox: another agent uses {self._state_dir}, so this agent has a temporary identity and nobody "
                "would publish its remaining events; give it a separate state_dir"
            )
        return self._outbox

    @property
    def outbox_owner(self) -> str:
        """See :meth:`AgentSockets.outbox_owner`. Includes the device if the file could be moved away from it.

        The broker recognises duplicates by the device.
        """
        owner = f"{self.properties.uri} at {self.properties.broker}"
        return f"{owner}, device {self.properties.device}" if self._outbox_file else owner

    async def locate(self, wait_s_max: float) -> None:
        """See :meth:`AgentSockets.locate`."""
        self.properties = await located(self.properties, wait_s_max)

    def open(self, driver: Driver) -> None:
        """See :meth:`AgentSockets.open`."""
        self._driver = driver
        self._device = Device(self._state_dir)
        identity = {"device": self._device.uuid, "was_at": self._device.server}
        self.properties = msgspec.structs.replace(self.properties, **identity)
        bound = self._bind(local_address(self._local_address, self.properties.server, offline=self._offline))
        driver.machine = core.AgentMachine(
            self.properties,
            SystemRandom(),
            sip=bound[core.SIP_SOCKET],
            data=bound[core.DATA_SOCKET],
            # An agent trusts its broker with events of any size, so only the broker has a setting.
            rudp=carrying(self._rudp or RudpConfig(), EVENT_BYTES_MOST),
            tcp=carrying(self._tcp_channels or TcpConfig(), EVENT_BYTES_MOST),
            make_detector=self._make_detector,
        )
        if self._local_address is None:
            self._monitor = AddressMonitor(self.properties.server, self._followed)

    def rebind(self, local_address: str, others: Sequence[AgentSockets] = ()) -> None:
        """See :meth:`AgentSockets.rebind`."""
        self._move(local_address, tuple([each.rebind_along(local_address, self.properties) for each in others]))
        self._stop_following()

    def rebind_along(self, local_address: str, reporter: AgentProperties) -> str:
        """See :meth:`AgentSockets.rebind_along`."""
        if (self.properties.uri, self.properties.broker) != (reporter.uri, reporter.broker):
            raise ConfigurationError(f"along: {self.properties.uri} is not another device of {reporter.uri}")
        bound = self._bind(local_address)
        self._stop_following()
        self._driver.take(Moved(bound[core.SIP_SOCKET], bound[core.DATA_SOCKET], by_other=True))
        machine = self._driver.machine
        assert isinstance(machine, core.AgentMachine)
        return machine.place

    def close(self) -> None:
        """See :meth:`AgentSockets.close`."""
        self._stop_following()
        if self._device is not None:
            self._device.close()

    def _stop_following(self) -> None:
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None

    def _bind(self, local: str) -> dict[str, Address]:
        driver = self._driver
        with usable(local, self._data_port):
            ways = allowed_paths(self.properties.data_transport, self.properties.data_paths)
            over_udp, over_tcp = (any(way.startswith(kind) for way in ways) for kind in ("udp", "tcp"))
            sockets = {core.SIP_SOCKET: (local, 0)}
            if over_udp:
                sockets[core.DATA_SOCKET] = local, self._data_port
            bound = driver.bind(sockets)
            if over_tcp:
                driver.bind_streams(core.STREAM_SOCKET, {}, local_host=local, limits=DATA_STREAM_LIMITS)
            if not over_udp:
                bound[core.DATA_SOCKET] = (local, DISCARD_PORT)
            if self.properties.transport != "UDP":
                # No listener is needed: requests arrive on the connection that the agent opens to the server.
                driver.bind_streams(core.SIP_SOCKET, {}, client_tls=self._tls, local_host=local)
            else:
                driver.allow_streams(core.SIP_SOCKET, local_host=local)  # for requests too long for the path
        return bound

    def _move(self, local: str, places: Sequence[str] = ()) -> None:
        bound = self._bind(local)
        given = tuple([place for place in places if place])
        self._driver.feed(Moved(bound[core.SIP_SOCKET], bound[core.DATA_SOCKET], given))

    def _followed(self, local: str) -> bool:
        try:
            self._move(local)
        except ConfigurationError as error:
            _log.warning("cannot use the new local address %s yet: %s; retrying", local, error)
            return False
        return True


async def located(properties: AgentProperties, wait_s_max: float) -> AgentProperties:
    """Return ``properties`` with the address of the server's host."""
    return msgspec.structs.replace(properties, server=await resolved(properties.server, wait_s_max))


def local_address(wanted: str | None, server: Address, *, offline: bool = False) -> str:
    """Return the local address to use: the wanted one, or that of the route to ``server``."""
    local = wanted or address_towards(server)
    if local is None and offline:
        return "::1" if ":" in server[0] else "127.0.0.1"  # until the monitor reports a route
    if local is None:
        raise Unreachable(f"there is no route to {server[0]}; check the network")
    return local


@contextlib.contextmanager
def usable(local: str, data_port: int = 0) -> Iterator[None]:
    """Convert errors of binding sockets to ``local``, one to a given port, into :class:`ConfigurationError`."""
    try:
        if ipaddress.ip_address(local).is_unspecified:
            raise ConfigurationError(f"local_address: {local} is unspecified; give an address that peers can send to")
        yield
    except ValueError:
        raise ConfigurationError(f"local_address: {local!r} is not an IP address") from None
    except OverflowError:
        raise ConfigurationError(f"data_port: {data_port} is no port; give one from 1 to 65535, or 0 for any") from None
    except OSError as error:
        if data_port and error.errno in (errno.EADDRINUSE, errno.EACCES):
            what = f"data_port: port {data_port} of {local}"
        else:
            what = f"local_address: {local}"
        raise ConfigurationError(f"{what} cannot be used: {error.strerror}") from None
