"""Ours as a subject of :mod:`bench.broker`: a server process, and agents with everything as it is by default."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import wanderbus
from bench.broker_peer import EVENT_BYTES, OnEvent, Place, Publisher, reading
from wanderbus.testbed.launch import python
from wanderbus.testbed.namespaces import command
from wanderbus.testbed.processes import Process

SUBJECT: Final = "Departure"
_FRAME_BYTES: Final = 44
"""Bytes of an event besides its filling."""

CONSUMERS_MAX: Final = 64


class Ours:
    """Our broker with its agents; see the module."""

    name = "wanderbus"

    def available(self) -> bool:
        """Return True: our broker is always available."""
        return True

    @contextlib.contextmanager
    def server(self, directory: Path) -> Iterator[Place]:
        """Run a server with a user for the publisher and one for each consumer."""
        users = ["publisher", *(f"consumer{number}" for number in range(CONSUMERS_MAX))]
        with running(directory, users) as place:
            yield place

    @contextlib.asynccontextmanager
    async def publishing(self, place: Place) -> AsyncIterator[Publisher]:
        """Connect the publisher."""
        async with connected(place, "publisher") as agent:
            yield _Publishing(agent)

    @contextlib.asynccontextmanager
    async def consuming(self, place: Place, number: int, on_event: OnEvent) -> AsyncIterator[None]:
        """Connect one of the consumers."""
        async with connected(place, f"consumer{number}") as agent, agent.subscribe(SUBJECT) as notifications:

            async def read() -> None:
                async for notification in notifications:
                    on_event(float(notification.event["At"]))  # type: ignore[arg-type]

            async with reading(read):
                yield


class _Publishing:
    def __init__(self, agent: wanderbus.Agent) -> None:
        self._agent = agent

    async def publish(self) -> None:
        """Publish one event."""
        await self._agent.publish(SUBJECT, attributes())


def attributes() -> Mapping[str, Any]:
    """Return the attributes of an event of :data:`EVENT_BYTES`."""
    return {"At": time.monotonic(), "Filling": "x" * (EVENT_BYTES - _FRAME_BYTES)}


def users_file(directory: Path, users: Sequence[str]) -> Path:
    """Write the file of users, whose password is ``secret``, and return it."""
    file = directory / "users.txt"
    file.touch(0o600)
    file.write_text("".join(f"{user}:secret\n" for user in users), encoding="utf-8")
    return file


@contextlib.contextmanager
def running(directory: Path, users: Sequence[str], *options: str, namespace: str | None = None) -> Iterator[Place]:
    """Run a server for the block, in this network namespace if one is given; every user's password is ``secret``."""
    file = users_file(directory, users)
    up = ["up", "--port", "0", "--users", str(file), *options, "--data-dir", str(directory / "data")]
    argv = python("wanderbus", *up)
    argv = argv if namespace is None else command(namespace, argv)
    with Process("the server", argv, directory / "errors", read=True) as server:
        yield {"server": server.line().split()[1].removeprefix("sip:"), "pid": server.pid}


@contextlib.asynccontextmanager
async def connected(place: Place, user: str, session: str = "default") -> AsyncIterator[wanderbus.Agent]:
    """Connect as ``user`` of the place's domain for the block, as a new device."""
    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as state:
        agent = wanderbus.connect(
            f"sip:{user}@{place.get('domain', 'localhost')}",
            password="secret",
            server=place["server"],
            state_dir=state,
            connect_s_max=60.0,
            session=session,
        )
        async with agent:
            yield agent
