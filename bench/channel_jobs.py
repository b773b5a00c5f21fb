"""Jobs of the two sides of a channel measurement; see :mod:`harness.workers`. Times are in seconds of the monotonic
clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from bench.channel_peers import Channel, EchoClient, EchoServer, Peer, Place, dialled, listening
from harness.workers import Line

ECHO_WINDOW: Final = 32
_TURN_MESSAGES: Final = 256
_STALL_S: Final = 0.02
_STAMP: Final = struct.Struct("!d")
_LAST_S: Final = 1.0
"""Time that a client waits for messages in flight."""


class Load(NamedTuple):
    """Messages of ``message_bytes``, from each of ``peers`` channels as fast as they are accepted.

    With ``messages_each`` so many are sent and their total time counts; otherwise the messages of ``measured_s`` count,
    after ``warm_s``.
    """

    message_bytes: int
    peers: int = 1
    warm_s: float = 0.25
    measured_s: float = 0.6
    messages_each: int | None = None


class Received(NamedTuple):
    """Messages that a receiver counted, the duration, and the processor time."""

    messages: int
    passed_s: float
    used_s: float


async def receive(line: Line, peer: Peer, host: str, load: Load) -> Received:
    """Count messages: report the address, wait for the start of sending, return the count."""
    count, enough = 0, asyncio.Event()
    wanted = (load.messages_each or 0) * load.peers

    async def handle(channel: Channel) -> None:
        nonlocal count
        async for _ in channel:
            count += 1
            if count == wanted:
                enough.set()

    async with listening(peer, host, handle) as place:
        line.send(place)
        await line.receive()
        if not wanted:
            await asyncio.sleep(load.warm_s)
        before, began_s, used_s = count, time.monotonic(), time.process_time()
        if wanted:
            await enough.wait()
        else:
            await asyncio.sleep(load.measured_s)
        return Received(count - before, time.monotonic() - began_s, time.process_time() - used_s)


async def send(line: Line, peer: Peer, place: Place, load: Load) -> tuple[int, float]:
    """Send until stopped; report when all channels are open, return messages sent and processor time used."""
    given, stopped = 0, False
    message = bytes(load.message_bytes)

    async def push(channel: Channel) -> None:
        nonlocal given
        while not stopped and (load.messages_each is None or given < load.messages_each * load.peers):
            given += 1
            await channel.send(message)
            if given % _TURN_MESSAGES == 0:
                await asyncio.sleep(0)  # some streams report a full buffer only after a turn of the loop

    async with contextlib.AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(dialled(peer, place, each)) for each in range(load.peers)]
        line.send("open")
        await line.receive()
        used_s = time.process_time()
        tasks = [asyncio.get_running_loop().create_task(push(channel)) for channel in channels]
        await line.receive()
        stopped = True
        used_s = time.process_time() - used_s
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return given, used_s


async def echo_datagrams(line: Line, host: str) -> None:
    """Echo datagrams until stopped; report the address."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(EchoServer, local_addr=(host, 0))
    line.send(Place(host, transport.get_extra_info("sockname")[1]))
    await line.receive()
    transport.close()


async def count_echoes(line: Line, place: Place, message_bytes: int, windows: int, window_s: float) -> float:
    """Keep some datagrams in flight; return the most that came back per second in one of several windows of time."""
    count, message = 0, bytes(message_bytes)

    def on_datagram(data: bytes) -> None:
        nonlocal count
        count += 1
        client.send(message)

    _, client = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: EchoClient(on_datagram), remote_addr=(place.host, place.port)
    )
    best, seen = 0.0, -1
    for _ in range(windows):
        before, began_s = count, time.monotonic()
        while time.monotonic() - began_s < window_s:
            if seen == count:  # all were lost, or none was sent yet
                for _ in range(ECHO_WINDOW):
                    client.send(message)
            seen = count
            await asyncio.sleep(_STALL_S)
        best = max(best, (count - before) / (time.monotonic() - began_s))
    return best


class Beat(NamedTuple):
    """``channels`` of each peer send ``per_s`` messages each, spread in time, for ``lasting_s``."""

    message_bytes: int
    per_s: float
    channels: int
    lasting_s: float


async def echo(line: Line, peers: Sequence[Peer], host: str) -> None:
    """Echo messages of all peers at once until stopped; report their addresses."""

    async def handle(channel: Channel) -> None:
        async for message in channel:
            await channel.send(message)

    async with contextlib.AsyncExitStack() as stack:
        line.send([await stack.enter_async_context(listening(peer, host, handle)) for peer in peers])
        await line.receive()


async def time_echoes(line: Line, peers: Sequence[Peer], places: Sequence[Place], beat: Beat) -> list[list[float]]:
    """Return the seconds of each round trip, by peer; the peers take turns, so that all see the same machine."""
    times: list[list[float]] = [[] for _ in peers]
    async with contextlib.AsyncExitStack() as stack:
        channels = []
        for number in range(beat.channels):
            for peer, place, taken in zip(peers, places, times, strict=True):
                channel = await stack.enter_async_context(dialled(peer, place, number))
                stack.callback(asyncio.get_running_loop().create_task(_time(channel, taken)).cancel)
                channels.append(channel)
        began_s, pause_s = time.monotonic() + 0.2, 1 / beat.per_s
        async with asyncio.TaskGroup() as group:
            for number, channel in enumerate(channels):
                group.create_task(_beat(channel, began_s + pause_s * number / len(channels), beat))
        await asyncio.sleep(_LAST_S)
    return times


async def _time(channel: Channel, taken: list[float]) -> None:
    async for message in channel:
        taken.append(time.monotonic() - _STAMP.unpack_from(message)[0])


async def _beat(channel: Channel, first_s: float, beat: Beat) -> None:
    padding = bytes(beat.message_bytes - _STAMP.size)
    for number in range(int(beat.lasting_s * beat.per_s)):
        await asyncio.sleep(first_s + number / beat.per_s - time.monotonic())
        await channel.send(_STAMP.pack(time.monotonic()) + padding)
