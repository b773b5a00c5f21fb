"""A NATS cluster of three beside our domain: JetStream with file storage, one subject for each type of event.

Publishers and consumers are connected to different servers. With three replicas an acknowledgement means that two
servers have written the event, not that it was synced; with one replica, that one server has.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import nats
from nats.errors import Error
from nats.js.api import ConsumerConfig, StorageType

from bench.broker_nats import program
from bench.broker_peer import HOST, Consumed, Deliveries, Place, Published, process, stamp_of, stamped
from harness.ports import free_port
from harness.workers import Line

SIZE: Final = 3
READY_S_MAX: Final = 30.0
_STREAM: Final = "events"


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[list[Place]]:
    """Run the servers for the block."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(process(argv, port, directory / f"log{number}"))
            for number, (argv, port) in enumerate(configured(directory))
        ]


def configured(directory: Path, *more: str) -> list[tuple[list[str], int]]:
    """Write the configuration of each server, with ``more`` lines; return its command line and its port."""
    ports, routes = ([free_port() for _ in range(SIZE)] for _ in range(2))
    urls = ", ".join(f'"nats://{HOST}:{route}"' for route in routes)
    servers = []
    for number, (port, route) in enumerate(zip(ports, routes, strict=True)):
        store, file = directory / f"store{number}", directory / f"nats{number}.conf"
        lines = (
            f'server_name: "n{number}"',
            f'listen: "{HOST}:{port}"',
            f'jetstream {{ store_dir: "{store}" }}',
            f'cluster {{ name: "bench", listen: "{HOST}:{route}", routes: [{urls}] }}',
            *more,
        )
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        servers.append(([program() or "", "-c", str(file)], port))
    return servers


async def create(line: Line, place: Place, replicas: int) -> str:
    """Create the stream as soon as the cluster has a leader."""
    async with _connected(place) as stream:
        await add_stream(stream, replicas)
    return "created"


async def add_stream(stream: Any, replicas: int) -> None:
    """Create the stream as soon as the cluster has a leader."""
    end_s = time.monotonic() + READY_S_MAX
    while True:
        try:
            await stream.add_stream(name=_STREAM, subjects=["type.*"], storage=StorageType.FILE, num_replicas=replicas)
        except Error:
            if time.monotonic() > end_s:
                raise
            await asyncio.sleep(0.5)
        else:
            return


async def publish(line: Line, place: Place, types: Sequence[int], events: int, window: int) -> Published:
    """Report when connected, and on request publish events of these types in turn, as ours does."""
    async with _connected(place) as stream:
        line.send("open")
        await line.receive()
        left, each_s = iter(range(events)), list[float]()

        async def one_after_the_other() -> None:
            for number in left:
                began_s = time.monotonic()
                await stream.publish(f"type.{types[number % len(types)]}", stamped(), timeout=20)
                each_s.append(time.monotonic() - began_s)

        began_s = time.monotonic()
        await asyncio.gather(*(one_after_the_other() for _ in range(window)))
        return Published(began_s, time.monotonic(), each_s)


async def subscribe(line: Line, place: Place, types: Sequence[int], events: int) -> Consumed:
    """Consume these types; report when subscribed; return after ``events`` events, or a silence."""
    deliveries = Deliveries(events)

    async def received(message: Any) -> None:
        deliveries.add(stamp_of(message.data))
        await message.ack()

    async with _connected(place) as stream:
        for each in types:
            config = ConsumerConfig(max_ack_pending=10_000)
            await stream.subscribe(f"type.{each}", durable=f"type{each}", cb=received, manual_ack=True, config=config)
        line.send("subscribed")
        return await deliveries.all()


@contextlib.asynccontextmanager
async def _connected(place: Place) -> AsyncIterator[Any]:
    client = await nats.connect(f"nats://{HOST}:{place['port']}")
    try:
        yield client.jetstream()
    finally:
        await client.close()
