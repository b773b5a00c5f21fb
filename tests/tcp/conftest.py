"""Two endpoints and the TCP connections between them, in virtual time: pipes that keep order and break anywhere."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from wanderbus.detection import MakeDetector
from wanderbus.machine import (
    Address,
    CancelTimer,
    CloseStream,
    Input,
    Output,
    SendOnStream,
    SetTimer,
    StreamClosed,
    StreamReceived,
    StreamTarget,
    TimerFired,
)
from wanderbus.tcp import Endpoint, MessageReceived, OpenConnection, SendMessage, TcpConfig, TcpTarget

SOCKET = "data-stream"
SECRET = b"shared by the two ends"
FINGERPRINT = bytes(range(32))
SERVER: Address = ("192.0.2.1", 5070)


class SeededRandom:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def token(self, n_bytes: int) -> bytes:
        return self._random.randbytes(n_bytes)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


class Side:
    """An endpoint, and its outputs that are not for the world."""

    def __init__(
        self, seed: int, config: TcpConfig, fingerprint: bytes = b"", detector: MakeDetector | None = None
    ) -> None:
        self.endpoint = Endpoint(SeededRandom(seed), config, fingerprint=fingerprint, make_detector=detector)
        self.local_id = self.endpoint.allocate()
        self.timers: dict[Any, float] = {}
        self.received: list[bytes] = []
        self.reports: list[Output] = []


class Pipe:
    """One TCP connection: bytes on their way in each direction, in order."""

    def __init__(self, number: int, target: StreamTarget) -> None:
        self.number = number
        self.target = target
        self.to_passive: deque[bytes] = deque()
        self.to_active: deque[bytes] = deque()
        self.open = True
        self.silent = False
        """Flag: data are lost without a report to either side."""


class World:
    """An active and a passive side, a clock, and all TCP connections, open and closed.

    Only the active side has the ``detector``.
    """

    def __init__(
        self,
        config: TcpConfig,
        passive_config: TcpConfig | None = None,
        seed: int = 0,
        detector: MakeDetector | None = None,
    ) -> None:
        self.now = 0.0
        self.active = Side(2 * seed + 1, config, detector=detector)
        self.passive = Side(2 * seed + 2, passive_config or config, FINGERPRINT)
        self.pipes: dict[int, Pipe] = {}
        self.reachable = True
        """Flag: a new TCP connection can be opened."""
        self.target = TcpTarget("TLS", SERVER, FINGERPRINT)
        self.writes: list[tuple[Side, bytes]] = []
        self._numbers = itertools.count(1)

    def open(self, secret: bytes = SECRET, generation: int = 0) -> None:
        self.open_passive(generation)
        self.open_active(secret)
        self.settle()

    def open_passive(self, generation: int = 0) -> None:
        ids = self.passive.local_id, self.active.local_id
        self.step(self.passive, OpenConnection(*ids, generation, SECRET, None))

    def open_active(self, secret: bytes = SECRET) -> None:
        ids = self.active.local_id, self.passive.local_id
        self.step(self.active, OpenConnection(*ids, 0, secret, self.target))

    def step(self, side: Side, *inputs: Input) -> None:
        told: list[Input] = []
        for output in side.endpoint.step(inputs, self.now):
            match output:
                case SendOnStream():
                    told += self._write(side, output)
                case CloseStream(connection=number):
                    self.break_pipe(self.pipes[number], "closed here", but=side)
                    told.append(self._closed(side, self.pipes[number], "closed here"))
                case SetTimer(key=key, at=at):
                    side.timers[key] = at
                case CancelTimer(key=key):
                    side.timers.pop(key, None)
                case MessageReceived(payload=payload):
                    assert output.local_id == side.local_id
                    side.received.append(payload)
                case _:
                    side.reports.append(output)
        if told:
            self.step(side, *told)

    def send(self, side: Side, *payloads: bytes) -> None:
        self.step(side, *[SendMessage(side.local_id, payload) for payload in payloads])

    def _write(self, side: Side, wanted: SendOnStream) -> list[Input]:
        self.writes.append((side, wanted.data))
        if wanted.reopen:
            assert side is self.active
            assert wanted.connection is None
            pipe = Pipe(next(self._numbers), wanted.target)
            self.pipes[pipe.number] = pipe
            if not self.reachable:
                pipe.open = False
                return [self._closed(side, pipe, "Connection refused")]
        else:
            assert wanted.connection is not None
            pipe = self.pipes[wanted.connection]
        if pipe.open:
            (pipe.to_passive if side is self.active else pipe.to_active).append(wanted.data)
        return []

    def _closed(self, side: Side, pipe: Pipe, reason: str) -> StreamClosed:
        return StreamClosed(SOCKET, pipe.number, reason, pipe.target if side is self.active else None)

    def arrive(self, pipe: Pipe, at: Side, n_bytes: int | None = None) -> None:
        """Deliver the data in flight in ``pipe`` to one side, all or the first ``n_bytes``."""
        under_way = pipe.to_passive if at is self.passive else pipe.to_active
        data = b"".join(under_way)
        under_way.clear()
        if n_bytes is not None and n_bytes < len(data):
            under_way.append(data[n_bytes:])
            data = data[:n_bytes]
        if data and pipe.open and not pipe.silent:
            target = pipe.target if at is self.active else None
            self.step(at, StreamReceived(SOCKET, pipe.number, ("192.0.2.9", 40_000), data, "TLS", target))

    def break_pipe(self, pipe: Pipe, reason: str = "reset", but: Side | None = None) -> None:
        """End a TCP connection; report it to each side except ``but``, unless the pipe is silent."""
        if pipe.open:
            pipe.open = False
            for side in (self.active, self.passive):
                if side is not but and not pipe.silent:
                    self.step(side, self._closed(side, pipe, reason))

    @property
    def live(self) -> list[Pipe]:
        return [pipe for pipe in self.pipes.values() if pipe.open]

    def is_proven(self, pipe: Pipe) -> bool:
        """Return whether the active side uses ``pipe``, or can never use it."""
        stream = self.active.endpoint._connections[self.active.local_id].stream
        return pipe.silent or not pipe.open or (stream is not None and stream.number == pipe.number)

    def settle(self) -> None:
        """Deliver everything at once."""
        while any((pipe.to_passive or pipe.to_active) and not pipe.silent for pipe in self.live):
            for pipe in self.live:
                self.arrive(pipe, self.passive)
                self.arrive(pipe, self.active)

    def run(self, until: float, settling: bool = True) -> None:
        """Fire timers and deliver everything at once, until that second."""
        while True:
            if settling:
                self.settle()
            due = [(at, str(key), side, key) for side in (self.active, self.passive) for key, at in side.timers.items()]
            if not due or min(due, key=lambda each: each[:2])[0] > until:
                break
            self.now, _, side, key = min(due, key=lambda each: each[:2])
            del side.timers[key]
            self.step(side, TimerFired(key))
        self.now = until


MakeWorld = Callable[..., World]


@pytest.fixture(scope="session")
def make_world() -> MakeWorld:
    def make(seed: int = 0, *, opened: bool = True, detector: MakeDetector | None = None, **options: Any) -> World:
        world = World(TcpConfig(**options), seed=seed, detector=detector)
        if opened:
            world.open()
        return world

    return make


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world()
