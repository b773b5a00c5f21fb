"""The publisher and the subscriber; each is a job of a process in its namespace (:mod:`harness.workers`).

Both read one clock. The publisher writes into each event when it was published, so that the subscriber can find those
that are younger than a move.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import wanderbus
from harness.workers import Line

SUBJECT: Final = "Departure"
EVENTS_PER_S: Final = 50.0
HEAL_S_MAX: Final = 35.0
TWICE_S: Final = 0.3
"""A duplicate arrives within this time."""


class Arrival(NamedTuple):
    """An event that came: its number, and when it was published and received."""

    number: int
    published_s: float
    received_s: float


async def subscribe(line: Line, options: Mapping[str, Any]) -> None:
    """Subscribe and serve requests: for a moment, report when the first event younger than it arrived, or None. For the
    name of a server, hand the session over to it. For a number of events, wait until all have arrived, report all
    arrivals, and end.
    """
    arrivals: list[Arrival] = []
    async with _agent(options) as agent, agent.subscribe(SUBJECT, "Number >= 0") as notifications:
        reading = asyncio.get_running_loop().create_task(_read(notifications, arrivals))
        line.send("ready")
        while not isinstance(asked := await line.receive(), int):
            if asked == "way":
                line.send(agent.data_path)
            elif isinstance(asked, str):
                await agent.handover(asked)
                line.send("done")
            else:
                line.send(await _first_after(arrivals, asked))
        until_s = time.monotonic() + HEAL_S_MAX
        while len({each.number for each in arrivals}) < asked and time.monotonic() < until_s:
            await asyncio.sleep(0.02)
        await asyncio.sleep(TWICE_S)
        reading.cancel()
        line.send(arrivals)
        await line.receive()


async def publish(line: Line, options: Mapping[str, Any]) -> None:
    """Serve requests: publish steadily from ``flow`` to the next request, then report the number of events published in
    all; report the data channel's ``way``; leave at ``end``.
    """
    number = 0
    async with _agent(options) as agent:
        line.send("ready")
        while (asked := await line.receive()) != "end":
            if asked == "way":
                line.send(agent.data_path)
                continue
            stopped = asyncio.get_running_loop().create_task(line.receive())
            began_s, first = time.monotonic(), number
            async with asyncio.TaskGroup() as group:
                while not stopped.done():
                    event = {"Number": number, "PublishedS": time.monotonic()}
                    group.create_task(agent.publish(SUBJECT, event))
                    number += 1
                    await asyncio.sleep(began_s + (number - first) / EVENTS_PER_S - time.monotonic())
            line.send(number)


async def commit_each(line: Line, options: Mapping[str, Any], resume: wanderbus.Position | None) -> None:
    """Report each event's number with its position, from the last position that was committed on."""
    async with _agent(options) as agent, agent.subscribe(SUBJECT, "Number >= 0", resume=resume) as notifications:
        line.send("ready")
        async for notification in notifications:
            line.send((notification.event["Number"], notification.position))


async def drain(line: Line, options: Mapping[str, Any]) -> None:
    """Let the server of an administrator drain, until it has no session left to move."""
    async with _agent(options) as agent:
        left = (await agent.operator.drain(on=True)).sessions
        while left:
            await asyncio.sleep(0.05)
            left = (await agent.operator.drain()).sessions


async def move_channel(line: Line, options: Mapping[str, Any], servers: Sequence[str]) -> None:
    """Let these servers lead the channel of the events, one after the other."""
    async with _agent(options) as agent:
        for server in servers:
            assert (await agent.operator.move_group(SUBJECT, server)).server == server
            await asyncio.sleep(0.2)


async def _read(notifications: AsyncIterator[wanderbus.Notification], arrivals: list[Arrival]) -> None:
    async for notification in notifications:
        number, published_s = notification.event["Number"], notification.event["PublishedS"]
        assert isinstance(number, int)
        assert isinstance(published_s, float)
        arrivals.append(Arrival(number, published_s, time.monotonic()))


async def _first_after(arrivals: list[Arrival], moment_s: float) -> float | None:
    until_s = time.monotonic() + HEAL_S_MAX
    while time.monotonic() < until_s:
        for each in arrivals:
            if each.published_s > moment_s:
                return each.received_s
        await asyncio.sleep(0.02)
    return None


def _agent(options: Mapping[str, Any]) -> wanderbus.Agent:
    return wanderbus.connect(**options, connect_s_max=20.0)
