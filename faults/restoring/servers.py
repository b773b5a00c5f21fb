"""Servers of a world, each with a data directory that can be replaced: in this process, or one of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import wanderbus
from faults.agents import DOMAIN
from faults.victim import Died, Victim
from harness.ports import free_port


class Place(Protocol):
    """A server that can be started and stopped, with the path of its data."""

    data: Path

    @property
    def address(self) -> str:
        """Return the address for agents, ``host:port``."""
        ...

    async def start(self) -> None:
        """Start, and return when it serves; :class:`WanderbusError` or :class:`Died` if it refuses its data."""
        ...

    async def stop(self) -> None:
        """End it."""
        ...


class InProcess:
    """A server on the loop of the world."""

    def __init__(self, data: Path, **settings: Any) -> None:
        self.data = data
        self._host = settings.get("host", "127.0.0.1")
        self._settings = settings
        self._port = settings.get("port", 0)
        self._running: AsyncExitStack | None = None

    @property
    def address(self) -> str:
        """Return the address for agents; the port stays the same over restarts."""
        return f"{self._host}:{self._port}"

    async def start(self) -> None:
        """Start."""
        settings: dict[str, Any] = {"domain": DOMAIN, "data_dir": self.data, **self._settings, "port": self._port}
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(wanderbus.Server(**settings))
            self._port = server.address[1]
            self._running = stack.pop_all()

    async def stop(self) -> None:
        """Stop in order."""
        running, self._running = self._running, None
        if running is not None:
            await running.aclose()


class OfItsOwn:
    """A server in a process, which is killed."""

    def __init__(self, data: Path, users: Mapping[str, str]) -> None:
        self.data = data
        file = data.with_suffix(".users")
        file.touch(0o600)
        file.write_text("".join(f"{name}:{password}\n" for name, password in users.items()))
        self._port = free_port()
        options = {"--port": self._port, "--data-dir": data, "--users": file, "--domain": DOMAIN}
        words = [str(word) for option in options.items() for word in option]
        self._victim = Victim("the server", "faults.short_log", "up", *words, errors=data.with_suffix(".stderr"))

    @property
    def address(self) -> str:
        """Return the address for agents."""
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Start."""
        await self._victim.start()
        try:
            await self._victim.ready()
        except Died:
            await self._victim.kill()
            raise

    async def stop(self) -> None:
        """Kill."""
        await self._victim.kill()
