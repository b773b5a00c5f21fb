"""Interface of the brokers that :mod:`bench.broker` measures, and the jobs of the two sides.

An event is a payload of :data:`EVENT_BYTES` bytes with the monotonic second of its publishing in front; ours carries
it as the attributes of an event, the others as bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from harness.workers import Line
from wanderbus.testbed.processes import Process

EVENT_BYTES: Final = 200
QUIET_S: Final = 20.0
"""Silence after which a consumer will receive nothing more."""

HOST: Final = "127.0.0.1"
START_S_MAX: Final = 10.0

_STAMP: Final = struct.Struct("!d")

Place = Mapping[str, Any]
"""Address of a server, in values that can be pickled; ``pid`` is its process."""

OnEvent = Callable[[float], None]
"""Callback with the second at which an arrived event was published; called from any thread."""


class Publisher(Protocol):
    """One connection that publishes."""

    async def publish(self) -> None:
        """Publish an event with the present time; return when the broker has acknowledged it."""
        ...


class Peer(Protocol):
    """A broker and its Python client."""

    @property
    def name(self) -> str:
        """Name in the figures."""
        ...

    def available(self) -> bool:
        """Return whether it is installed."""
        ...

    def server(self, directory: Path) -> contextlib.AbstractContextManager[Place]:
        """Run the broker for the block, its data in ``directory``."""
        ...

    def publishing(self, place: Place) -> contextlib.AbstractAsyncContextManager[Publisher]:
        """Connect a publisher for the block."""
        ...

    def consuming(self, place: Place, number: int, on_event: OnEvent) -> contextlib.AbstractAsyncContextManager[None]:
        """Subscribe to every event for the block, as consumer ``number``, acknowledging each."""
        ...


def stamped() -> bytes:
    """Return an event for brokers that carry bytes."""
    return _STAMP.pack(time.monotonic()) + bytes(EVENT_BYTES - _STAMP.size)


def stamp_of(payload: bytes) -> float:
    """Return when the event was published."""
    return float(_STAMP.unpack_from(payload)[0])


class Published(NamedTuple):
    """Time from the first publish to the last acknowledgement, and the time of each publish, in seconds."""

    began_s: float
    ended_s: float
    each_s: list[float]


async def publish_all(line: Line, peer: Peer, place: Place, events: int, window: int) -> Published:
    """Report when connected, and on request publish ``events`` with ``window`` unacknowledged events at a time."""
    async with peer.publishing(place) as publisher:
        line.send("open")
        await line.receive()
        left, each_s = events, []

        async def one_after_the_other() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                began_s = time.monotonic()
                await publisher.publish()
                each_s.append(time.monotonic() - began_s)

        began_s = time.monotonic()
        await asyncio.gather(*(one_after_the_other() for _ in range(window)))
        return Published(began_s, time.monotonic(), each_s)


async def publish_paced(line: Line, peer: Peer, place: Place, per_s: float, events: int) -> int:
    """Report when connected, and on request publish ``events`` at an even pace, acknowledged or not."""
    async with peer.publishing(place) as publisher:
        line.send("open")
        await line.receive()
        loop = asyncio.get_running_loop()
        began_s, under_way = loop.time(), set()
        for number in range(events):
            await asyncio.sleep(began_s + number / per_s - loop.time())
            task = loop.create_task(publisher.publish())
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)
        return events


class Consumed(NamedTuple):
    """Time of the last event's arrival, and the latency of each event, in seconds."""

    ended_s: float
    latency_s: list[float]


class Deliveries:
    """The events that consumers of this process got, until ``wanted`` have come."""

    def __init__(self, wanted: int) -> None:
        self._wanted, self._latency_s, self._ended_s = wanted, list[float](), time.monotonic()
        self._loop, self._enough = asyncio.get_running_loop(), asyncio.Event()

    def add(self, published_s: float) -> None:
        """Count an event that was published then and came now; callable from any thread."""
        self._ended_s = time.monotonic()
        self._latency_s.append(self._ended_s - published_s)
        if len(self._latency_s) >= self._wanted:
            self._loop.call_soon_threadsafe(self._enough.set)

    async def all(self) -> Consumed:
        """Wait for the last event that is wanted, or until none comes for ``QUIET_S``."""
        while not self._enough.is_set():
            before = len(self._latency_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._enough.wait(), QUIET_S)
            if len(self._latency_s) == before and not self._enough.is_set():
                break
        return Consumed(self._ended_s, self._latency_s)


async def consume(line: Line, peer: Peer, place: Place, first: int, consumers: int, each: int) -> Consumed:
    """Run consumers from ``first`` on; report when all are subscribed; return after ``each`` events for each."""
    deliveries = Deliveries(each * consumers)
    async with contextlib.AsyncExitStack() as stack:
        for number in range(first, first + consumers):
            await stack.enter_async_context(peer.consuming(place, number, deliveries.add))
        line.send("subscribed")
        return await deliveries.all()


@contextlib.asynccontextmanager
async def reading(main: Callable[[], Any]) -> AsyncIterator[None]:
    """Let a coroutine run for the block; it is cancelled at the end."""
    task = asyncio.get_running_loop().create_task(main())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.contextmanager
def process(argv: list[str], port: int, log: Path) -> Iterator[Place]:
    """Run a broker for the block; it is ready when something listens on its TCP port of the loopback."""
    with Process(argv[0], argv, log) as broker:
        broker.wait_until(lambda: accepts(port), START_S_MAX)
        yield {"port": port, "pid": broker.pid}


def accepts(port: int) -> bool:
    """Return whether something listens on a TCP port of the loopback."""
    with contextlib.suppress(OSError):
        socket.create_connection((HOST, port), 1.0).close()
        return True
    return False
