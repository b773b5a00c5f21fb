"""Conditions of a conformance test in a domain of three servers, with publisher and subscriber at some of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

import wanderbus
from tests.api.event_domain import Domain
from tests.api.world import SUBJECT, World, numbers
from tests.conformance.conditions import Conditions, Engine
from tests.conformance.delivery import OTHER
from wanderbus.client.notifications import Notifications
from wanderbus.event import Value
from wanderbus.parameters.broker import BrokerConfig


class Placement(NamedTuple):
    """Servers of publisher and subscriber: 0 leads the channel of the events, 1 and 2 do not."""

    publisher: int
    subscriber: int


class Advertiser(wanderbus.Agent):
    """An agent that advertises every event as soon as it is open."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.advertise("*")
        return self


class DomainWorld(World):
    """A world in which bob publishes at one server of a domain, and alice subscribes at another."""

    def __init__(
        self, directory: Path, placement: Placement, keys: str, tables: str = "", *, is_one_channel: bool
    ) -> None:
        """Make the domain with these ``keys`` and ``tables`` in its file.

        ``is_one_channel`` puts both subjects into one channel, whose leader has the engine.
        """
        super().__init__(directory)
        pins = f"[pins]\n{SUBJECT} = 7\n{OTHER} = 7\n" if is_one_channel else ""
        self.domain = Domain(directory / "domain", keys=keys, tables=f"{tables}\n{pins}")
        leader = self.domain.leader(SUBJECT)
        names = [leader, *(name for name in ("s1", "s2", "s3") if name != leader)]
        self.places = {"bob": names[placement.publisher], "alice": names[placement.subscriber]}
        self.leader = leader
        self.advertises = False
        """True if bob advertises every subject."""

    def agent(self, name: str = "alice", *, device: str | None = None, **options: Any) -> wanderbus.Agent:
        """Return an agent at the server of this user."""
        self.port = self.domain.ports[self.places[name]]
        agent = super().agent(name, device=device, **options)
        if self.advertises and name == "bob":
            agent.__class__ = Advertiser
        return agent


class DomainConditions(Conditions):
    """A domain of three servers, and the engine that matches at the leader.

    With ``has_history`` the server of the subscriber has all earlier events of the channel.
    """

    def __init__(self, world: DomainWorld, engine: Engine, *, has_history: bool) -> None:
        super().__init__(world, engine)
        self.has_history = has_history
        self._domain = world.domain
        self.data_dir = world.domain.data_dir(world.leader)

    def server(self, **bounds: Any) -> AbstractAsyncContextManager[Any]:
        """Return all servers, which may be started again; ``bounds`` are settings of their brokers."""
        config = msgspec.structs.replace(BrokerConfig(**bounds), spark_subjects=self.engine.subjects)
        return self._servers(config)

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
                await stack.enter_async_context(self._domain.server(name, broker=config))
            yield
