"""Conditions of a conformance test in a domain of three servers, with publisher and subscriber at some of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

import wanderbus
from tests.api.event_domain import Domain, multicast_table
from tests.api.world import World, numbers
from tests.conformance.conditions import Conditions, Engine, OwnEngine
from wanderbus.client.notifications import Notifications
from wanderbus.event import Value
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.runtime.files.server_files import ServerFiles


class Placement(NamedTuple):
    """Servers of publisher and subscriber: 0 leads the channel of the events, 1 and 2 do not."""

    publisher: int
    subscriber: int


APART, AT_LEADER = Placement(1, 2), Placement(0, 0)


class Advertiser(wanderbus.Agent):
    """An agent that advertises every event as soon as it is open."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.advertise("*")
        return self


class DomainWorld(World):
    """A world in which bob publishes at one server of a domain, and alice subscribes at another."""

    def __init__(self, directory: Path, placement: Placement, keys: str, tables: str = "") -> None:
        """Make the domain with these ``keys`` and ``tables`` in its file."""
        super().__init__(directory)
        self.domain = Domain(directory / "domain", keys=keys, tables=tables)
        self.servers = self.domain.places()
        """The servers; the first one leads the channel of the events."""
        self.places = {"bob": self.servers[placement.publisher], "alice": self.servers[placement.subscriber]}
        self.advertises = False
        """True if bob advertises every subject."""
        self.is_filtering = False
        """True if bob holds back what nobody wants."""

    def agent(self, name: str = "alice", *, device: str | None = None, **options: Any) -> wanderbus.Agent:
        """Return an agent at the server of this user."""
        self.port = self.domain.ports[self.places[name]]
        if name == "bob" and self.is_filtering:
            options["publisher_filtering"] = True
        agent = super().agent(name, device=device, **options)
        if self.advertises and name == "bob":
            agent.__class__ = Advertiser
        return agent


class DomainConditions(Conditions):
    """A domain of three servers, and the engines beside some of them.

    With ``has_history`` the earlier events of the channel are in one log, that of the leader.
    """

    def __init__(self, world: DomainWorld, engines: Mapping[int, Engine], *, has_history: bool) -> None:
        """Use ``engines`` by the place of their servers among :attr:`DomainWorld.servers`; at least one."""
        super().__init__(world, next(iter(engines.values())))
        self.has_history = has_history
        self._domain = world.domain
        self._engines = {world.servers[place]: engine for place, engine in engines.items()}

    def server(self, **bounds: Any) -> AbstractAsyncContextManager[Any]:
        """Return all servers, which may be started again; ``bounds`` are settings of their brokers."""
        return self._servers(BrokerConfig(**bounds))

    def start_engine(self) -> None:
        """Run all engines; a server that has not been started yet gets its log, which has its name."""
        for name, engine in self._engines.items():
            directory = self._domain.data_dir(name)
            if not directory.exists():
                ServerFiles.open(directory, new_name=name).close()
            engine.start(directory)

    def kill_engine(self) -> None:
        """Kill all engines."""
        for engine in self._engines.values():
            engine.kill()

    async def numbers_from(self, first: int, notifications: Notifications[Any], count: int) -> list[Value]:
        """Read them; events that were on their way between servers when the subscription was made may come before."""
        seen: list[Value] = []
        while len(seen) < count:
            seen += [each for each in await numbers(notifications, 1) if int(str(each)) >= first]
        return seen

    @asynccontextmanager
    async def _servers(self, config: BrokerConfig) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for name in ("s1", "s2", "s3"):
                subjects = self._engines[name].subjects if name in self._engines else ()
                own = msgspec.structs.replace(config, spark_subjects=subjects)
                await stack.enter_async_context(self._domain.server(name, broker=own))
            yield


class Combination(NamedTuple):
    """A kind of domain, where its users are, and the servers with an engine beside them: 0 is the leader."""

    placement: Placement
    merging: str
    engines: tuple[int, ...] = ()
    model: str = "ordered"
    advertisements: str = "optional"
    fabric: str = "udp"
    """Fabric between the servers: reliable UDP, that and multicast, or function calls in one process."""
    is_filtering: bool = False
    """True if the publisher holds back what nobody wants."""

    def __str__(self) -> str:
        publisher, subscriber = self.placement
        required = "-required" if self.advertisements == "required" else ""
        fabric = "" if self.fabric == "udp" else f"-{self.fabric}"
        beside = f"-engines{''.join(map(str, self.engines))}" if self.engines else ""
        filtering = "-filtering" if self.is_filtering else ""
        return f"{self.model}-{publisher}-{subscriber}-{self.merging}{beside}{required}{fabric}{filtering}"

    def conditions(self, directory: Path, make_engine: Callable[[], Engine]) -> DomainConditions:
        """Return the conditions in a directory; ``make_engine`` is called for each engine."""
        keys = {"merging": self.merging, "model": self.model, "advertisements": self.advertisements}
        lines = "\n".join(f'{key} = "{value}"' for key, value in keys.items())
        tables = multicast_table() if self.fabric == "multicast" else ""
        world = DomainWorld(directory, self.placement, lines, tables)
        world.advertises, world.is_filtering = self.advertisements == "required", self.is_filtering
        engines: dict[int, Engine] = {place: make_engine() for place in self.engines}
        has_history = self.model == "ordered"
        return DomainConditions(world, engines or {0: OwnEngine()}, has_history=has_history)
