"""Figures of the two models of a channel, side by side: rate, delivery time, and what is left without the leader.

Publisher, leader and subscriber are at three servers. In the decentralised model events do not pass the leader.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from bench.broker_ours import connected
from bench.broker_peer import Place
from bench.domain_processes import FORWARDED, LOAD_PER_S, SHARES, Size, delivery_ms, running, sent_through
from bench.domain_servers import Pace, Wanted, filling, subscribe
from harness.reporting import Goal, goal, progress
from harness.workers import Line, Worker
from wanderbus.settings.event_domain import Model
from wanderbus.testbed.launch import kill_group

Row = Mapping[str, Any]

WITHOUT_LEADER_S: Final = 6.0
"""Time for which events are published after the leader was killed."""
GRACE_S: Final = 2.0
"""Time for the acknowledgements of the last of them."""


def models(size: Size) -> list[Row]:
    """Return events a second, the delivery time, and the shares that come through without the leader, per model."""
    rows: list[Row] = []
    for model in get_args(Model):
        progress(f"models: {model}")
        rate = _per_s(model, size.throughput_events)
        ms = delivery_ms(FORWARDED, size.load_events, model)
        acknowledged, delivered = _without_leader(model)
        left = {"acknowledged_without_leader": acknowledged, "delivered_without_leader": delivered}
        rows.append({"model": model, "events_per_s": rate, **ms, **left})
    return rows


def models_goals(rows: Sequence[Row]) -> list[Goal]:
    """Return what the decentralised model keeps without the leader, and the figures of both."""
    found = {each["model"]: each for each in rows}
    return [
        *(goal(f"{model}_events_per_s", each["events_per_s"], "events/s") for model, each in found.items()),
        *(goal(f"{model}_{name}_ms", each[name], "ms") for model, each in found.items() for name, _ in SHARES),
        goal("decentralised_vs_ordered_rate", _ratio(found, "events_per_s"), "ratio"),
        goal("decentralised_vs_ordered_p50", _ratio(found, "p50"), "ratio"),
        goal("ordered_delivered_without_leader", found["ordered"]["delivered_without_leader"], "share"),
        goal(
            "decentralised_delivered_without_leader",
            found["decentralised"]["delivered_without_leader"],
            "share",
            least=1.0,
        ),
    ]


def _ratio(found: Mapping[str, Row], name: str) -> float:
    ratio: float = found["decentralised"][name] / found["ordered"][name]
    return ratio


def _per_s(model: Model, events: int) -> float:
    """Measure one publisher with 100 unacknowledged events at most, and one subscriber."""
    published, consumed = sent_through(FORWARDED, Pace(events), model)
    return events / (consumed.ended_s - published.began_s)


def _without_leader(model: Model) -> tuple[float, float]:
    """Kill the leader, publish, and return the shares of the events that are acknowledged and delivered."""
    events = round(WITHOUT_LEADER_S * LOAD_PER_S)
    with running(FORWARDED.size, model) as servers, Worker() as publisher, Worker() as reader:
        subject = servers.led[FORWARDED.leader][0]
        place = servers.places[FORWARDED.subscriber]
        reader.start(subscribe, place, [[Wanted(subject, [""])]], events).receive()
        publisher.start(publish_for, servers.places[FORWARDED.publisher], subject, events, LOAD_PER_S).receive()
        kill_group(servers.places[FORWARDED.leader]["pid"])
        publisher.send()
        acknowledged = publisher.receive()
        delivered = len(reader.receive().latency_s)
    return acknowledged / events, delivered / events


async def publish_for(line: Line, place: Place, subject: str, events: int, per_s: float) -> int:
    """Report when connected, and on request publish events at an even pace; return how many are acknowledged.

    What has no acknowledgement :data:`GRACE_S` after the last publish is given up.
    """
    async with connected(place, "publisher0") as agent:
        line.send("open")
        await line.receive()
        began_s = time.monotonic()

        async def one(number: int) -> None:
            await asyncio.sleep(began_s + number / per_s - time.monotonic())
            await agent.publish(subject, {"Filling": filling(), "At": time.monotonic()})

        tasks = [asyncio.create_task(one(number)) for number in range(events)]
        done, waiting = await asyncio.wait(tasks, timeout=events / per_s + GRACE_S)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return sum(task.exception() is None for task in done)
