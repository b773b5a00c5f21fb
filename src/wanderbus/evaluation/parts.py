"""Programs of a run in real time: ``python -m wanderbus.evaluation.parts consumer|publisher JSON``.

They use only the public interface. Each prints ``"ready"``, then one JSON line for everything that happens, with the
second of the monotonic clock, which all processes of a machine share; orders arrive as JSON lines on standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from wanderbus.client.agent import Agent
from wanderbus.client.connect import connect
from wanderbus.event import Gap


class RunAccount(msgspec.Struct, frozen=True):
    """Connection of one of the two."""

    user: str
    password: str
    server: str
    state_dir: str
    local_address: str | None = None

    def agent(self) -> Agent:
        """Return the agent for it."""
        return connect(
            self.user,
            password=self.password,
            server=self.server,
            state_dir=self.state_dir,
            local_address=self.local_address,
        )


class ConsumerTask(msgspec.Struct, frozen=True):
    """Task to receive what is published to ``subject``."""

    account: RunAccount
    subject: str


class PublisherTask(msgspec.Struct, frozen=True):
    """Task to publish ``count`` events to ``subject``, evenly, the first ``begin_s`` after the ordered start."""

    account: RunAccount
    subject: str
    begin_s: float
    count: int
    rate_per_s: float


class DeliveredItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Line of the consumer: an item that it received, with the time and the position in its stream.

    The item is event ``number``, or else a gap marker of ``count`` events.
    """

    at_s: float
    place: int
    number: int | None = None
    count: int = 0


class Order(msgspec.Struct, frozen=True):
    """An order to either: begin at this second, or use this address from now on."""

    start_s: float | None = None
    address: str | None = None


def print_json(what: Any) -> None:
    """Print one JSON line at once."""
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


async def consume(task: ConsumerTask) -> None:
    """Consume until cancelled."""
    async with task.account.agent() as agent, agent.subscribe(task.subject, gaps=True) as notifications:
        print_json("ready")
        async with asyncio.TaskGroup() as group:
            group.create_task(_follow_orders(agent))
            async for item in notifications:
                now, place = time.monotonic(), item.position.number
                if isinstance(item, Gap):
                    print_json(DeliveredItem(now, place, count=item.count))
                else:
                    number = item.event["Number"]
                    assert isinstance(number, int)
                    print_json(DeliveredItem(now, place, number))


async def _follow_orders(agent: Agent) -> None:
    async for order in _orders():
        if order.address is not None:
            await agent.rebind(order.address)


async def publish(tasks: Sequence[PublisherTask]) -> None:
    """Publish all of ``tasks`` concurrently; return when every event is durable."""
    async with contextlib.AsyncExitStack() as stack:
        agents = [await stack.enter_async_context(task.account.agent()) for task in tasks]
        print_json("ready")
        order = await anext(_orders())
        assert order.start_s is not None
        async with asyncio.TaskGroup() as group:
            for agent, task in zip(agents, tasks, strict=True):
                group.create_task(_publish(agent, task, order.start_s + task.begin_s))
        print_json("done")


async def _publish(agent: Agent, task: PublisherTask, began_s: float) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(task.count):
            await asyncio.sleep(began_s + number / task.rate_per_s - time.monotonic())
            group.create_task(agent.publish(task.subject, {"Number": number}))


async def _orders() -> AsyncIterator[Order]:
    async for line in lines_of_standard_input():
        yield msgspec.json.decode(line, type=Order)


async def lines_of_standard_input() -> AsyncIterator[bytes]:
    """Yield the lines of standard input as they arrive."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line


def main(role: str, tasks: str) -> None:
    """Run one of the two programs."""
    if role == "consumer":
        asyncio.run(consume(msgspec.json.decode(tasks, type=ConsumerTask)))
    else:
        asyncio.run(publish(msgspec.json.decode(tasks, type=list[PublisherTask])))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
