"""Socket of an agent of the original ECI, whose address identifies the user (SPEC A-09)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import msgspec

from wanderbus.client.agent_sockets import ECI_SCHEME, AgentSockets, local_address, located, shared_properties, usable
from wanderbus.client.machine import baseline
from wanderbus.client.machine.messages import AgentProperties, Moved
from wanderbus.errors import ConfigurationError
from wanderbus.event import Position
from wanderbus.machine import Address
from wanderbus.protocol.eci_address import user_at
from wanderbus.runtime.net.driver import Driver
from wanderbus.runtime.net.resolver import target_in
from wanderbus.settings.agent import AgentSettings

_NOT_IN_ECI: Final = (
    *("password", "transport", "ca_file", "broker", "session", "data_transport", "data_paths"),
    *("rudp", "tcp_channels", "on_ended", "offline", "outbox_file", "digest_algorithms"),
    "publisher_filtering",
)
"""Settings that the original ECI cannot provide; giving one is an error."""

_NO_DEVICES: Final = "along: original ECI has no user with several devices; leave it out"


class BaselineEnd:
    """One socket for the original ECI; it does not follow moves."""

    ephemeral = True
    has_outbox = False
    left_file = None
    outbox_owner = ""

    def __init__(self, properties: AgentProperties, *, local_address: str | None) -> None:
        self.properties = properties
        self._local_address = local_address

    @classmethod
    def of(cls, settings: AgentSettings, resume: Position | None) -> Self:
        """Return the end of an agent with ``settings``; :class:`ConfigurationError` if it cannot provide one."""
        defaults = {field.name: field.default for field in msgspec.structs.fields(AgentSettings)}
        named = [name for name in _NOT_IN_ECI if getattr(settings, name) != defaults[name]]
        if named := [*named, *(["resume"] if resume else [])]:
            raise ConfigurationError(f"original ECI ({ECI_SCHEME}) has no {' and no '.join(named)}; leave it out")
        server = target_in(settings.uri[len(ECI_SCHEME) :], default_port=0)
        given = shared_properties(settings) | {"server": server, "transport": "UDP", "broker": settings.uri}
        return cls(AgentProperties(**given), local_address=settings.local_address)

    def keep_server(self, name: str) -> None:
        """Nothing is kept: an address is a device of its own."""

    def outbox_file(self) -> Path:
        """See :meth:`AgentSockets.outbox_file`."""
        raise ConfigurationError(
            "original ECI has no outbox: it identifies agents by address, so a later agent could not publish the events"
        )

    async def locate(self, wait_s_max: float) -> None:
        """See :meth:`AgentSockets.locate`."""
        self.properties = await located(self.properties, wait_s_max)

    def open(self, driver: Driver) -> None:
        """See :meth:`AgentSockets.open`."""
        self._driver = driver
        data = self._bind(local_address(self._local_address, self.properties.server))
        driver.machine = baseline.EciAgentMachine(self.properties, data=data)

    def rebind(self, local_address: str, others: Sequence[AgentSockets] = ()) -> None:
        """See :meth:`AgentSockets.rebind`; the broker is not notified and keeps sending to the previous address."""
        if others:
            raise ConfigurationError(_NO_DEVICES)
        data = self._bind(local_address)
        self._driver.feed(Moved(data, data))

    def rebind_along(self, local_address: str, reporter: AgentProperties) -> str:
        """See :meth:`AgentSockets.rebind_along`: an address is a user of its own, without further devices."""
        raise ConfigurationError(_NO_DEVICES)

    def close(self) -> None:
        """See :meth:`AgentSockets.close`."""

    def _bind(self, local: str) -> Address:
        with usable(local):
            data = self._driver.bind({baseline.ECI_SOCKET: (local, 0)})[baseline.ECI_SOCKET]
        self.properties = msgspec.structs.replace(self.properties, uri=user_at(data))
        return data
