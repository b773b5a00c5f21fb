"""Batches of messages over long round trips: our reliable UDP beside TCP and our data channel over TLS.

The hosts are network namespaces. Each peer opens one channel, sends a message, and then several equal batches at once,
each a round trip after the last message of the batch before has arrived. The peers take turns.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from bench.channel_peers import OWN_TCP, RUDP_SEALED, TCP, Channel, Peer, Place, dialled, listening
from harness.reporting import Goal, goal, median, progress
from harness.two_hosts import FAR_ADDRESS, hosts
from harness.workers import Line, Worker
from wanderbus.testbed import CannotRunError

LONG_PATH_VS_TCP_MAX: Final = 1.2
BATCHES: Final = 3
LONG_PEERS: Final = (RUDP_SEALED, TCP, OWN_TCP)


class Batch(NamedTuple):
    """``messages`` of ``message_bytes`` that are sent at once over a path with this round trip."""

    rtt_s: float
    messages: int
    message_bytes: int


LOADS: Final = (Batch(0.9, 1, 30_000), Batch(0.6, 300, 1_000), Batch(1.0, 40, 3_000), Batch(0.3, 300, 1_000))

Taken = dict[tuple[Batch, str], list[list[float]]]
"""Seconds of each batch, by load and name of the peer, run by run."""


async def receive_batches(line: Line, peer: Peer, host: str, batch: Batch) -> None:
    """Report the address, then when the first message and the last one of each batch arrived, until stopped."""
    count = 0

    async def handle(channel: Channel) -> None:
        nonlocal count
        async for _ in channel:
            if count % batch.messages == 0:
                line.send(time.monotonic())
            count += 1

    async with listening(peer, host, handle) as place:
        line.send(place)
        await line.receive()


async def send_batches(line: Line, peer: Peer, place: Place, batch: Batch) -> None:
    """Send a message, then a batch at each request, and report when it began; until None is requested."""
    message = bytes(batch.message_bytes)
    async with dialled(peer, place, 0) as channel:
        await channel.send(b"open")
        while await line.receive() is not None:
            line.send(time.monotonic())
            for _ in range(batch.messages):
                await channel.send(message)


def long_paths(runs: int) -> Taken:
    """Measure every load and peer; nothing if there can be no namespaces."""
    taken: Taken = defaultdict(list)
    try:
        for batch in LOADS:
            progress(f"{BATCHES} batches of {batch.messages} x {batch.message_bytes:,} bytes, {batch.rtt_s:g} s away")
            with (
                hosts(delay_s=batch.rtt_s / 2) as pair,
                Worker(namespace=pair.far) as there,
                Worker(namespace=pair.near) as here,
            ):
                for _ in range(runs):
                    for peer in LONG_PEERS:
                        taken[batch, peer.name].append(_seconds(there, here, peer, batch))
    except CannotRunError as error:
        progress(f"no figures of long paths: {error}")
    return taken


def _seconds(there: Worker, here: Worker, peer: Peer, batch: Batch) -> list[float]:
    place = there.start(receive_batches, peer, FAR_ADDRESS, batch).receive()
    here.start(send_batches, peer, place, batch)
    there.receive()  # the channel is open
    seconds = []
    for _ in range(BATCHES):
        time.sleep(batch.rtt_s)
        here.send("begin")
        began_s: float = here.receive()
        arrived_s: float = there.receive()
        seconds.append(arrived_s - began_s)
    here.send(None)
    here.receive()
    there.send("stop")
    there.receive()
    return seconds


def long_path_goals(taken: Taken) -> Iterator[Goal]:
    """Yield the largest ratio of the medians of any batch, to TCP and to our own channel over it, if measured."""
    if taken:
        yield goal("long_path_vs_tcp", max(_ratios(taken, TCP)), "ratio", most=LONG_PATH_VS_TCP_MAX)
        yield goal("long_path_vs_own_tcp", max(_ratios(taken, OWN_TCP)), "ratio")


def _ratios(taken: Taken, peer: Peer) -> Iterator[float]:
    for batch in {batch for batch, _ in taken}:
        ours, theirs = (map(median, zip(*taken[batch, each.name], strict=True)) for each in (RUDP_SEALED, peer))
        yield from (one / other for one, other in zip(ours, theirs, strict=True))


def print_long_paths(taken: Taken) -> None:
    """Print the median seconds of each batch."""
    for (batch, name), runs in taken.items():
        seconds = ", ".join(f"{median(each):.2f}" for each in zip(*runs, strict=True))
        print(f"{batch.messages} x {batch.message_bytes:,} bytes, {batch.rtt_s:g} s away, {name}: {seconds} s")
