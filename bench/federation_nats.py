"""NATS servers that are joined by leaf nodes, beside our domains: one subject for each type of event.

With JetStream, the server of the publisher keeps the events in a stream, and that of the subscriber mirrors it, both in
files; the subscriber has a durable consumer for each type there. An acknowledgement means that the first server has
written the event, not that it was synced. Without JetStream nothing is kept or acknowledged: what is published while
the link is down is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import nats
from nats.errors import Error
from nats.js.api import ConsumerConfig, ExternalStream, StorageType, StreamConfig, StreamSource

from bench.broker_nats import program
from bench.broker_peer import HOST, Deliveries, Place, Published, process, stamp_of, stamped
from bench.domain_servers import Pace
from bench.federation_domains import Received
from harness.ports import free_port
from harness.workers import Line

TYPES: Final = 4
READY_S_MAX: Final = 30.0
LOOP: Final = "- Loop detected"
"""Text in the log of a server that cuts a link because events would go round."""

KEPT: Final = "type"
PASSED: Final = "passing"
"""First token of the subjects that a stream keeps, and of others, whose events pass."""

_STREAM: Final = "events"
_BOTH: Final = ("alpha", "beta")


@contextlib.contextmanager
def leaf(directory: Path) -> Iterator[tuple[Place, ...]]:
    """Run two servers for the block; the second one is a leaf node of the first one, and each has a JetStream."""
    listens = free_port()
    links = {"alpha": f'leafnodes {{ listen: "{HOST}:{listens}" }}', "beta": _leaf_of(listens)}
    stores = {name: f'jetstream {{ store_dir: "{directory / name}", domain: {name} }}' for name in _BOTH}
    with _running(directory, {name: [links[name], stores[name]] for name in _BOTH}) as places:
        yield places


@contextlib.contextmanager
def pairs(directory: Path) -> Iterator[tuple[Place, ...]]:
    """Run two clusters of two servers for the block, with two redundant links: one from each server to another one."""
    routes, listens = ([free_port() for _ in range(4)] for _ in range(2))
    lines = {}
    for number, name in enumerate(("alpha1", "alpha2", "beta1", "beta2")):
        cluster, of_both = name[:-1], routes[:2] if number < 2 else routes[2:]
        urls = ", ".join(f'"nats://{HOST}:{each}"' for each in of_both)
        link = f'leafnodes {{ listen: "{HOST}:{listens[number]}" }}' if number < 2 else _leaf_of(listens[number - 2])
        lines[name] = [f'cluster {{ name: {cluster}, listen: "{HOST}:{routes[number]}", routes: [{urls}] }}', link]
    with _running(directory, lines) as places:
        yield places


@contextlib.contextmanager
def ring(directory: Path) -> Iterator[tuple[Place, ...]]:
    """Run three servers for the block, each a leaf node of the next one."""
    names, listens = ("alpha", "beta", "gamma"), [free_port() for _ in range(3)]
    lines = {}
    for number, name in enumerate(names):
        remote = f'remotes: [{{ url: "nats://{HOST}:{listens[(number + 1) % 3]}" }}]'
        lines[name] = [f'leafnodes {{ listen: "{HOST}:{listens[number]}", {remote} }}']
    with _running(directory, lines) as places:
        yield places


def _leaf_of(port: int) -> str:
    return f'leafnodes {{ remotes: [{{ url: "nats://{HOST}:{port}" }}] }}'


@contextlib.contextmanager
def _running(directory: Path, lines: dict[str, list[str]]) -> Iterator[tuple[Place, ...]]:
    with contextlib.ExitStack() as stack:
        places = []
        for name, own in lines.items():
            port, file = free_port(), directory / f"{name}.conf"
            text = "\n".join([f'server_name: "{name}"', f'listen: "{HOST}:{port}"', *own])
            file.write_text(text, encoding="utf-8")
            argv = [program() or "", "-c", str(file)]
            places.append({**stack.enter_context(process(argv, port, directory / f"{name}.log")), "name": name})
        yield tuple(places)


def loops(directory: Path) -> int:
    """Return how often servers have found a loop of leaf nodes, and cut a link because of it."""
    return sum(each.read_text(encoding="utf-8").count(f" {LOOP}") for each in directory.glob("*.log"))


async def create(line: Line, places: Sequence[Place]) -> str:
    """Create the stream at the first server, and its mirror at the second one as soon as the link is there."""
    alpha, beta = places
    mirrored = StreamSource(_STREAM, external=ExternalStream(api="$JS.alpha.API"))
    configs = (
        (alpha, StreamConfig(_STREAM, subjects=[f"{KEPT}.*"], storage=StorageType.FILE)),
        (beta, StreamConfig(_STREAM, mirror=mirrored, storage=StorageType.FILE)),
    )
    for place, config in configs:
        async with _client(place) as client:
            end_s = time.monotonic() + READY_S_MAX
            while True:
                try:
                    await client.jetstream().add_stream(config)
                    break
                except Error:
                    if time.monotonic() > end_s:
                        raise
                    await asyncio.sleep(0.5)
    return "created"


async def publish(line: Line, place: Place, is_kept: bool, subject: str, pace: Pace) -> Published:
    """Report when connected, and on request publish events of all types in turn, as ours does."""
    async with _client(place) as client:
        send = _kept(client, subject) if is_kept else _passing(client, subject, pace.window)
        line.send("open")
        await line.receive()
        loop, each_s, free = asyncio.get_running_loop(), list[float](), asyncio.Semaphore(pace.window)
        began_s, waiting = time.monotonic(), set[asyncio.Task[None]]()

        async def one(number: int) -> None:
            started_s = time.monotonic()
            await send(number)
            each_s.append(time.monotonic() - started_s)
            free.release()

        for number in range(pace.events):
            if pace.per_s is None:
                await free.acquire()
            else:
                await asyncio.sleep(began_s + number / pace.per_s - time.monotonic())
            task = loop.create_task(one(number))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        await asyncio.gather(*waiting)
        await client.flush()
        return Published(began_s, time.monotonic(), each_s)


def _kept(client: Any, subject: str) -> Callable[[int], Coroutine[Any, Any, None]]:
    stream = client.jetstream()

    async def send(number: int) -> None:
        await stream.publish(f"{subject}.{number % TYPES}", stamped(), timeout=20)

    return send


def _passing(client: Any, subject: str, window: int) -> Callable[[int], Coroutine[Any, Any, None]]:
    async def send(number: int) -> None:
        await client.publish(f"{subject}.{number % TYPES}", stamped())
        if number % window == window - 1:
            await client.flush()

    return send


async def consume(line: Line, place: Place, is_kept: bool, subject: str) -> Received:
    """Consume all types; requests and answers are those of ours."""
    deliveries, stamps = Deliveries(0), list[float]()

    def take(message: Any) -> None:
        stamps.append(stamp_of(message.data))
        deliveries.add(stamps[-1])

    async def passed(message: Any) -> None:
        take(message)

    async def kept(message: Any) -> None:
        take(message)
        await message.ack()

    async with _client(place) as client:
        for each in range(TYPES):
            if is_kept:
                config = ConsumerConfig(max_ack_pending=10_000)
                own = {"stream": _STREAM, "durable": f"{subject}{each}", "manual_ack": True, "config": config}
                await client.jetstream().subscribe(f"{subject}.{each}", cb=kept, **own)
            else:
                await client.subscribe(f"{subject}.{each}", cb=passed, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await client.flush()
        line.send("subscribed")
        while (events := await line.receive()) is not None:
            deliveries = Deliveries(events)
            line.send("ready")
            line.send(await deliveries.all())
    return Received(len(stamps), len(set(stamps)))


@contextlib.asynccontextmanager
async def _client(place: Place) -> AsyncIterator[Any]:
    client = await nats.connect(f"nats://{HOST}:{place['port']}")
    try:
        yield client
    finally:
        await client.close()
