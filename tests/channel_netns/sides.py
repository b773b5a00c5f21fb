"""The two hosts of a test; each is a job of a process in its namespace (:mod:`harness.workers`)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import wanderbus
from bench.heal_ours import Ours
from harness.rtnetlink import change_address
from harness.two_hosts import DEVICE, FAR_ADDRESS, NEAR_ADDRESSES, PREFIX_BITS
from harness.workers import Line
from wanderbus.api import rudp
from wanderbus.errors import NoResponse

SECRET: Final = "a secret of both hosts, long enough"
PAUSE_S: Final = 0.01
PATIENCE_S: Final = 60.0
CONNECT_S_MAX: Final = 10.0
TWICE_S: Final = 0.5
"""A duplicate arrives within this time."""


async def listen(line: Line) -> list[int]:
    """Accept one channel; return the received numbers in order, once the other side has sent the last."""
    numbers: list[int] = []
    async with rudp.listen(FAR_ADDRESS, 0, secret=SECRET) as listener:
        line.send(listener.address[1])
        channel = await anext(listener)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                async for message in channel:
                    numbers.append(int.from_bytes(message))
        return numbers


async def send_moving(line: Line, port: int, messages: int) -> None:
    """Send numbers, and move to another address on the way."""
    async with rudp.connect(FAR_ADDRESS, port, secret=SECRET, connect_s_max=PATIENCE_S) as channel:
        for number in range(messages):
            if number == messages // 2:
                change_address(DEVICE, *NEAR_ADDRESSES, PREFIX_BITS)
            await channel.send(number.to_bytes(8))
            await asyncio.sleep(PAUSE_S)
        line.send("sent")
        await channel.drain()


async def subscribe(line: Line, system: Ours, options: Mapping[str, Any], events: int) -> list[int]:
    """Subscribe, move when a third of the events has come; return the numbers of all that came, in their order."""
    numbers: list[int] = []
    third, all_came = asyncio.Event(), asyncio.Event()

    def heard(number: int, published_s: float, received_s: float) -> None:
        numbers.append(number)
        if len(numbers) == events // 3:
            third.set()
        if len(numbers) == events:
            all_came.set()

    async with system.subscribed(options, heard), asyncio.timeout(PATIENCE_S):
        line.send("subscribed")
        await third.wait()
        change_address(DEVICE, *NEAR_ADDRESSES, PREFIX_BITS)
        await all_came.wait()
        await asyncio.sleep(TWICE_S)
        return numbers


async def publish(line: Line, system: Ours, options: Mapping[str, Any], events: int) -> None:
    """Publish events one after the other."""
    async with system.publishing(options) as publisher:
        for number in range(events):
            await publisher.publish(number, time.monotonic())
            await asyncio.sleep(PAUSE_S)


def _agent(
    user: str, options: Mapping[str, Any], transport: Literal["udp", "tcp"], connect_s_max: float = PATIENCE_S
) -> wanderbus.Agent:
    return wanderbus.connect(
        f"sip:{user}@localhost",
        password=user[0],
        server=options["server"],
        data_transport=transport,
        state_dir=f"{options['directory']}/{user}",
        connect_s_max=connect_s_max,
    )


async def subscribe_texts(
    line: Line, options: Mapping[str, Any], transport: Literal["udp", "tcp"], texts: int
) -> list[int]:
    """Subscribe to texts; return the lengths of all that came, in their order."""
    lengths: list[int] = []
    async with (
        asyncio.timeout(PATIENCE_S),
        _agent("bob", options, transport) as agent,
        agent.subscribe("Text", "length >= 0") as notifications,
    ):
        line.send("subscribed")
        async for notification in notifications:
            lengths.append(len(str(notification.event["text"])))
            if len(lengths) == texts:
                return lengths
    return lengths


async def fail_to_connect(line: Line, options: Mapping[str, Any]) -> str:
    """Return the error of an agent that does not reach its broker."""
    try:
        async with _agent("alice", options, "udp", CONNECT_S_MAX):
            return ""
    except NoResponse as error:
        return str(error)


async def publish_texts(
    line: Line, options: Mapping[str, Any], transport: Literal["udp", "tcp"], lengths: Sequence[int]
) -> None:
    """Publish texts of these lengths."""
    async with asyncio.timeout(PATIENCE_S), _agent("alice", options, transport) as agent:
        for length in lengths:
            await agent.publish("Text", {"length": length, "text": "x" * length})
