"""Peers of the channel benchmark behind one interface: our reliable UDP, and TCP and TLS by asyncio's streams.

A message on a stream is its length in four bytes and its bytes, written as it is given.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol, Self, cast

import msgspec

from bench.arrivals import Arrivals
from bench.channel_own_tcp import MESSAGE_BYTES_MAX, own_tcp_dialled, own_tcp_listening
from harness.certificate import client_context, make_certificate, server_context
from wanderbus.api import rudp
from wanderbus.errors import WanderbusError
from wanderbus.machine import Address
from wanderbus.parameters.transports import RudpConfig

SECRET: Final = bytes(32)
_LENGTH: Final = struct.Struct("!I")
_BACKLOG: Final = 256


class Channel(Protocol):
    """A reliable, ordered channel of messages: iterate over it for those of the other side."""

    async def send(self, message: bytes) -> None:
        """Send a message; waits while too much is in flight."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class Peer(NamedTuple):
    """Subject of a measurement: ``kind`` is ``rudp``, ``own tcp``, ``tcp``, ``tls`` or ``udp``; ``batched`` is for
    ``rudp``.
    """

    name: str
    kind: str
    sealed: bool = False
    batched: bool = True


RUDP_SEALED: Final = Peer("rudp sealed", "rudp", sealed=True)
RUDP_PLAIN: Final = Peer("rudp plain", "rudp")
RUDP_SEALED_UNBATCHED: Final = Peer("rudp sealed, one per datagram", "rudp", sealed=True, batched=False)
RUDP_PLAIN_UNBATCHED: Final = Peer("rudp plain, one per datagram", "rudp", batched=False)
OWN_TCP: Final = Peer("our data channel over TLS", "own tcp", sealed=True)
TCP: Final = Peer("tcp", "tcp")
TLS: Final = Peer("tls", "tls", sealed=True)
UDP: Final = Peer("udp", "udp")
PEERS: Final = (RUDP_SEALED, RUDP_PLAIN, RUDP_SEALED_UNBATCHED, RUDP_PLAIN_UNBATCHED, OWN_TCP, TCP, TLS)


class Place(NamedTuple):
    """Address of a listening peer; ``certificate`` is that of a TLS server."""

    host: str
    port: int
    certificate: str = ""


Handler = Callable[[Channel], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening(peer: Peer, host: str, handle: Handler) -> AsyncIterator[Place]:
    """Accept channels for the block, each in a task that runs ``handle`` on it."""
    async with contextlib.AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="wanderbus-bench-"))
        tasks = await stack.enter_async_context(_Tasks(handle))
        certificate = ""
        if peer.kind == "rudp":
            port = await stack.enter_async_context(_rudp_listening(peer, host, tasks))
        elif peer.kind == "udp":
            port = await stack.enter_async_context(_datagrams_listening(host, tasks))
        elif peer.kind == "own tcp":
            file, key = make_certificate(Path(directory))
            certificate = str(file)
            port = stack.enter_context(own_tcp_listening(host, file, key, tasks.begin))
        else:
            context = None
            if peer.kind == "tls":
                file, key = make_certificate(Path(directory))
                certificate, context = str(file), server_context(file, key)
            port = await stack.enter_async_context(_streams_listening(host, context, tasks))
        yield Place(host, port, certificate)


@contextlib.asynccontextmanager
async def dialled(peer: Peer, place: Place, number: int) -> AsyncIterator[Channel]:
    """Open the channel of this number, from 0 on, for the block."""
    if peer.kind == "rudp":
        secret, encryption, config = _rudp_options(peer)
        with contextlib.suppress(_Done):
            async with rudp.connect(
                place.host, place.port, secret=secret, encryption=encryption, config=config
            ) as channel:
                yield channel
                raise _Done
        return
    if peer.kind == "udp":
        async with _datagrams(remote_addr=(place.host, place.port)) as datagrams:
            yield DatagramChannel(datagrams, None)
        return
    if peer.kind == "own tcp":
        with own_tcp_dialled(place.host, place.port, Path(place.certificate), number) as own:
            yield own
        return
    tls = peer.kind == "tls"
    reader, writer = await asyncio.open_connection(
        place.host,
        place.port,
        ssl=client_context(Path(place.certificate)) if tls else None,
        server_hostname="localhost" if tls else None,
    )
    try:
        yield StreamChannel(reader, writer)
    finally:
        writer.transport.abort()


class _Done(Exception):
    """Leaves a channel without the final flush, which would wait for all data in flight."""


class StreamChannel:
    """Messages on a TCP or TLS connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def send(self, message: bytes) -> None:
        """Write a message."""
        self._writer.write(_LENGTH.pack(len(message)) + message)
        await self._writer.drain()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = self._reader.readexactly
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (length,) = _LENGTH.unpack(await read(_LENGTH.size))
                yield await read(length)


class DatagramChannel(Arrivals):
    """Datagrams to and from one address, neither reliable nor in order."""

    def __init__(self, datagrams: _Datagrams, remote: Address | None) -> None:
        super().__init__()
        self._transport, self._remote = datagrams.transport, remote
        datagrams.channels[remote] = self

    async def send(self, message: bytes) -> None:
        """Send a datagram."""
        self._transport.sendto(message, self._remote)


class _Datagrams(asyncio.DatagramProtocol):
    """A socket and its channels, by remote address; ``accepted`` is called with each new channel."""

    def __init__(self, accepted: Callable[[Channel], None] | None) -> None:
        self.channels: dict[Address | None, DatagramChannel] = {}
        self._accepted = accepted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Address) -> None:
        channel = self.channels.get(addr if self._accepted else None)
        if channel is None:
            channel = DatagramChannel(self, addr)
            if self._accepted is not None:
                self._accepted(channel)
        channel.take(data)


@contextlib.asynccontextmanager
async def _datagrams(
    accepted: Callable[[Channel], None] | None = None, **address: Address
) -> AsyncIterator[_Datagrams]:
    transport, datagrams = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: _Datagrams(accepted),
        local_addr=address.get("local_addr"),
        remote_addr=address.get("remote_addr"),
    )
    try:
        yield datagrams
    finally:
        transport.close()


@contextlib.asynccontextmanager
async def _datagrams_listening(host: str, tasks: _Tasks) -> AsyncIterator[int]:
    async with _datagrams(tasks.begin, local_addr=(host, 0)) as datagrams:
        yield datagrams.transport.get_extra_info("sockname")[1]


class _Tasks:
    """The tasks of accepted channels; they end with the block."""

    def __init__(self, handle: Handler) -> None:
        self._handle = handle
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, channel: Channel) -> None:
        """Handle a channel."""

        async def run() -> None:
            with contextlib.suppress(WanderbusError):  # the other side leaves without notice
                await self._handle(channel)

        self._tasks.add(asyncio.get_running_loop().create_task(run()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def _rudp_listening(peer: Peer, host: str, tasks: _Tasks) -> AsyncIterator[int]:
    secret, encryption, config = _rudp_options(peer)
    async with rudp.listen(host, 0, secret=secret, encryption=encryption, config=config) as listener:

        async def accept() -> None:
            async for channel in listener:
                tasks.begin(channel)

        accepting = asyncio.get_running_loop().create_task(accept())
        try:
            yield listener.address[1]
        finally:
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)


@contextlib.asynccontextmanager
async def _streams_listening(host: str, context: ssl.SSLContext | None, tasks: _Tasks) -> AsyncIterator[int]:
    server = await asyncio.start_server(
        lambda reader, writer: tasks.begin(StreamChannel(reader, writer)), host, 0, ssl=context, backlog=_BACKLOG
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def _rudp_options(peer: Peer) -> tuple[bytes, bool, RudpConfig]:
    config = RudpConfig(message_bytes_max=MESSAGE_BYTES_MAX)
    if not peer.batched:
        config = msgspec.structs.replace(config, messages_per_datagram_max=1)
    return SECRET, peer.sealed, config


class EchoServer(asyncio.DatagramProtocol):
    """Sends every datagram back: as little as asyncio can do."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Send it back."""
        self._transport.sendto(data, addr)  # type: ignore[attr-defined]


class EchoClient(asyncio.DatagramProtocol):
    """Calls ``on_datagram`` for each datagram that comes back."""

    def __init__(self, on_datagram: Callable[[bytes], None]) -> None:
        self._on_datagram = on_datagram

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Pass it to the callback."""
        self._on_datagram(data)

    def send(self, data: bytes) -> None:
        """Send a datagram."""
        self._transport.sendto(data)  # type: ignore[attr-defined]
