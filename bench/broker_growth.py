"""Cost of a publish as one dimension grows after the other, over that of the first row, so that a jump shows.

Costs are processor time of the server for an event, which other load of the machine changes little. Each row has a
server of its own. One figure has a goal: the rate of a backlog over that of live delivery, of one idle server.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.broker_ours import SUBJECT, Ours, connected, running
from bench.broker_peer import EVENT_BYTES, Place, consume, publish_all
from bench.broker_scale import directory_for_bench, publish_with_progress, queue_bounds, subscribe_and_leave
from bench.process_times import threads_s
from harness.reporting import median, progress
from harness.workers import Line, Worker

WINDOW: Final = 100
"""Unacknowledged events of all publishers."""
SETTLE_S: Final = 1.5
"""The state file follows the log within a second."""
WARMING: Final = 300
ROOM: Final = 10**6
"""Notifications for which a queue has room that must not become full while it is measured."""


class Case(NamedTuple):
    """Sizes of a row: each field has its least value by default, and one grows."""

    subscriptions: int = 1
    """Subscriptions of one user, of which one matches an event."""
    users: int = 1
    """Users who get every event."""
    attributes: int = 1
    bytes: int = EVENT_BYTES
    subjects: int = 1
    """Subjects with a subscription each; an event has one of them."""
    publishers: int = 1
    devices: int = 1
    """Devices of one user, which all get every event."""
    depth: int = 0
    """Notifications that wait for a user who is away."""
    past: int = 0
    """Events in the log before."""


GROWING: Final[Mapping[str, tuple[int, ...]]] = {
    "subscriptions": (1, 10, 100, 1_000),
    "users": (1, 4, 16),
    "attributes": (1, 8, 64),
    "bytes": (200, 2_000, 20_000),
    "subjects": (1, 10, 100),
    "publishers": (1, 4, 16),
    "devices": (1, 2, 4),
    "depth": (0, 2_000, 8_000),
    "past": (0, 5_000, 20_000),
}


class Scale(NamedTuple):
    """Amount of the measurement."""

    events: int
    """Events of each batch."""
    batches: int
    values: int
    """Rows of each dimension: the first ones and the last."""
    backlog: int


def growth(scale: Scale) -> dict[str, Any]:
    """Return the rows, and the rates of a backlog and of live delivery."""
    rows: list[dict[str, Any]] = []
    for dimension, values in GROWING.items():
        first_us = 0.0
        for value in (*values[: scale.values - 1], values[-1]):
            cost_us = _cost_us(Case()._replace(**{dimension: value}), scale)
            first_us = first_us or cost_us
            rows.append({"dimension": dimension, "value": value, "us": cost_us, "over_first": cost_us / first_us})
            progress(f"growth: {dimension:13} {value:6} {cost_us:8.0f} us {cost_us / first_us:6.2f} of the first")
    backlog_per_s, live_per_s = _backlog_and_live(scale)
    return {
        "rows": rows,
        "backlog_per_s": backlog_per_s,
        "live_per_s": live_per_s,
        "backlog_vs_live": backlog_per_s / live_per_s,
    }


def _cost_us(case: Case, scale: Scale) -> float:
    """Return the median processor time of an event over the batches."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(directory_for_bench()))
        users = ["publisher", "away", *(f"consumer{number}" for number in range(case.users))]
        place = stack.enter_context(running(directory, users, *queue_bounds(directory, notifications_max=ROOM)))
        reader, publisher, away = (stack.enter_context(Worker()) for _ in range(3))
        if case.past:
            publish_with_progress("growth", publisher, place, case.past)
        if case.depth:
            away.start(subscribe_and_leave, place, ["away"]).receive()
            publish_with_progress("growth", publisher, place, case.depth)
        reader.start(_read, place, case).receive()
        publisher.start(publish_on_request, place, case).receive()
        publisher.send(WARMING)
        publisher.receive()
        costs_us = []
        for _ in range(scale.batches):
            time.sleep(SETTLE_S)
            began_s = threads_s(place["pid"])
            publisher.send(scale.events)
            publisher.receive()
            costs_us.append(1e6 * (threads_s(place["pid"]) - began_s) / scale.events)
        return median(costs_us)


async def _read(line: Line, place: Place, case: Case) -> None:
    """Subscribe and read everything until the process ends."""
    async with contextlib.AsyncExitStack() as stack:
        for number in range(case.users):
            for _ in range(case.devices):
                agent = await stack.enter_async_context(connected(place, f"consumer{number}"))
                for nth in range(max(case.subscriptions, case.subjects)):
                    subject = f"{SUBJECT}{nth}" if case.subjects > 1 else SUBJECT
                    wanted = f"Nth == {nth}" if case.subscriptions > 1 else ""
                    notifications = await stack.enter_async_context(agent.subscribe(subject, wanted))
                    stack.push_async_callback(_stopped, asyncio.create_task(_drain(notifications)))
        line.send("reading")
        await line.receive()


async def _drain(notifications: AsyncIterator[Any]) -> None:
    async for _ in notifications:
        pass


async def _stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def publish_on_request(line: Line, place: Place, case: Case) -> None:
    """Publish as many events as each request says, from all publishers."""
    async with contextlib.AsyncExitStack() as stack:
        agents = [await stack.enter_async_context(connected(place, "publisher")) for _ in range(case.publishers)]
        line.send("open")
        while True:
            left = iter(range(await line.receive()))

            async def one_after_the_other(agent: Any, numbers: Iterator[int] = left) -> None:
                for number in numbers:
                    await agent.publish(*_event(case, number))

            await asyncio.gather(*(one_after_the_other(agents[number % len(agents)]) for number in range(WINDOW)))
            line.send("published")


def _event(case: Case, number: int) -> tuple[str, dict[str, Any]]:
    subject = f"{SUBJECT}{number % case.subjects}" if case.subjects > 1 else SUBJECT
    more = {f"More{nth}": nth for nth in range(case.attributes - 1)}
    return subject, {"Nth": number % case.subscriptions, **more, "Filling": "x" * (case.bytes - 44)}


def _backlog_and_live(scale: Scale) -> tuple[float, float]:
    """Return the rates at which a backlog and live events go to one device, medians over the batches."""
    backlogs, lives = [], []
    with directory_for_bench() as name, Ours().server(Path(name)) as place, contextlib.ExitStack() as stack:
        reader, publisher = (stack.enter_context(Worker()) for _ in range(2))
        for turn in range(scale.batches):
            returning = f"consumer{2 * turn}"
            reader.start(subscribe_and_leave, place, [returning]).receive()
            publish_with_progress("growth", publisher, place, scale.backlog)
            time.sleep(SETTLE_S)
            backlogs.append(reader.start(_take_backlog, place, returning, scale.backlog).receive())
            time.sleep(SETTLE_S)
            reader.start(consume, Ours(), place, 2 * turn + 1, 1, scale.backlog).receive()
            publisher.start(publish_all, Ours(), place, scale.backlog, WINDOW).receive()
            publisher.send()
            began_s = publisher.receive().began_s
            lives.append(scale.backlog / (reader.receive().ended_s - began_s))
            progress(f"growth: a backlog at {backlogs[-1]:.0f}, live events at {lives[-1]:.0f} a second")
    return median(backlogs), median(lives)


async def _take_backlog(line: Line, place: Place, name: str, events: int) -> float:
    """Return the rate of a backlog, from its first notification to its last."""
    async with connected(place, name) as agent, agent.subscribe(SUBJECT, keep=True) as notifications:
        await anext(notifications)
        began_s = time.monotonic()
        for _ in range(events - 1):
            await anext(notifications)
        return (events - 1) / (time.monotonic() - began_s)
