"""Load of a measurement: publishers that keep a rate, subscribers, and an agent that moves; through the public API."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from wanderbus.cli.bench.figures import Recorded
from wanderbus.cli.connection_options import ConnectionOptions, leave
from wanderbus.cli.devices import free_place
from wanderbus.cli.output import counted
from wanderbus.client.agent import Agent
from wanderbus.client.notifications import Notifications
from wanderbus.client.reports import StatusChange
from wanderbus.errors import ConfigurationError
from wanderbus.event import Event, Gap, Notification

SESSION: Final = "bench"
"""Session of the subscribers; each has a subscription of its own there."""

_PUBLISHERS: Final = "bench.pub"
"""Session of the publishers: without a subscription, so that nothing is queued for them."""

QUIET_S: Final = 10.0
"""Time without an arrival after which the events that are missing count as lost."""

_LOOK_S: Final = 0.02
"""Pause between two checks whether everything has arrived."""

_LIFETIME_SPARE_S: Final = 600.0
"""Lifetime of a subscription beyond the limit of the measurement: that of a killed command expires soon."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """Load that the command line asks for."""

    events: int
    size_bytes: int
    subject: str
    publishers: int = 1
    subscribers: int = 0
    rate_per_s: float | None = None
    """Events of all publishers a second; None: as fast as they are accepted."""
    in_flight: int = 1
    """Events of one publisher without an answer."""
    limit_s: float = 60.0


class Pace:
    """Times at which events are due, at a rate for all publishers together; without a rate, at once."""

    def __init__(self, rate_per_s: float | None) -> None:
        self._pause_s = 0.0 if rate_per_s is None else 1 / rate_per_s
        self._next_s: float | None = None

    async def due(self) -> float:
        """Wait until the next event is due; return that time, which is earlier than now after a delay."""
        now_s = time.monotonic()
        if not self._pause_s:
            return now_s
        due_s = now_s if self._next_s is None else self._next_s
        self._next_s = due_s + self._pause_s
        if due_s > now_s:
            await asyncio.sleep(due_s - now_s)
        return due_s


class Bench:
    """A measurement with its agents, which are connected when it is made by :func:`bench_agents`."""

    def __init__(
        self, load: Load, publishers: Sequence[Agent], subscribers: Sequence[Agent], addresses: Sequence[str]
    ) -> None:
        self.load = load
        self.addresses = addresses
        """Addresses to which the first subscriber may move, in turn."""
        self.subscribers = subscribers
        self.recorded = Recorded(len(publishers), len(subscribers))
        self.wanted = load.events
        """Number of events to publish; less than that of the load once the publishers were stopped."""
        self._publishers = publishers
        self._is_stopped = False
        self._run = f"r{secrets.token_hex(8)}"
        """Mark of the events of this measurement: others may use the same subject."""
        self._payload = "x" * load.size_bytes

    async def publish(self) -> None:
        """Publish all events; return when the server has accepted them."""
        pace = Pace(self.load.rate_per_s)
        shares = [self.load.events // len(self._publishers)] * len(self._publishers)
        for place in range(self.load.events % len(self._publishers)):
            shares[place] += 1
        async with _first_error(), asyncio.TaskGroup() as group:
            for place, (agent, share) in enumerate(zip(self._publishers, shares, strict=True)):
                group.create_task(self._publish_share(agent, place, share, pace))

    def stop_publishing(self) -> None:
        """Publish no further events; :meth:`publish` returns once the others are accepted."""
        self._is_stopped = True

    async def _publish_share(self, agent: Agent, place: int, share: int, pace: Pace) -> None:
        room = asyncio.Semaphore(self.load.in_flight)
        async with asyncio.TaskGroup() as group:
            for number in range(share):
                due_s = await pace.due()
                await room.acquire()
                if self._is_stopped:
                    self.wanted = sum(map(len, self.recorded.due_s))
                    return
                if self.load.rate_per_s is None:
                    due_s = time.monotonic()
                self.recorded.on_due(place, number, due_s)
                publishing = group.create_task(self._publish_one(agent, place, number))
                publishing.add_done_callback(lambda _: room.release())

    async def _publish_one(self, agent: Agent, place: int, number: int) -> None:
        attributes = {"Run": self._run, "Publisher": place, "Number": number, "Payload": self._payload}
        await agent.publish(Event(self.load.subject, attributes))
        self.recorded.on_accepted(place, number, time.monotonic())

    @contextlib.asynccontextmanager
    async def subscribed(self) -> AsyncIterator[None]:
        """Let all subscribers read while the block runs; it is entered once all subscriptions are durable."""
        async with contextlib.AsyncExitStack() as stack:
            readers = [await stack.enter_async_context(self._subscription(agent)) for agent in self.subscribers]
            async with _first_error(), asyncio.TaskGroup() as group:
                reading = [group.create_task(self._read(place, each)) for place, each in enumerate(readers)]
                try:
                    yield
                finally:
                    for task in reading:
                        task.cancel()

    def _subscription(self, agent: Agent) -> Notifications[Any]:
        lifetime_s = self.load.limit_s + _LIFETIME_SPARE_S
        expression = f"Run == {self._run}"
        return agent.subscribe(self.load.subject, expression, this_device_only=True, lifetime_s=lifetime_s, gaps=True)

    async def _read(self, place: int, notifications: Notifications[Notification | Gap]) -> None:
        async for item in notifications:
            if isinstance(item, Notification):
                publisher, number = item.event.get("Publisher"), item.event.get("Number")
                # Whoever knows the mark can publish anything with it.
                if isinstance(publisher, int) and isinstance(number, int):
                    self.recorded.on_arrived(place, publisher, number, time.monotonic())

    async def arrived(self) -> None:
        """Wait until all events have arrived, or none for :data:`QUIET_S`: then the rest is lost."""
        until_s, before = time.monotonic() + QUIET_S, -1
        while not self.recorded.is_all_delivered and time.monotonic() < until_s:
            if self.recorded.delivered_count != before:
                until_s, before = time.monotonic() + QUIET_S, self.recorded.delivered_count
            await asyncio.sleep(_LOOK_S)

    def progress(self) -> str:
        """Return how far the measurement is, in words."""
        accepted, moves = self.recorded.accepted_count, len(self.recorded.moves_s)
        of_all = "" if moves else f" of {self.load.events:,}"  # so many moves decide how many events there are
        line = f"{accepted:,}{of_all} events published"
        if self.subscribers:
            line += f", {self.recorded.delivered_count:,} delivered"
        return f"{line}, {counted(moves, 'move')}" if moves else line


class Mover:
    """An agent that changes its address, or only its port, while events flow to it."""

    def __init__(self, agent: Agent, addresses: Sequence[str], recorded: Recorded) -> None:
        self._agent = agent
        self._addresses = addresses
        self._recorded = recorded

    async def move(self, moves: int, pause_s: float) -> None:
        """Move so many times, each ``pause_s`` after the agent was connected again."""
        for place in range(moves):
            await asyncio.sleep(pause_s)
            changes = self._agent.changes()
            self._recorded.moves_s.append(time.monotonic())
            await self._agent.rebind(self._addresses[place % len(self._addresses)])
            async for change in changes:
                if change.status == "CONNECTED":
                    break
            self._recorded.connection_s.append(time.monotonic() - self._recorded.moves_s[-1])
        await asyncio.sleep(pause_s)


@contextlib.asynccontextmanager
async def bench_agents(connection: ConnectionOptions, load: Load) -> AsyncIterator[Bench]:
    """Connect the publishers and subscribers of a measurement; they leave their sessions at the end."""
    if connection.is_eci:
        raise ConfigurationError("the original ECI acknowledges nothing that could be measured; give --user sip:...")
    agents: list[Agent] = []
    addresses: list[str] = []
    with contextlib.ExitStack() as places:

        async def opened(session: str) -> Agent:
            place = places.enter_context(free_place(connection.device_directory() / session))
            # End what a killed command left of this device; only these commands use the sessions.
            agent = connection.agent(state_dir=place.directory, session=session, keep=False)
            changes = agent.changes()
            await agent
            agents.append(agent)
            addresses[:] = moving_addresses(await anext(changes))
            return agent

        try:
            publishers = [await opened(_PUBLISHERS) for _ in range(load.publishers)]
            subscribers = [await opened(SESSION) for _ in range(load.subscribers)]
            yield Bench(load, publishers, subscribers, addresses)
        finally:
            # At the same time: a server that does not answer delays the end only once.
            await asyncio.gather(*map(_ended, agents))


def moving_addresses(change: StatusChange) -> Sequence[str]:
    """Return the addresses to which an agent can move that is connected: its own, with other ports.

    On loopback it has a second one.
    """
    local = change.address.rpartition(":")[0].strip("[]")
    return ("127.0.0.2", "127.0.0.1") if local == "127.0.0.1" else (local,)


async def _ended(agent: Agent) -> None:
    await leave(agent)
    await agent.close()


@contextlib.asynccontextmanager
async def _first_error() -> AsyncIterator[None]:
    """Raise the first error of a group of tasks in place of the group."""
    try:
        yield
    except ExceptionGroup as several:
        error: BaseException = several
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


@contextlib.asynccontextmanager
async def repeated(each_s: float, act: Callable[[], None]) -> AsyncIterator[None]:
    """Call ``act`` again and again while the block runs."""

    async def call() -> None:
        while True:
            await asyncio.sleep(each_s)
            act()

    calling = asyncio.create_task(call())
    try:
        yield
    finally:
        calling.cancel()
