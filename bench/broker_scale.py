"""Measurements of our broker alone for :mod:`bench.broker`: syncs, a restart with full queues, and idle users."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.broker_ours import SUBJECT, Ours, attributes, connected, running
from bench.broker_peer import Place, publish_all
from harness.loads import LoadEndedError
from harness.process_figures import resident_bytes
from harness.reporting import progress
from harness.workers import ANSWER_S_MAX, Line, Worker
from wanderbus.testbed.processes import Process

ACKS: Final = 1_000
_SYNC_CALL: Final = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+).*\b(?:fsync|fdatasync)$", re.MULTILINE)
OPENING_PER_S: Final = 30
"""Users that each of the two processes connects per second."""
USERS_AN_ADDRESS: Final = 250
"""Users of each source address: one source may send a server only a limited number of requests a second."""
KEEPALIVE_S: Final = 25.0
"""Keepalive of idle users: enough for the mappings of NATs (RFC 5626 3.5.2), and five times the default."""
SETTLE_S: Final = 35.0
"""SIP remembers a transaction for 32 s (RFC 3261 17); an idle user has none."""
UNSETTLED_MAX: Final = 200


def syncs() -> dict[str, Any]:
    """Count, by strace, the server's disk operations for acknowledged publishes one at a time."""
    with directory_for_bench() as name, Ours().server(Path(name)) as place, Worker() as publisher:
        counts = Path(name) / "strace"
        publisher.start(publish_all, Ours(), place, ACKS, 1).receive()
        argv = ["strace", "-f", "-c", "-e", "trace=fsync,fdatasync", "-o", str(counts), "-p", str(place["pid"])]
        with Process("strace", argv, Path(name) / "attached") as strace:
            strace.wait_until(lambda: strace.log.stat().st_size > 0)
            publisher.send()
            publisher.receive()
            strace.end(number=signal.SIGINT)
        counted = sum(map(int, _SYNC_CALL.findall(counts.read_text(encoding="utf-8"))))
    return {"acks": ACKS, "syncs": counted, "per_1000_acks": 1_000 * counted / ACKS}


def restart(users: int, events: int) -> dict[str, Any]:
    """Let ``events`` wait for each of ``users`` who are away, kill the server, and measure its time to return."""
    with directory_for_bench() as name:
        names = [f"away{number}" for number in range(users)]
        with running(Path(name), ["publisher", *names]) as place, Worker() as away, Worker() as publisher:
            away.start(subscribe_and_leave, place, names).receive()
            progress(f"restart: {users} users are away, publishing {events} events for each")
            began_s = time.monotonic()
            publish_with_progress("restart", publisher, place, events)
            filled_s = time.monotonic() - began_s
            time.sleep(2.0)  # the state file follows the log within a second
            os.kill(place["pid"], signal.SIGKILL)
        began_s = time.monotonic()
        with running(Path(name), ["publisher", *names]) as place, Worker() as reader:
            ready_s = time.monotonic() - began_s
            resident = resident_bytes(place["pid"])
            waiting = reader.start(_first_waiting, place, names[-1]).receive()
        return {
            "queued": users * events,
            "ready_s": ready_s,
            "filled_s": filled_s,
            "resident_bytes": resident,
            "first_number_waiting": waiting,
        }


def idle_users(users: int) -> dict[str, Any]:
    """Connect ``users`` agents with a subscription each, and weigh the server before and after."""
    names = [f"idle{number}" for number in range(users)]
    with directory_for_bench() as name, running(Path(name), names) as place, contextlib.ExitStack() as stack:
        before = resident_bytes(place["pid"])
        began_s = time.monotonic()
        halves = [names[0::2], names[1::2]]
        workers = [stack.enter_context(Worker()).start(_stay, place, half, 100 * i) for i, half in enumerate(halves)]
        for worker in workers:
            while isinstance(count := worker.receive(), int):
                progress(f"idle: {count} of {users // 2} connected")
        took_s = time.monotonic() - began_s
        time.sleep(SETTLE_S)
        after = resident_bytes(place["pid"])
        for worker in workers:
            worker.send()
        if (stayed := sum(worker.receive() for worker in workers)) != users:
            raise LoadEndedError(f"{stayed} of {users} users were still connected after the measurement")
        return {"users": users, "connected_in_s": took_s, "bytes_per_user": (after - before) / users, "empty": before}


def publish_with_progress(title: str, publisher: Worker, place: Place, events: int, subject: str = SUBJECT) -> None:
    """Publish ``events`` as fast as they are acknowledged, and show the progress."""
    publisher.start(_publish_batches, place, events, subject)
    while isinstance(count := publisher.receive(), int):
        progress(f"{title}: {count} of {events} published")


async def _publish_batches(line: Line, place: Place, events: int, subject: str) -> str:
    """Publish ``events``, reporting the progress."""
    async with connected(place, "publisher") as agent:
        done, slots, said_s = 0, asyncio.Semaphore(UNSETTLED_MAX), time.monotonic()

        async def publish() -> None:
            nonlocal done, said_s
            async with slots:
                await agent.publish(subject, attributes())
            done += 1
            if time.monotonic() - said_s > 2.0:
                said_s = time.monotonic()
                line.send(done)

        await asyncio.gather(*(publish() for _ in range(events)))
    return "done"


async def subscribe_and_leave(
    line: Line,
    place: Place,
    names: Sequence[str],
    subject: str = SUBJECT,
    expressions: Sequence[str] = ("",),
    session: str = "default",
) -> None:
    """Subscribe as each of these users, so that events wait for them from now on."""
    for name in names:
        async with connected(place, name, session) as agent, contextlib.AsyncExitStack() as stack:
            for expression in expressions:
                await stack.enter_async_context(agent.subscribe(subject, expression, keep=True))


async def _first_waiting(line: Line, place: Place, name: str) -> int:
    async with connected(place, name) as agent, agent.subscribe(SUBJECT, keep=True) as notifications:
        return (await anext(notifications)).position.number


async def _stay(line: Line, place: Place, names: Sequence[str], first_address: int) -> None:
    """Connect everybody, with a subscription each; on request, report how many are connected."""
    import wanderbus

    done, said_s = 0, time.monotonic()

    async def connect(number: int, name: str, state: Path) -> Any:
        nonlocal done, said_s
        await asyncio.sleep(number / OPENING_PER_S)
        agent = wanderbus.connect(
            f"sip:{name}@localhost",
            password="secret",
            server=place["server"],
            state_dir=state / name,
            local_address=f"127.0.{1 + first_address}.{1 + number // USERS_AN_ADDRESS}",
            connect_s_max=ANSWER_S_MAX,
            keepalive_s=KEEPALIVE_S,
        )
        await agent.__aenter__()
        await agent.subscribe(SUBJECT, f"Dest == {name}", keep=True).__aenter__()
        done += 1
        if time.monotonic() - said_s > 2.0:
            said_s = time.monotonic()
            line.send(done)
        return agent

    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as state:
        agents = await asyncio.gather(*(connect(number, name, Path(state)) for number, name in enumerate(names)))
        line.send("all")
        while True:
            await line.receive()
            line.send(sum(agent.status == "CONNECTED" for agent in agents))


def queue_bounds(directory: Path, **bounds: int) -> tuple[str, str]:
    """Return the options of a server whose queues have these bounds, by their keys in ``[broker.queue]``."""
    settings = directory / "settings.toml"
    lines = [f"{key} = {bound}\n" for key, bound in bounds.items()]
    settings.write_text("".join(["[broker.queue]\n", *lines]), encoding="utf-8")
    return "--config", str(settings)


def directory_for_bench() -> tempfile.TemporaryDirectory[str]:
    """Return a new directory that is removed after the block."""
    return tempfile.TemporaryDirectory(prefix="wanderbus-bench-")
