"""Media relay in a process of its own (SPEC I-05)."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from wanderbus.machine import Address
from wanderbus.server.host import Host
from wanderbus.server.relay_role import RelayRole
from wanderbus.settings.server import RelaySettings


class RelayServer:
    """A relay alone; an async context manager that serves while it is entered.

    :raises ConfigurationError: a setting cannot be used; on entering, an address or port cannot be bound
    """

    def __init__(self, settings: RelaySettings) -> None:
        self._relay = RelayRole(settings)
        self._host = Host([self._relay])

    @property
    def ng_address(self) -> Address:
        """Return the address that receives commands; after entering, with the port in use."""
        return self._relay.ng_address

    async def __aenter__(self) -> Self:
        await self._host.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._host.close()

    def figures(self) -> dict[str, Any]:
        """Return the current and the cumulative figures of the relay."""
        return self._relay.figures()
