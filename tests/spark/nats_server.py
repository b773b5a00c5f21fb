"""A NATS server with JetStream for tests, and streams in it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import nats
from nats.js import JetStreamContext

from bench.broker_nats import JetStream

HAS_SERVER = shutil.which("nats-server", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin") is not None


@contextlib.contextmanager
def nats_server(directory: Path) -> Iterator[str]:
    """Run a server for the block; yield its address."""
    with JetStream(synced=False).server(directory) as place:
        yield f"nats://127.0.0.1:{place['port']}"


async def publish(url: str, stream: str, payloads: Sequence[bytes]) -> None:
    """Publish messages to a stream, which is made if it is not there."""
    client = await nats.connect(url)
    try:
        context = client.jetstream()
        await context.add_stream(name=stream, subjects=[f"{stream}.records"])
        for payload in payloads:
            await context.publish(f"{stream}.records", payload)
    finally:
        await client.close()


async def remove(url: str, stream: str, *, sequences: Sequence[int] = (), below: int | None = None) -> None:
    """Delete single messages of a stream, and all those before ``below``."""
    client = await nats.connect(url)
    try:
        context: JetStreamContext = client.jetstream()
        for sequence in sequences:
            await context.delete_msg(stream, sequence)
        if below is not None:
            await context.purge_stream(stream, seq=below)
    finally:
        await client.close()


async def delete(url: str, stream: str) -> None:
    """Delete a stream."""
    client = await nats.connect(url)
    try:
        await client.jetstream().delete_stream(stream)
    finally:
        await client.close()
