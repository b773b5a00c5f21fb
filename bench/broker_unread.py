"""Deliveries to one reader beside 99 more subscriptions of its agent that nobody reads, over those alone (SPEC G-25).

The unread ones match the same events, or other events, of which one for one of them follows every ten for the reader.
What is measured begins when their windows are full. Turns share a server, and each has a user of its own. The goal is
on other events: where the same event matches all 100, it is matched, recorded and queued a hundred times, read or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.broker_ours import SUBJECT, Ours, attributes, connected
from bench.broker_peer import Place
from bench.broker_scale import directory_for_bench
from harness.reporting import median, progress
from harness.workers import Line, Worker

UNREAD: Final = 99
FILLING: Final = 300
"""Events of each kind before the measurement: more than a window."""
OTHERS_EVERY: Final = 10
"""Measured events."""
WINDOW: Final = 100
WARMING: Final = 2_500
"""Events after which a server with many subscriptions compiles its matching; and the longest time of that."""
SETTLE_S: Final = 10.0
KINDS: Final = ("alone", "other_events", "same_events")


def beside_unread(events: int, turns: int) -> dict[str, Any]:
    """Return the deliveries per second of each kind, and the medians over the turns of their ratios to those alone."""
    per_s: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(Ours().server(Path(stack.enter_context(directory_for_bench()))))
        reader, publisher = (stack.enter_context(Worker()) for _ in range(2))
        progress("unread: the server warms up")
        _deliveries_per_s(place, reader, publisher, len(KINDS) * turns, KINDS[-1], WARMING)
        time.sleep(SETTLE_S)
        for turn in range(turns):
            # The last kind of one turn is first in the next, so that neither profits from its place.
            for kind in KINDS if turn % 2 == 0 else reversed(KINDS):
                progress(f"unread: {kind}, {turn + 1} of {turns}")
                user = len(KINDS) * turn + KINDS.index(kind)
                per_s[kind].append(_deliveries_per_s(place, reader, publisher, user, kind, events))
    figures: dict[str, Any] = {"events": events}
    for kind, rates in per_s.items():
        figures[f"{kind}_per_s"] = median(rates)
    for kind in KINDS[1:]:
        figures[f"{kind}_ratio"] = median(
            beside / alone for beside, alone in zip(per_s[kind], per_s["alone"], strict=True)
        )
    return figures


def _deliveries_per_s(place: Place, reader: Worker, publisher: Worker, user: int, kind: str, events: int) -> float:
    reader.start(_read, place, user, kind, events).receive()
    publisher.start(_publish, place, user, events).receive()
    if reader.receive() != FILLING:
        raise RuntimeError(f"the reader {kind} did not receive the first {FILLING} events")
    publisher.send()
    began_s = publisher.receive()
    return float(events / (reader.receive() - began_s))


async def _read(line: Line, place: Place, user: int, kind: str, events: int) -> float:
    """Read one subscription of many; return the second at which its last event arrived."""
    async with connected(place, f"consumer{user}") as agent, contextlib.AsyncExitStack() as stack:
        for number in range(0 if kind == "alone" else UNREAD):
            wanted = f"To == {user} and At > {-number}"
            if kind == "other_events":
                wanted = f"Beside == {user} and (Nth < 0 or Nth == {number})"
            await stack.enter_async_context(agent.subscribe(SUBJECT, wanted))
        notifications = await stack.enter_async_context(agent.subscribe(SUBJECT, f"To == {user}"))
        line.send("subscribed")
        for _ in range(FILLING):
            await anext(notifications)
        notifications.ack()
        line.send(FILLING)
        for _ in range(events):
            await anext(notifications)
        return time.monotonic()


async def _publish(line: Line, place: Place, user: int, events: int) -> float:
    """Fill the windows, and on request publish the measured events; return when that began."""
    async with connected(place, "publisher") as agent:
        slots = asyncio.Semaphore(WINDOW)

        async def publish(name: str, nth: int) -> None:
            async with slots:
                await agent.publish(SUBJECT, {**attributes(), name: user, "Nth": nth})

        await asyncio.gather(*(publish(name, -1) for name in ("Beside", "To") for _ in range(FILLING)))
        line.send("filled")
        await line.receive()
        began_s = time.monotonic()
        await asyncio.gather(*(publish(*each) for each in _stream(events)))
        return began_s


def _stream(events: int) -> Iterator[tuple[str, int]]:
    """Yield events for the reader, and after every ten another one: the attribute that is matched, and a number."""
    for number in range(events):
        yield "To", number
        if number % OTHERS_EVERY == 0:
            yield "Beside", number // OTHERS_EVERY % UNREAD
