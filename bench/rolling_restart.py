"""A rolling restart of three servers beside agents that read a stream, and one of a NATS cluster beside its clients.

Ours is ``wanderbus domain upgrade``: each server is drained and restarted. A NATS server enters lame duck mode, ends by
itself when its clients have had the time to leave (30 s is the least), and is started again. A consumer there is
durable, in a stream with three replicas, and its client knows all servers. The pause is the longest one of a reader
between two events, from the first request until the last server runs again.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import nats

from bench import domain_nats
from bench.broker_nats import program
from bench.broker_ours import connected, users_file
from bench.broker_peer import HOST, accepts, reading
from bench.domain_nats import SIZE
from bench.streams import Streams, pause_ms
from harness.reporting import Goal, goal, median, percentile, progress
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.async_processes import AsyncProcess, Crew
from wanderbus.testbed.launch import python
from wanderbus.testbed.processes import Process

Row = Mapping[str, Any]

PER_S: Final = 50.0
SUBJECT: Final = "News"
ADMINISTRATOR: Final = "adam"
SETTLED_S: Final = 2.0
UPGRADE_S_MAX: Final = 180.0
LAME_DUCK_S: Final = 30
"""The least that a NATS server accepts; it closes its connections one by one in this time."""

ENDED_S_MAX: Final = 90.0
PUBLISH_S_MAX: Final = 60.0
"""Time for which a publish to NATS is repeated."""


def measure(readers: int, others: int) -> tuple[list[Row], list[Goal]]:
    """Measure ours and, where it is installed, NATS; ``others`` are agents without events. Return rows and goals."""
    progress(f"rolling restart: {readers + others} agents")
    with tempfile.TemporaryDirectory() as directory:
        ours = asyncio.run(_ours(Path(directory), readers, others))
    goals = [
        goal(f"rolling_restart_{name}", ours[name], "events", most=0) for name in ("lost", "repeated", "out_of_order")
    ]
    goals.insert(0, goal("rolling_restart_gap_p99_ms", ours["pause_p99_ms"], "ms", most=250))
    rows: list[Row] = [{"section": "restart", "of": "wanderbus", **ours}]
    if program() is not None:
        progress(f"rolling restart: {readers} clients of NATS")
        with tempfile.TemporaryDirectory() as directory:
            theirs = asyncio.run(_nats(Path(directory), readers))
        rows.append({"section": "restart", "of": "NATS", **theirs})
        ratio = ours["pause_p99_ms"] / theirs["pause_p99_ms"]
        goals.append(goal("rolling_restart_gap_vs_nats", ratio, "times"))
    return rows, goals


def _row(streams: Streams, begin_s: float, end_s: float) -> Row:
    pauses = [pause_ms(streams.times(reader), begin_s, end_s) for reader in range(len(streams.received))]
    return {
        "readers": len(pauses),
        "seconds": end_s - begin_s,
        "pause_p50_ms": median(pauses),
        "pause_p99_ms": percentile(pauses, 0.99),
        "pause_max_ms": max(pauses),
        **streams.faults(),
    }


# Ours ----------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _domain(directory: Path, users: Sequence[str]) -> Iterator[list[str]]:
    """Run a domain for the block; return the addresses of its servers."""
    file = users_file(directory, users)
    up = ("domain", "up", "--size", str(SIZE), "--port", "0", "--admin", ADMINISTRATOR, "--users", str(file))
    with Process(
        "domain up", python("wanderbus", *up, "--data-dir", str(directory / "d")), directory / "up", read=True
    ) as process:
        yield [process.line().split()[2].removeprefix("sip:") for _ in range(SIZE)]
        # The last line says that all are ready.


async def _ours(directory: Path, readers: int, others: int) -> Row:
    users = ["publisher", ADMINISTRATOR, *(f"reader{number}" for number in range(readers + others))]
    streams = Streams(PER_S)
    with _domain(directory, users) as servers:
        async with contextlib.AsyncExitStack() as stack:
            for number in range(readers + others):
                agent = await stack.enter_async_context(
                    connected({"server": servers[number % SIZE]}, f"reader{number}")
                )
                if number >= readers:
                    await stack.enter_async_context(agent.subscribe(SUBJECT, "Number < 0"))
                    continue
                subscription = await stack.enter_async_context(agent.subscribe(SUBJECT))
                await stack.enter_async_context(reading(partial(streams.read, subscription)))
            publisher = await stack.enter_async_context(connected({"server": servers[0]}, "publisher"))

            async def publish(number: int) -> None:
                await publisher.publish(SUBJECT, {"Number": number})

            async with streams.publishing(publish):
                await asyncio.sleep(SETTLED_S)
                began_s = time.monotonic()
                await _upgrade(directory)
                ended_s = time.monotonic()
    return {"agents": readers + others, **_row(streams, began_s, ended_s)}


async def _upgrade(directory: Path) -> None:
    own = ("--data-dir", str(directory / "d"), "--event-domain", str(directory / "d" / "domain.toml"))
    command = python("wanderbus", "domain", "upgrade", *own, "--move-groups")
    process = await AsyncProcess.start("domain upgrade", command, directory / "upgrade", read=False)
    if await process.wait(UPGRADE_S_MAX) != 0:
        process.kill_now()
        raise CannotRunError(f"domain upgrade failed: {process.last_words()}")


# NATS ----------------------------------------------------------------------------------------------------------------


async def _nats(directory: Path, readers: int) -> Row:
    streams = Streams(PER_S)
    configured = domain_nats.configured(
        directory, f'lame_duck_duration: "{LAME_DUCK_S}s"', 'lame_duck_grace_period: "1s"'
    )
    urls = [f"nats://{HOST}:{port}" for _, port in configured]
    async with Crew(directory) as crew, contextlib.AsyncExitStack() as stack:
        servers = [await _started(crew, *each) for each in configured]
        publishing = await stack.enter_async_context(_client(urls))
        await domain_nats.add_stream(publishing, SIZE)
        for number in range(readers):
            client = await stack.enter_async_context(_client(urls[number % SIZE :] + urls[: number % SIZE]))
            await client.subscribe("type.0", durable=f"reader{number}", cb=_taking(streams.reader()), manual_ack=True)

        async def publish(number: int) -> None:
            end_s = time.monotonic() + PUBLISH_S_MAX
            while True:
                try:
                    await publishing.publish("type.0", str(number).encode(), headers={"Nats-Msg-Id": str(number)})
                except (nats.errors.Error, OSError):
                    if time.monotonic() > end_s:
                        raise
                else:
                    return

        async with streams.publishing(publish):
            await asyncio.sleep(SETTLED_S)
            began_s = time.monotonic()
            for server, each in zip(servers, configured, strict=True):
                progress(f"restart of the NATS server at port {each[1]}")
                server.send_signal(signal.SIGUSR2)
                if await server.wait(ENDED_S_MAX) is None:
                    raise CannotRunError(f"{server.name} did not end in lame duck mode")
                await _started(crew, *each)
                await asyncio.sleep(SETTLED_S)
            ended_s = time.monotonic()
    return _row(streams, began_s, ended_s)


async def _started(crew: Crew, argv: list[str], port: int) -> AsyncProcess:
    process = await crew.start(f"nats-server-{port}", argv, read=False)
    while not await asyncio.to_thread(accepts, port):
        if not process.running:
            raise CannotRunError(str(process))
        await asyncio.sleep(0.02)
    return process


@contextlib.asynccontextmanager
async def _client(urls: list[str]) -> AsyncIterator[Any]:
    client = await nats.connect(urls, dont_randomize=True, error_cb=_passed_over)
    try:
        yield client.jetstream()
    finally:
        await client.close()


def _taking(take: Callable[[int], None]) -> Callable[[Any], Awaitable[None]]:
    async def received(message: Any) -> None:
        take(int(message.data))
        await message.ack()

    return received


async def _passed_over(error: Exception) -> None:
    """A connection that ends is no error here."""
