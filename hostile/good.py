"""Good agents of a run, a job of one process: five that publish and subscribe, one of them moving, and newcomers.

All live on the host ``good`` at addresses of their own. The benchmark names the phases; the job keeps everything that
it saw in memory and returns it at the end, after everything in flight had time to arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec

import wanderbus
from harness.workers import Line
from hostile.attack import DOMAIN, PASSWORD
from hostile.network import GOOD, MOVED, NEWCOMERS, as_ipv6
from hostile.priority import come_first
from hostile.tally import Arrival, Newcomer, Observed, Phase
from wanderbus.errors import WanderbusError

NAMES: Final = ("alice", "bob", "carol", "dave", "erin")
MOVER: Final = NAMES[-1]
NEWCOMER_NAMES: Final = tuple(f"newcomer{number}" for number in range(len(NEWCOMERS)))
SUBJECT: Final = "Fact"
EVENTS_PER_S: Final = 20.0
"""Events each good agent publishes a second."""

NEWCOMER_EACH_S: Final = 2.5
NEWCOMER_S_MAX: Final = 20.0
"""Time after which a newcomer without any event gives up; its time then counts as so long."""

MOVE_AT: Final = 0.4
"""Share of a phase after which the mover moves."""

DRAIN_S_MAX: Final = 20.0
QUIET_S_MAX: Final = 6.0
CONNECT_S_MAX: Final = 60.0


class Place(msgspec.Struct, frozen=True):
    """Servers and directory of the good agents; each agent is at one of the servers."""

    servers: tuple[str, ...]
    directory: str
    ipv6: bool = False

    def local(self, address: str) -> str:
        """Return an agent's address in the family that is used; ``address`` is its IPv4 address."""
        return as_ipv6(address) if self.ipv6 else address


async def be_good(line: Line, place: Place) -> bytes:
    """Connect, report "ready", then run each ``(phase, seconds)`` until None arrives; return an encoded
    :class:`Observed`.
    """
    come_first()
    async with contextlib.AsyncExitStack() as stack:
        agents = {}
        for name, address in zip(NAMES, GOOD, strict=True):
            agents[name] = await stack.enter_async_context(_agent(place, name, address))
        party = _Party(place, agents)
        for name in NAMES:
            await party.subscribe(name, stack)
        tasks = [asyncio.create_task(party.publish(name)) for name in NAMES]
        line.send("ready")
        while (asked := await line.receive()) is not None:
            await party.live(*asked)
            line.send("lived")
        party.stop.set()
        await asyncio.gather(*tasks)
        await party.drain()
        await party.end()
        return msgspec.msgpack.encode(party.observed)


class _Party:
    """The five agents and everything that they observe."""

    def __init__(self, place: Place, agents: dict[str, wanderbus.Agent]) -> None:
        self.observed = Observed(called=dict.fromkeys(agents, 0))
        self.stop = asyncio.Event()
        self._place = place
        self._agents = agents
        self._tasks: set[asyncio.Task[None]] = set()
        self._readers: list[asyncio.Task[None]] = []
        self._newcomers = 0
        self._moves = 0

    async def subscribe(self, name: str, stack: contextlib.AsyncExitStack) -> None:
        """Have ``name`` read what all others publish."""
        notifications = await stack.enter_async_context(self._agents[name].subscribe(SUBJECT, f"(By != {name})"))

        async def read() -> None:
            async for each in notifications:
                by, number, at = each.event["By"], each.event["Number"], each.event["At"]
                assert isinstance(by, str)
                assert isinstance(number, int)
                assert isinstance(at, float)
                self.observed.arrivals.append(Arrival(by, name, number, at, time.monotonic()))

        self._readers.append(asyncio.create_task(read()))

    async def publish(self, name: str) -> None:
        """Publish at a steady rate until stopped, whether or not earlier events are acknowledged."""
        next_s = time.monotonic()
        while not self.stop.is_set():
            self._begin(self._publish_one(name))
            next_s += 1 / EVENTS_PER_S
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))

    async def _publish_one(self, name: str) -> None:
        self.observed.called[name] += 1
        number = self.observed.called[name]
        try:
            await self._agents[name].publish(SUBJECT, {"By": name, "Number": number, "At": time.monotonic()})
        except WanderbusError as error:
            self.observed.refused.append(f"{name}: {error}")

    async def live(self, phase: str, seconds: float) -> None:
        """Run a phase: publishing continues, one agent moves, newcomers connect."""
        began_s = time.monotonic()
        self._begin(self._move(seconds * MOVE_AT))
        next_s = NEWCOMER_EACH_S / 5
        while next_s < seconds:
            await asyncio.sleep(max(0.0, began_s + next_s - time.monotonic()))
            self._begin(self._newcomer())
            next_s += NEWCOMER_EACH_S
        await asyncio.sleep(max(0.0, began_s + seconds - time.monotonic()))
        self.observed.phases.append(Phase(phase, began_s, time.monotonic()))

    async def _move(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self._moves += 1
        await self._agents[MOVER].rebind(self._place.local(MOVED if self._moves % 2 else GOOD[-1]))

    async def _newcomer(self) -> None:
        number = self._newcomers % len(NEWCOMERS)
        self._newcomers += 1
        began_s = time.monotonic()
        took_s: float | None = None
        try:
            async with asyncio.timeout(NEWCOMER_S_MAX):
                agent = _agent(self._place, NEWCOMER_NAMES[number], NEWCOMERS[number])
                async with agent, agent.subscribe(SUBJECT) as notifications:
                    await anext(notifications)
                    took_s = time.monotonic() - began_s
        except (WanderbusError, TimeoutError):
            took_s = took_s or NEWCOMER_S_MAX
        finally:
            # A newcomer that still waits when the run ends counts with its waiting time.
            self.observed.newcomers.append(Newcomer(began_s, took_s or time.monotonic() - began_s))

    async def drain(self) -> None:
        """Wait until all published events have arrived, or no more arrive."""
        seen = self.observed
        wanted = sum(seen.called.values()) * (len(NAMES) - 1)
        began_s = moved_s = time.monotonic()
        count = -1
        while time.monotonic() < min(began_s + DRAIN_S_MAX, moved_s + QUIET_S_MAX):
            if len(seen.arrivals) >= wanted and not self._tasks:
                await asyncio.sleep(0.3)  # retransmissions are late
                return
            if len(seen.arrivals) != count:
                count, moved_s = len(seen.arrivals), time.monotonic()
            await asyncio.sleep(0.05)

    async def end(self) -> None:
        """End all waiting newcomers."""
        tasks = (*self._tasks, *self._readers)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=DRAIN_S_MAX)

    def _begin(self, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _agent(place: Place, name: str, address: str) -> wanderbus.Agent:
    return wanderbus.connect(
        f"sip:{name}@{DOMAIN}",
        password=PASSWORD,
        server=place.servers[int(address.rpartition(".")[2]) % len(place.servers)],
        state_dir=Path(place.directory, name),
        local_address=place.local(address),
        connect_s_max=CONNECT_S_MAX,
    )
