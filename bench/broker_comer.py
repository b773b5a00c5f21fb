"""Latency of others while one user takes a backlog of 100,000, over that without (SPEC U-03).

One server keeps the backlog. The user comes and goes in turns, and others receive events at an even rate all the time:
both kinds of turns share the server, its queues and whatever else the machine has to do.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final

from bench.broker_ours import CONSUMERS_MAX, SUBJECT, Ours, connected, running
from bench.broker_peer import Place, consume, publish_paced, reading
from bench.broker_scale import directory_for_bench, publish_batches, subscribe_and_leave
from harness.reporting import median, percentile, progress
from harness.workers import Line, Worker

COMER: Final = "comer"
OTHERS: Final = 5
OTHERS_PER_S: Final = 200
TURNS: Final = 4
"""Turns of each kind; at 2,000 events a second a backlog of 100,000 lasts for 50 s."""


def comer(queued: int, turn_s: float) -> dict[str, Any]:
    """Return the latency of others with and without the comer, and the ratio of the medians over the turns."""
    users = ["publisher", COMER, *(f"consumer{number}" for number in range(CONSUMERS_MAX))]
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(directory_for_bench()))
        settings = directory / "settings.toml"
        settings.write_text(
            f"[broker.queue]\nnotifications_max = {2 * queued}\nbytes_max = {2**30}\n", encoding="utf-8"
        )
        place = stack.enter_context(running(directory, users, "--config", str(settings)))
        reader, publisher, taker = (stack.enter_context(Worker()) for _ in range(3))
        taker.start(subscribe_and_leave, place, [COMER]).receive()
        publisher.start(publish_batches, place, queued)
        while isinstance(done := publisher.receive(), int):
            progress(f"comer: {done} of {queued} queued")
        taken = phase = 0
        for turn in range(TURNS):
            for is_there in (False, True) if turn % 2 == 0 else (True, False):
                progress(f"comer: {'with' if is_there else 'without'}, {turn + 1} of {TURNS}")
                if is_there:
                    taker.start(_take, place).receive()
                # Other users in each turn: events that wait for those of an earlier turn would be delivered first.
                found[is_there].append(_others_ms(place, reader, publisher, OTHERS * phase, turn_s))
                phase += 1
                if is_there:
                    taker.send()
                    taken += taker.receive()
    figures: dict[str, Any] = {"queued": queued, "taken": taken}
    for share in ("p50", "p99"):
        alone_ms, beside_ms = (median(each[share] for each in found[is_there]) for is_there in (False, True))
        figures |= {f"alone_{share}_ms": alone_ms, f"beside_{share}_ms": beside_ms}
        figures[f"{share}_ratio"] = median(
            with_it[share] / without[share] for without, with_it in zip(found[False], found[True], strict=True)
        )
    return figures


def _others_ms(place: Place, reader: Worker, publisher: Worker, first: int, turn_s: float) -> dict[str, float]:
    events = round(OTHERS_PER_S * turn_s)
    reader.start(consume, Ours(), place, first, OTHERS, events).receive()
    publisher.start(publish_paced, Ours(), place, OTHERS_PER_S, events).receive()
    publisher.send()
    publisher.receive()
    latency_s = reader.receive().latency_s
    return {f"p{share}": 1_000 * percentile(latency_s, share / 100) for share in (50, 99)}


async def _take(line: Line, place: Place) -> int:
    """Reconnect, report the first event of the backlog, and consume until stopped; return the number of events."""
    taken = 0
    async with connected(place, COMER) as agent, agent.subscribe(SUBJECT, keep=True) as notifications:
        await anext(notifications)

        async def take() -> None:
            nonlocal taken
            async for _ in notifications:
                taken += 1

        async with reading(take):
            line.send("taking")
            await line.receive()
    return taken
