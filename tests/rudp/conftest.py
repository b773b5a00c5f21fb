"""Two endpoints in virtual time, driven by hand: nothing moves unless a test says so."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from wanderbus.machine import Address, CancelTimer, DatagramReceived, Input, Output, SendDatagram, SetTimer, TimerFired
from wanderbus.rudp import Endpoint, MessageReceived, OpenConnection, RudpConfig, SendMessage


class SeededRandom:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def token(self, n_bytes: int) -> bytes:
        return self._random.randbytes(n_bytes)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


class Side:
    """An endpoint with one connection, and what came out of it."""

    def __init__(self, seed: int, address: Address, config: RudpConfig) -> None:
        self.endpoint = Endpoint(SeededRandom(seed), config)
        self.address = address
        self.local_id = self.endpoint.allocate()
        self.timer_at: float | None = None
        self.received: list[bytes] = []
        self.reports: list[Output] = []

    def step(self, now: float, *inputs: Input) -> list[SendDatagram]:
        """Step the endpoint; keep timer, messages and other reports, return the datagrams."""
        datagrams: list[SendDatagram] = []
        for output in self.endpoint.step(inputs, now):
            match output:
                case SendDatagram():
                    datagrams.append(output)
                case SetTimer(key=key, at=at):
                    assert key == self.local_id
                    self.timer_at = at
                case CancelTimer():
                    self.timer_at = None
                case MessageReceived(payload=payload):
                    self.received.append(payload)
                case _:
                    self.reports.append(output)
        return datagrams

    def send(self, now: float, *payloads: bytes) -> list[SendDatagram]:
        return self.step(now, *[SendMessage(self.local_id, payload) for payload in payloads])

    def fire(self, now: float | None = None) -> tuple[float, list[SendDatagram]]:
        """Let the timer fire when it is due (or at ``now``); return the time and what is sent then."""
        assert self.timer_at is not None, "no timer is set"
        at = self.timer_at if now is None else now
        self.timer_at = None
        return at, self.step(at, TimerFired(self.local_id))

    def take(
        self, now: float, datagrams: list[SendDatagram], source: Address = ("192.0.2.99", 9)
    ) -> list[SendDatagram]:
        """Receive in one batch what the other side sent."""
        return self.step(now, *[DatagramReceived("data", source, datagram.data) for datagram in datagrams])


class Pair:
    """Two connected sides; ``left`` and ``right`` are symmetrical."""

    def __init__(self, config: RudpConfig, seed: int = 0) -> None:
        self.left = Side(2 * seed + 1, ("192.0.2.1", 1000), config)
        self.right = Side(2 * seed + 2, ("192.0.2.2", 2000), config)
        self.open(self.left, self.right)
        self.open(self.right, self.left)

    @staticmethod
    def open(side: Side, peer: Side) -> None:
        assert side.step(0.0, OpenConnection(side.local_id, peer.local_id, peer.address, 0)) == []

    def settle(self, now: float, datagrams: list[SendDatagram]) -> None:
        """Carry what ``left`` sent, and all that follows from it, without loss or delay."""
        while datagrams:
            answers = self.right.take(now, datagrams, self.left.address)
            datagrams = self.left.take(now, answers, self.right.address)


MakePair = Callable[..., Pair]


@pytest.fixture(scope="session")
def make_pair() -> MakePair:
    def make(seed: int = 0, **options: float) -> Pair:
        return Pair(RudpConfig(**options), seed)  # type: ignore[arg-type]

    return make


@pytest.fixture
def pair(make_pair: MakePair) -> Pair:
    return make_pair()
