"""The publisher's process: replays a slice of the flights as events, in their order, at a chosen rate.

``publish`` returns when the event is durable, and waits while the server is away, so a killed server costs only
time. Up to :data:`PUBLISHES_MAX` publishes are in flight at once; they start in the order of the events, and
the broker takes them in the order they were started. After a halt it publishes at the same rate and does not catch up.

Reports: ``{"ready": true}``, then ``{"published": n}`` a few times a second. The order ``{"do": "start"}`` begins it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import wanderbus
from demo import flights
from demo.json_lines import orders, report

PUBLISHES_MAX: Final = 64
"""Publishes that wait for their acknowledgement at one time."""

REPORT_EVERY_S: Final = 0.2

CONNECT_S_MAX: Final = 30.0
"""Ten processes start at once, perhaps on a slow machine."""


class Replay:
    """Counts the published events and bounds the number in flight."""

    def __init__(self, agent: wanderbus.Agent) -> None:
        self.published = 0
        self._agent = agent
        self._free = asyncio.Semaphore(PUBLISHES_MAX)

    async def run(self, events: Iterable[flights.FlightEvent], rate: float) -> None:
        """Publish the events at ``rate`` a second; return when the last one is durable."""
        due = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for subject, attributes in events:
                await self._free.acquire()
                now = time.monotonic()
                if due > now:
                    await asyncio.sleep(due - now)
                due = max(due, now) + 1.0 / rate
                group.create_task(self._publish(subject, attributes))

    async def _publish(self, subject: str, attributes: Mapping[str, Any]) -> None:
        await self._agent.publish(subject, attributes)
        self.published += 1
        self._free.release()


async def main(config: Mapping[str, Any]) -> None:
    """Connect, wait for the order to start, replay, and report."""
    async with wanderbus.connect(
        config["user"],
        password=config["password"],
        server=config["server"],
        broker=config["broker"],
        transport=config["transport"],
        ca_file=config["ca_file"],
        state_dir=Path(config["state_dir"]),
        local_address=config["local_address"],
        connect_s_max=CONNECT_S_MAX,
    ) as agent:
        report(ready=True)
        async for order in orders():
            if order.get("do") == "start":
                break
        else:
            return
        replay = Replay(agent)
        teller = asyncio.create_task(_report_counts(replay))
        slice_ = flights.events(config["first_row"], config["rows"])
        await replay.run(flights.of_carriers(slice_, config["carriers"]), config["rate"])
        teller.cancel()
        report(published=replay.published)


async def _report_counts(replay: Replay) -> None:
    while True:
        report(published=replay.published)
        await asyncio.sleep(REPORT_EVERY_S)


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
