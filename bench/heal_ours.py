"""Our system as a subject of :mod:`bench.heal`: server, broker and event log, and agents by the public interface."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import wanderbus
from bench.heal_jobs import OnEvent, Publisher, Subscription
from harness.two_hosts import FAR_ADDRESS, Hosts
from wanderbus.testbed.launch import python
from wanderbus.testbed.namespaces import command
from wanderbus.testbed.processes import Process

SUBJECT: Final = "Departure"
EXPRESSION: Final = "(Dest == IAH) and (DepDelay > 30)"


class Ours:
    """The subscriber's data channel goes over ``transport``, the publisher's over reliable UDP; both are sealed."""

    def __init__(self, transport: Literal["udp", "tcp"]) -> None:
        self._transport = transport

    @contextlib.contextmanager
    def server(self, pair: Hosts, *options: str) -> Iterator[Mapping[str, Any]]:
        """Run the server with ``options`` for the block; yield the options of the two ends."""
        with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as directory:
            users = Path(directory) / "users"
            users.touch(0o600)
            users.write_text("alice:a\nbob:b\n", encoding="utf-8")
            argv = python("wanderbus", "up", "--host", FAR_ADDRESS, "--port", "0")
            argv += ["--data-dir", f"{directory}/data", "--users", str(users), *options]
            with Process("the server", command(pair.far, argv), Path(directory, "errors"), read=True) as server:
                yield {"server": server.line().split()[1].removeprefix("sip:"), "directory": directory}

    @contextlib.asynccontextmanager
    async def subscribed(self, options: Mapping[str, Any], on_event: OnEvent) -> AsyncIterator[Subscription]:
        """Subscribe for the block."""
        async with (
            self._agent("bob", "b", options, self._transport) as agent,
            agent.subscribe(SUBJECT, EXPRESSION) as notifications,
        ):

            async def read() -> None:
                async for notification in notifications:
                    number, published_s = notification.event["Number"], notification.event["PublishedS"]
                    assert isinstance(number, int)
                    assert isinstance(published_s, float)
                    on_event(number, published_s, time.monotonic())

            held = _Held()

            async def watch() -> None:
                async for change in agent.changes():
                    held.marks.append((f"{change.status}: {change.reason}", time.monotonic()))

            tasks = [asyncio.get_running_loop().create_task(each()) for each in (read, watch)]
            try:
                yield held
            finally:
                for task in tasks:
                    task.cancel()

    @contextlib.asynccontextmanager
    async def publishing(self, options: Mapping[str, Any]) -> AsyncIterator[Publisher]:
        """Prepare to publish for the block."""
        async with self._agent("alice", "a", options, "udp") as agent:
            yield _Publishing(agent)

    def _agent(
        self, user: str, password: str, options: Mapping[str, Any], transport: Literal["udp", "tcp"]
    ) -> wanderbus.Agent:
        return wanderbus.connect(
            f"sip:{user}@localhost",
            password=password,
            server=options["server"],
            data_transport=transport,
            state_dir=f"{options['directory']}/{user}",
        )


class _Held:
    """Handle of our agent, which learns from the kernel that its address has changed."""

    def __init__(self) -> None:
        self.marks: list[tuple[str, float]] = []

    async def moved(self) -> None:
        """Do nothing."""


class _Publishing:
    def __init__(self, agent: wanderbus.Agent) -> None:
        self._agent = agent

    async def publish(self, number: int, published_s: float) -> None:
        """Publish one event; it is durable when this returns."""
        values: dict[str, Any] = {
            "Number": number,
            "PublishedS": published_s,
            "Dest": "IAH",
            "DepDelay": 42.0,
            "Carrier": "UA",
        }
        await self._agent.publish(SUBJECT, values)
