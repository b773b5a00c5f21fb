"""QUIC by aioquic as a subject of :mod:`bench.heal`: one connection, a server that publishes itself, on one stream.

The client's socket is bound to no address, so it can send from a new one at once; a PING is what lets the server know
(connection migration, RFC 9000 9). There is no broker behind it.
"""

from __future__ import annotations

import contextlib
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent, StreamDataReceived

from bench.heal_jobs import EVENT_BYTES, OnEvent, Publisher, Subscription, pack_event, unpack_event
from harness.certificate import make_certificate
from harness.two_hosts import FAR_ADDRESS, Hosts

_PORT: Final = 4433
_ALPN: Final = "bench"
_IDLE_S: Final = 600.0


class Quic:
    """See the module."""

    @contextlib.contextmanager
    def server(self, pair: Hosts) -> Iterator[Mapping[str, Any]]:
        """Make a certificate; the publisher is the server."""
        with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as directory:
            certificate, key = make_certificate(Path(directory))
            yield {"certificate": str(certificate), "key": str(key)}

    @contextlib.asynccontextmanager
    async def subscribed(self, options: Mapping[str, Any], on_event: OnEvent) -> AsyncIterator[Subscription]:
        """Connect and ask for the events."""
        configuration = QuicConfiguration(
            is_client=True,
            alpn_protocols=[_ALPN],
            idle_timeout=_IDLE_S,
            verify_mode=ssl.CERT_NONE,
            server_name="localhost",
        )

        def protocol(*arguments: Any, **named: Any) -> _Client:
            return _Client(on_event, *arguments, **named)

        async with connect(FAR_ADDRESS, _PORT, configuration=configuration, create_protocol=protocol) as client:
            assert isinstance(client, _Client)
            client.ask()
            yield client

    @contextlib.asynccontextmanager
    async def publishing(self, options: Mapping[str, Any]) -> AsyncIterator[Publisher]:
        """Serve for the block."""
        configuration = QuicConfiguration(is_client=False, alpn_protocols=[_ALPN], idle_timeout=_IDLE_S)
        configuration.load_cert_chain(options["certificate"], options["key"])
        publishing = _Publishing()

        def protocol(*arguments: Any, **named: Any) -> _Server:
            return _Server(publishing, *arguments, **named)

        server = await serve(FAR_ADDRESS, _PORT, configuration=configuration, create_protocol=protocol)
        try:
            yield publishing
        finally:
            server.close()


class _Client(QuicConnectionProtocol):
    def __init__(self, on_event: OnEvent, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.marks: list[tuple[str, float]] = []
        self._on_event = on_event
        self._received = b""

    def ask(self) -> None:
        self._quic.send_stream_data(self._quic.get_next_available_stream_id(), b"events, please")
        self.transmit()

    async def moved(self) -> None:
        """Let the server see the new address."""
        await self.ping()

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived):
            self._received += event.data
            while len(self._received) >= EVENT_BYTES:
                number, published_s = unpack_event(self._received)
                self._received = self._received[EVENT_BYTES:]
                self._on_event(number, published_s, time.monotonic())


class _Server(QuicConnectionProtocol):
    def __init__(self, publishing: _Publishing, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._publishing = publishing
        self._stream = 0

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived):
            self._stream = event.stream_id
            self._publishing.subscriber = self

    def push(self, data: bytes) -> None:
        self._quic.send_stream_data(self._stream, data)
        self.transmit()


class _Publishing:
    def __init__(self) -> None:
        self.subscriber: _Server | None = None

    async def publish(self, number: int, published_s: float) -> None:
        """Send one event to the subscriber."""
        if self.subscriber is not None:
            self.subscriber.push(pack_event(number, published_s))
