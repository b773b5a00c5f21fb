"""Base of the servers of this package, each of which hosts certain roles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from wanderbus.server.host import Host


class HostedServer(ABC):
    """Async context manager that runs a host with its roles while it is entered."""

    def __init__(self) -> None:
        self._host: Host | None = None
        """The host, while it runs."""

    async def __aenter__(self) -> Self:
        host = self._make_host()
        await host.start()
        self._host = host
        self._on_started()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def run(self) -> None:
        """Serve until cancelled; :class:`StorageError` when the disk fails, after which nothing is acknowledged."""
        assert self._host is not None, "the server is not started"
        await self._host.run()

    async def close(self) -> None:
        """Stop serving; what was acknowledged is on disk, agents stay in their sessions until the next start."""
        host, self._host = self._host, None
        if host is not None:
            await host.close()

    @abstractmethod
    def _make_host(self) -> Host:
        """Return a host with new roles."""

    @abstractmethod
    def _on_started(self) -> None:
        """Note the addresses in use."""
