"""Media relay in a process of its own (SPEC I-05)."""

from __future__ import annotations

from typing import Any

from wanderbus.machine import Address
from wanderbus.server.host import Host
from wanderbus.server.hosted_server import HostedServer
from wanderbus.server.relay_role import RelayRole
from wanderbus.settings.server import RelaySettings


class RelayServer(HostedServer):
    """A relay alone; an async context manager that serves while it is entered.

    :raises ConfigurationError: a setting cannot be used; on entering, an address or port cannot be bound
    """

    def __init__(self, settings: RelaySettings) -> None:
        super().__init__()
        self._settings = settings
        self._relay = RelayRole(settings)
        self.ng_address: Address = self._relay.ng_address
        """Address that receives commands; once started, with the port in use."""

    def figures(self) -> dict[str, Any]:
        """Return the current and the cumulative figures of the relay."""
        return self._relay.figures()

    def _make_host(self) -> Host:
        self._relay = RelayRole(self._settings)
        return Host([self._relay])

    def _on_started(self) -> None:
        self.ng_address = self._relay.ng_address
