"""NATS JetStream as a subject of :mod:`bench.broker`: file storage, nats-py, a durable consumer each.

By default its acknowledgement means that the event was written, not that it was synced. ``synced`` makes every write to
its directory synchronous (``chattr +S``), since the server of Debian 12 has no option for it: an upper bound of what
that option would cost.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import nats
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, StorageType

from bench.broker_peer import HOST, OnEvent, Place, Publisher, process, stamp_of, stamped
from harness.ports import free_port

_STREAM: Final = "events"
_SUBJECT: Final = "events.departure"


class JetStream:
    """JetStream with its Python client; see the module."""

    def __init__(self, *, synced: bool) -> None:
        self.synced = synced

    @property
    def name(self) -> str:
        """Name in the figures."""
        return "jetstream_synced" if self.synced else "jetstream"

    def available(self) -> bool:
        """Return whether server and client are installed, and the directory can be made synchronous if requested."""
        return program() is not None

    @contextlib.contextmanager
    def server(self, directory: Path) -> Iterator[Place]:
        """Run the server for the block."""
        port, file, store = free_port(), directory / "nats.conf", directory / "store"
        store.mkdir()
        if self.synced:
            subprocess.run(["chattr", "+S", str(store)], check=True, capture_output=True)
        file.write_text(f'listen: "{HOST}:{port}"\njetstream {{ store_dir: "{store}" }}\n', encoding="utf-8")
        with process([program() or "", "-c", str(file)], port, directory / "log") as place:
            yield place

    @contextlib.asynccontextmanager
    async def publishing(self, place: Place) -> AsyncIterator[Publisher]:
        """Connect a publisher."""
        async with _connected(place) as stream:
            yield _Publishing(stream)

    @contextlib.asynccontextmanager
    async def consuming(self, place: Place, number: int, on_event: OnEvent) -> AsyncIterator[None]:
        """Connect a consumer."""

        async def received(message: Any) -> None:
            on_event(stamp_of(message.data))
            await message.ack()

        async with _connected(place) as stream:
            await stream.subscribe(
                _SUBJECT,
                durable=f"consumer{number}",
                cb=received,
                manual_ack=True,
                pending_msgs_limit=-1,
                pending_bytes_limit=-1,
                config=ConsumerConfig(max_ack_pending=10_000),
            )
            yield


class _Publishing:
    def __init__(self, stream: JetStreamContext) -> None:
        self._stream = stream

    async def publish(self) -> None:
        """Publish one event."""
        await self._stream.publish(_SUBJECT, stamped(), timeout=20)


@contextlib.asynccontextmanager
async def _connected(place: Place) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(f"nats://{HOST}:{place['port']}")
    try:
        stream = client.jetstream()
        await stream.add_stream(name=_STREAM, subjects=[_SUBJECT], storage=StorageType.FILE)
        yield stream
    finally:
        await client.close()


def program() -> str | None:
    """Return the path of the server, None if it is not installed."""
    return shutil.which("nats-server", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
