"""Our data channel over TCP by itself, for measuring: no SIP agrees on the ids, so both sides count them alike."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.arrivals import Arrivals
from harness.certificate import server_context
from wanderbus.machine import Input, Output
from wanderbus.parameters.transports import DATA_STREAM_LIMITS
from wanderbus.runtime.net.driver import Driver
from wanderbus.tcp import Endpoint, MessageReceived, OpenConnection, SendMessage, TcpConfig, TcpTarget

CHANNELS_MAX: Final = 256
UNSENT_BYTES_MAX: Final = 2**18
MESSAGE_BYTES_MAX: Final = 2**21
_SOCKET: Final = "data-stream"
_SECRET: Final = bytes(32)
_PASSIVE: Final = 1 << 32
"""Offset from an id of the connecting side to that of the other side."""


class _Counting:
    """A predictable source of ids."""

    def __init__(self, first: int) -> None:
        self._next = first - 1

    def token(self, n_bytes: int) -> bytes:
        """Return the next number; doubled, since an id leaves out the last bit."""
        self._next += 1
        return (self._next << 1).to_bytes(n_bytes, "big")

    def uniform(self, low: float, high: float) -> float:
        """Return the middle."""
        return (low + high) / 2


class OwnTcpChannel(Arrivals):
    """One connection of an end."""

    def __init__(self, end: OwnTcpEnd, local_id: int) -> None:
        super().__init__()
        self._end = end
        self._local_id = local_id

    async def send(self, message: bytes) -> None:
        """Give a message to be sent; waits while too much is unsent."""
        end = self._end
        if end.waiting_bytes.get(self._local_id, 0) >= UNSENT_BYTES_MAX:
            await end.room(self._local_id)
        end.waiting_bytes[self._local_id] = end.waiting_bytes.get(self._local_id, 0) + len(message)
        end.driver.feed(SendMessage(self._local_id, message))


class OwnTcpEnd:
    """The machine of one side and its connections; the driver uses it as the machine, so that it sees each step."""

    def __init__(self, first_id: int, fingerprint: bytes = b"") -> None:
        config = TcpConfig(message_bytes_max=MESSAGE_BYTES_MAX)
        self.endpoint = Endpoint(_Counting(first_id), config, socket=_SOCKET, fingerprint=fingerprint)
        self.driver = Driver(self, self._report)
        self.channels: dict[int, OwnTcpChannel] = {}
        self.waiting_bytes: dict[int, int] = {}
        self.accepted: Callable[[OwnTcpChannel], None] | None = None
        self._rooms: dict[int, asyncio.Future[None]] = {}

    def step(self, inputs: Iterable[Input], now: float) -> Sequence[Output]:
        """Step the machine, and resume senders that have room."""
        outputs = self.endpoint.step(inputs, now)
        for local_id in self.waiting_bytes:
            self.waiting_bytes[local_id] = self.endpoint.unsent_bytes(local_id)
        for local_id, room in list(self._rooms.items()):
            if self.waiting_bytes[local_id] < UNSENT_BYTES_MAX // 2:
                del self._rooms[local_id]
                if not room.done():  # the waiting sender may have been cancelled meanwhile
                    room.set_result(None)
        return outputs

    async def room(self, local_id: int) -> None:
        """Wait until little is unsent; one sender for each channel."""
        self._rooms[local_id] = asyncio.get_running_loop().create_future()
        await self._rooms[local_id]

    def open(self, local_id: int, remote_id: int, target: TcpTarget | None) -> OwnTcpChannel:
        """Open one connection."""
        self.driver.feed(OpenConnection(local_id, remote_id, 0, _SECRET, target))
        channel = self.channels[local_id] = OwnTcpChannel(self, local_id)
        return channel

    def _report(self, output: Output) -> None:
        if isinstance(output, MessageReceived):
            channel = self.channels[output.local_id]
            if self.accepted is not None and output.local_id not in self.waiting_bytes:
                self.waiting_bytes[output.local_id] = 0
                self.accepted(channel)
            channel.take(output.payload)


@contextlib.contextmanager
def own_tcp_listening(
    host: str, certificate: Path, key: Path, accepted: Callable[[OwnTcpChannel], None]
) -> Iterator[int]:
    """Serve for the block, over TLS; a channel is announced with its first message."""
    fingerprint = _fingerprint(certificate)
    end = OwnTcpEnd(_PASSIVE + 1, fingerprint)
    end.accepted = accepted
    bound = end.driver.bind_streams(
        _SOCKET, {"TLS": (host, 0)}, server_tls=server_context(certificate, key), limits=DATA_STREAM_LIMITS
    )
    for number in range(1, CHANNELS_MAX + 1):
        end.open(end.endpoint.allocate(), number, None)
    try:
        yield bound["TLS"][1]
    finally:
        end.driver.close()


@contextlib.contextmanager
def own_tcp_dialled(host: str, port: int, certificate: Path, number: int) -> Iterator[OwnTcpChannel]:
    """Open the channel of this number, from 0 on, for the block."""
    end = OwnTcpEnd(number + 1)
    end.driver.bind_streams(_SOCKET, {}, limits=DATA_STREAM_LIMITS)
    local_id = end.endpoint.allocate()
    target = TcpTarget("TLS", (host, port), _fingerprint(certificate))
    try:
        yield end.open(local_id, _PASSIVE + local_id, target)
    finally:
        end.driver.close()


def _fingerprint(certificate: Path) -> bytes:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.read_text())).digest()
