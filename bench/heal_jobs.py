"""Jobs of the two ends of a system whose subscriber moves, the same for every system; see :mod:`harness.workers`.

The publisher numbers its events and puts the time of publishing into each; both ends read one clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from harness.rtnetlink import change_address
from harness.two_hosts import DEVICE, PREFIX_BITS
from harness.workers import Line

EVENTS_PER_S: Final = 100.0
HEAL_S_MAX: Final = 15.0
SETTLE_S_MAX: Final = 5.0
EVENT_BYTES: Final = 200
_STAMP: Final = struct.Struct("!Qd")

OnEvent = Callable[[int, float, float], None]
"""Callback for each event that the subscriber receives: its number, when it was published, when it was received."""


class Subscription(Protocol):
    """Handle of a subscriber."""

    marks: list[tuple[str, float]]
    """Steps of the system with their times, for analysis."""

    async def moved(self) -> None:
        """React to a change of the address, if the system does not do so by itself."""


class Publisher(Protocol):
    """Handle of a publisher."""

    async def publish(self, number: int, published_s: float) -> None:
        """Publish one event; return once the system has it."""


class System(Protocol):
    """Measured system: opened in the process that uses it. ``options`` are the system's own."""

    def subscribed(
        self, options: Mapping[str, Any], on_event: OnEvent
    ) -> contextlib.AbstractAsyncContextManager[Subscription]:
        """Subscribe for the block."""

    def publishing(self, options: Mapping[str, Any]) -> contextlib.AbstractAsyncContextManager[Publisher]:
        """Prepare to publish for the block."""


class Move(NamedTuple):
    """One change of address: the time until an event arrived that could only reach the new address."""

    system: str
    gap_s: float | None
    lost: int
    repeated: int
    marks: list[tuple[str, float]]
    """Steps of the system meanwhile, in seconds since the new address could be used."""


async def follow(line: Line, name: str, system: System, options: Mapping[str, Any]) -> None:
    """Subscribe, and move for each pair of old and new address that the benchmark sends; None is the end."""
    events: list[tuple[int, float, float]] = []

    def on_event(number: int, published_s: float, received_s: float) -> None:
        events.append((number, published_s, received_s))

    async with system.subscribed(options, on_event) as subscription:
        line.send("subscribed")
        while (addresses := await line.receive()) is not None:
            old, new = addresses
            subscription.marks.clear()
            change = change_address(DEVICE, old, new, PREFIX_BITS)
            await subscription.moved()
            gap_s = await _first(events, change.gone_s, change.usable_s)
            line.send("healed" if gap_s is not None else "not healed")
            first, end = await line.receive()
            lost, repeated = await _settle(events, range(first, end))
            marks = [(text, at_s - change.usable_s) for text, at_s in subscription.marks]
            line.send(Move(name, gap_s, lost, repeated, marks))
            events.clear()


async def _first(events: list[tuple[int, float, float]], gone_s: float, usable_s: float) -> float | None:
    """Return the time from ``usable_s`` to the first event published after ``gone_s``; None if none arrived."""
    seen = 0
    while time.monotonic() < usable_s + HEAL_S_MAX:
        for _, published_s, received_s in events[seen:]:
            if published_s > gone_s:
                return max(0.0, received_s - usable_s)
        seen = len(events)
        await asyncio.sleep(0.02)
    return None


async def _settle(events: list[tuple[int, float, float]], numbers: range) -> tuple[int, int]:
    """Wait until all of ``numbers`` have arrived, within bounds; return the numbers of missing and repeated ones."""
    until_s = time.monotonic() + SETTLE_S_MAX
    while time.monotonic() < until_s and len({number for number, _, _ in events} & set(numbers)) < len(numbers):
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.05)  # for repeated events
    came = [number for number, _, _ in events if number in numbers]
    return len(numbers) - len(set(came)), len(came) - len(set(came))


async def publish(line: Line, system: System, options: Mapping[str, Any]) -> None:
    """Publish steadily from each number that the benchmark sends, until it stops; None is the end."""
    async with system.publishing(options) as publisher:
        line.send("ready")
        while (first := await line.receive()) is not None:
            stopped = asyncio.Event()
            task = asyncio.get_running_loop().create_task(_publish(publisher, first, stopped))
            await line.receive()
            stopped.set()
            line.send((first, await task))


async def _publish(publisher: Publisher, number: int, stopped: asyncio.Event) -> int:
    """Publish until stopped; return the number after the last."""
    began_s, first = time.monotonic(), number
    async with asyncio.TaskGroup() as group:
        while not stopped.is_set():
            await asyncio.sleep(began_s + (number - first) / EVENTS_PER_S - time.monotonic())
            group.create_task(publisher.publish(number, time.monotonic()))
            number += 1
    return number


def pack_event(number: int, published_s: float) -> bytes:
    """Return an event for systems that carry bytes."""
    return _STAMP.pack(number, published_s).ljust(EVENT_BYTES, b"x")


def unpack_event(data: bytes) -> tuple[int, float]:
    """Return number and time of an event."""
    number, published_s = _STAMP.unpack_from(data)
    return number, published_s
