"""Conditions of a conformance test: a server whose events some engine matches, and that engine, which can be killed."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import msgspec

import wanderbus
from tests.api.world import World, numbers
from tests.engine_service import EngineService
from wanderbus.client.notifications import Notifications
from wanderbus.event import Value
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.runtime.services.service import Service


class Engine(Protocol):
    """An engine of one server."""

    subjects: tuple[str, ...]
    """Value of ``spark_subjects``."""
    quiet_s: float
    """Time after which nothing more comes."""

    def start(self, data_dir: Path) -> None:
        """Run beside the server in ``data_dir``, which may not have been started yet."""
        ...

    def kill(self) -> None:
        """End at once; :meth:`start` runs it again."""
        ...


class OwnEngine:
    """The broker's own engine, which lives and dies with the server."""

    subjects: tuple[str, ...] = ()
    quiet_s = 0.1

    def start(self, data_dir: Path) -> None:
        """There is nothing to start."""

    def kill(self) -> None:
        """There is nothing to kill."""


class EngineBeside:
    """An engine beside the server that matches without Spark."""

    subjects: tuple[str, ...] = ("*",)
    quiet_s = 0.3

    def __init__(self) -> None:
        self._service: Service | None = None

    def start(self, data_dir: Path) -> None:
        """Serve; the service needs the data directory."""
        data_dir.mkdir(exist_ok=True)
        self._service = EngineService(data_dir).service(data_dir)
        self._service.start()

    def kill(self) -> None:
        """Lose everything."""
        if self._service is not None:
            self._service.close()
            self._service = None


class Conditions:
    """A world with a server and an engine."""

    def __init__(self, world: World, engine: Engine) -> None:
        self.world = world
        self.engine = engine
        self.data_dir = world.directory / "data"

    def server(self, **bounds: Any) -> AbstractAsyncContextManager[wanderbus.Server]:
        """Return the server, which may be started again; ``bounds`` are settings of its broker."""
        config = msgspec.structs.replace(BrokerConfig(**bounds), spark_subjects=self.engine.subjects)
        return self.world.server(broker=config)

    def start_engine(self) -> None:
        """Run the engine."""
        self.engine.start(self.data_dir)

    def kill_engine(self) -> None:
        """Kill the engine."""
        self.engine.kill()

    async def numbers_from(self, first: int, notifications: Notifications[Any], count: int) -> list[Value]:
        """Read the next ``count`` notifications of a subscription that was made before ``first`` was published."""
        return await numbers(notifications, count)
