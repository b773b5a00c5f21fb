"""Redis Streams as a subject of :mod:`bench.broker`: every write synced (``appendfsync always``), redis-py.

A consumer reads the stream from its last position; nothing is acknowledged, and nothing is sent twice.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import redis.asyncio as redis

from bench.broker_peer import HOST, OnEvent, Place, Publisher, process, reading, stamp_of, stamped
from harness.ports import free_port

_STREAM: Final = "events"
_READ_MAX: Final = 200


class RedisStreams:
    """Redis with its Python client; see the module."""

    name = "redis_streams"

    def available(self) -> bool:
        """Return whether the server is installed."""
        return _program() is not None

    @contextlib.contextmanager
    def server(self, directory: Path) -> Iterator[Place]:
        """Run the server for the block."""
        port = free_port()
        argv = [_program() or "", "--bind", HOST, "--port", str(port), "--dir", str(directory), "--save", ""]
        argv += ["--protected-mode", "no", "--appendonly", "yes", "--appendfsync", "always"]
        with process(argv, port, directory / "log") as place:
            yield place

    @contextlib.asynccontextmanager
    async def publishing(self, place: Place) -> AsyncIterator[Publisher]:
        """Connect a publisher."""
        async with _connected(place) as client:
            yield _Publishing(client)

    @contextlib.asynccontextmanager
    async def consuming(self, place: Place, number: int, on_event: OnEvent) -> AsyncIterator[None]:
        """Connect a consumer."""
        async with _connected(place) as client:

            async def read() -> None:
                after = b"0"
                while True:
                    found = await client.xread({_STREAM: after}, count=_READ_MAX, block=2_000)
                    for _, entries in found.items() if isinstance(found, dict) else found or ():
                        for number, fields in entries[0] if isinstance(found, dict) else entries:
                            on_event(stamp_of(fields[b"e"]))
                            after = number

            async with reading(read):
                yield


class _Publishing:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def publish(self) -> None:
        """Publish one event."""
        await self._client.xadd(_STREAM, {"e": stamped()})


@contextlib.asynccontextmanager
async def _connected(place: Place) -> AsyncIterator[Any]:
    client = redis.Redis(host=HOST, port=place["port"], socket_timeout=None)
    try:
        await client.ping()
        yield client
    finally:
        await client.aclose()


def _program() -> str | None:
    return shutil.which("redis-server", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
