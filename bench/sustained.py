"""Events per second through one server, each durable before it is acknowledged, beside a bare UDP relay.

Publisher, server and subscriber are three processes on loopback. The relay is asyncio alone: it passes datagrams of
the same size on without log, matching or order, and the subscriber acknowledges each; it is what Python's event loop
could do at most. Both run in turn, several times; the ratio is of their medians.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import wanderbus
from harness.reporting import goal, progress, write_report
from harness.workers import Line, Worker
from wanderbus.testbed.launch import python
from wanderbus.testbed.processes import Process

SUBJECT = "Departure"
EXPRESSION = "(Dest == IAH) and (DepDelay > 30)"
ATTRIBUTES: dict[str, Any] = {"Carrier": "UA", "Flight": 1545, "Origin": "EWR", "Dest": "IAH", "DepDelay": 42.0}
UNSETTLED_MAX = 256
EVENT_BYTES = 200
WINDOW = 64


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status."""
    options = _options(arguments)
    durable: list[dict[str, float]] = []
    relayed: list[float] = []
    for turn in range(options.runs):
        progress(f"run {turn + 1} of {options.runs}")
        durable.append(measure_server(options.events))
        relayed.append(measure_relay(options.events))
    published = statistics.median(run["published_per_s"] for run in durable)
    delivered = statistics.median(run["delivered_per_s"] for run in durable)
    bare = statistics.median(relayed)
    print(f"server: {published:,.0f} events/s published (durable), {delivered:,.0f} events/s delivered")
    print(f"bare UDP relay: {bare:,.0f} events/s delivered; ratio {delivered / bare:.2f}")
    if options.json:
        results = [{"server": run, "relay_per_s": relay} for run, relay in zip(durable, relayed, strict=True)]
        write_report(options.json, "bench sustained", results, [goal("delivered_vs_relay", delivered / bare, "ratio")])
    return 0


def measure_server(events: int) -> dict[str, float]:
    """Publish ``events`` as fast as they are acknowledged; return events per second published and delivered."""
    with _server() as place, Worker() as subscriber, Worker() as publisher:
        subscriber.start(_subscribe, place, events).receive()
        started, ended = publisher.start(_publish, place, events).receive()
        received = subscriber.receive()
    return {"published_per_s": events / (ended - started), "delivered_per_s": events / (received - started)}


def measure_relay(events: int) -> float:
    """Send ``events`` datagrams through a bare relay, a window unacknowledged; return those delivered per second."""
    with Worker() as relay, Worker() as sender:
        port = relay.start(_relay).receive()
        return events / float(sender.start(_send_bare, port, events).receive())


@contextlib.contextmanager
def _server() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory:
        users = Path(directory) / "users"
        users.touch(0o600)
        users.write_text("alice:a\nbob:b\n", encoding="utf-8")
        argv = python("wanderbus", "up", "--port", "0", "--data-dir", f"{directory}/data", "--users", str(users))
        with Process("the server", argv, Path(directory) / "errors", read=True) as server:
            yield server.line().removeprefix("ready sip:")


async def _subscribe(line: Line, place: str, events: int) -> float:
    with tempfile.TemporaryDirectory() as state:
        agent = wanderbus.connect("sip:bob@localhost", password="b", server=place, state_dir=state)
        async with agent, agent.subscribe(SUBJECT, EXPRESSION) as notifications:
            line.send("ready")
            for _ in range(events):
                await anext(notifications)
            return time.monotonic()


async def _publish(line: Line, place: str, events: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as state:
        async with wanderbus.connect("sip:alice@localhost", password="a", server=place, state_dir=state) as agent:
            started = time.monotonic()
            slots = asyncio.Semaphore(UNSETTLED_MAX)

            async def publish() -> None:
                async with slots:
                    await agent.publish(SUBJECT, ATTRIBUTES)

            await asyncio.gather(*(publish() for _ in range(events)))
            return started, time.monotonic()


class _Relay(asyncio.DatagramProtocol):
    """Returns the sender's datagrams to it: one hop in, one hop out, nothing in between."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._transport.sendto(data, addr)  # type: ignore[attr-defined]


async def _relay(line: Line) -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(_Relay, local_addr=("127.0.0.1", 0))
    line.send(transport.get_extra_info("sockname")[1])
    await line.receive()  # it serves until its process is ended


class _Counter(asyncio.DatagramProtocol):
    """Keeps a window of datagrams in flight until enough have come back; lost datagrams are replaced."""

    def __init__(self, events: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._to_come = events
        self._seen = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._refill()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._to_come -= 1
        if self._to_come > 0:
            self._send()
        elif not self.done.done():
            self.done.set_result(None)

    def _refill(self) -> None:
        """Refill the window whenever nothing came back for a while."""
        if self._to_come > 0:
            if self._seen in (-1, self._to_come):
                for _ in range(WINDOW):
                    self._send()
            self._seen = self._to_come
            asyncio.get_running_loop().call_later(0.05, self._refill)

    def _send(self) -> None:
        self._transport.sendto(bytes(EVENT_BYTES))  # type: ignore[attr-defined]


async def _send_bare(line: Line, port: int, events: int) -> float:
    loop = asyncio.get_running_loop()
    started = time.monotonic()
    _, counter = await loop.create_datagram_endpoint(lambda: _Counter(events), remote_addr=("127.0.0.1", port))
    await asyncio.wait_for(counter.done, 60)
    return time.monotonic() - started


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./do bench sustained", description=__doc__)
    parser.add_argument("--events", type=int, default=20_000, help="events in each run (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each system (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args(arguments)
