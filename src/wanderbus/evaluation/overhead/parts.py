"""Programs of the device: ``python -m wanderbus.evaluation.overhead.parts consumer|publisher JSON``.

They use only the public interface, the same in all configurations. Each prints ``"ready"``, and then answers every
order, a JSON line on standard input, by a JSON line. Times are of the monotonic clock, which all processes of a machine
share, so no synchronisation is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from typing import Any, Final

import msgspec

from wanderbus.client.agent import Agent
from wanderbus.client.connect import connect
from wanderbus.errors import WanderbusError
from wanderbus.evaluation.parts import lines_of_standard_input, print_json
from wanderbus.event import Event

SUBJECT: Final = "overhead"
LATE_S_MAX: Final = 3.0
"""Time after the last event was published from which a missing event is lost."""


class ProgramConnection(msgspec.Struct, frozen=True):
    """Connection of a program: the arguments of ``connect``."""

    uri: str
    given: dict[str, Any]

    def agent(self) -> Agent:
        """Return the agent for it."""
        return connect(self.uri, **self.given)


class PublishOrder(msgspec.Struct, frozen=True):
    """Order to publish events from number ``first``, evenly from second ``start_s`` on; those below 0 do not count."""

    start_s: float
    first: int
    count: int
    rate_per_s: float


class PublishReport(msgspec.Struct, frozen=True):
    """Report: every event has been acknowledged, or will not be."""

    unanswered: int


class Report(msgspec.Struct, frozen=True):
    """Order to report what has arrived, once event ``until`` has arrived or is lost."""

    until: int


class SampleReport(msgspec.Struct, frozen=True):
    """The sample so far, computed as by the paper's consumers, and the latency of each event since the last report."""

    events: int
    sum_s: float
    average_ms: float
    latencies_us: list[int]


class Ledger:
    """Record of the events that a consumer received."""

    def __init__(self) -> None:
        self._events = 0
        self._sum_us = 0
        self._fresh_us: list[int] = []
        self._last = -sys.maxsize
        self._arrived = asyncio.Event()

    def take(self, event: Event, arrived_us: int) -> None:
        """Record an event that has arrived."""
        number, published_us = event["Number"], event["Published"]
        assert isinstance(number, int)
        assert isinstance(published_us, int)
        if number >= 0:
            latency_us = arrived_us - published_us
            self._events += 1
            self._sum_us += latency_us
            self._fresh_us.append(latency_us)
        self._last = max(self._last, number)
        self._arrived.set()

    async def report(self, order: Report) -> SampleReport:
        """Execute the order."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LATE_S_MAX):
                while self._last < order.until:
                    self._arrived.clear()
                    await self._arrived.wait()
        fresh_us, self._fresh_us = self._fresh_us, []
        average_ms = self._sum_us / self._events / 1_000 if self._events else 0.0
        return SampleReport(self._events, self._sum_us / 1_000_000, average_ms, fresh_us)


async def consume(party: ProgramConnection) -> None:
    """Consume until the end of the orders."""
    ledger = Ledger()
    async with party.agent() as agent, agent.subscribe(SUBJECT) as notifications:

        async def receive() -> None:
            async for notification in notifications:
                ledger.take(notification.event, now_us())

        receiving = asyncio.create_task(receive())
        print_json("ready")
        async for line in lines_of_standard_input():
            print_json(await ledger.report(msgspec.json.decode(line, type=Report)))
        receiving.cancel()


async def publish(party: ProgramConnection) -> None:
    """Publish by orders until their end."""
    async with party.agent() as agent:
        print_json("ready")
        async for line in lines_of_standard_input():
            order = msgspec.json.decode(line, type=PublishOrder)
            publishing = []
            for place in range(order.count):
                await asyncio.sleep(order.start_s + place / order.rate_per_s - time.monotonic())
                publishing.append(asyncio.create_task(_publish(agent, order.first + place)))
            print_json(PublishReport(len(publishing) - sum(await asyncio.gather(*publishing))))


async def _publish(agent: Agent, number: int) -> bool:
    """Publish an event; return whether the broker has acknowledged it."""
    try:
        await agent.publish(SUBJECT, {"Number": number, "Published": now_us()})
    except WanderbusError:
        return False
    return True


def now_us() -> int:
    """Return the monotonic clock in microseconds."""
    return time.monotonic_ns() // 1_000


def main(role: str, party: str) -> None:
    """Run one of the two programs."""
    program = {"consumer": consume, "publisher": publish}[role]
    asyncio.run(program(msgspec.json.decode(party, type=ProgramConnection)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
