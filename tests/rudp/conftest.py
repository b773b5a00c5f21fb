"""Two endpoints in virtual time; only the test delivers datagrams and fires timers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from wanderbus.detection import MakeDetector
from wanderbus.machine import Address, CancelTimer, DatagramReceived, Input, Output, SendDatagram, SetTimer, TimerFired
from wanderbus.rudp import Endpoint, MessageReceived, OpenConnection, RudpConfig, SendMessage
from wanderbus.rudp.connection import Connection
from wanderbus.rudp.frames import (
    HEADER_BYTES,
    PLAIN,
    SEALED,
    AckFrame,
    ControlFrame,
    DataFrame,
    Frames,
    decode_frames,
    decode_header,
    encode_header,
)
from wanderbus.rudp.interface import Secrets
from wanderbus.rudp.sealing import Sealer

RESET_KEY = b"outlives the process"


class SeededRandom:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def token(self, n_bytes: int) -> bytes:
        return self._random.randbytes(n_bytes)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


class Side:
    """An endpoint with one connection, and its outputs."""

    def __init__(
        self,
        seed: int,
        address: Address,
        config: RudpConfig,
        reset_key: bytes = RESET_KEY,
        detector: MakeDetector | None = None,
    ) -> None:
        self.endpoint = Endpoint(SeededRandom(seed), config, reset_key=reset_key, make_detector=detector)
        self.has_detector = detector is not None
        self.address = address
        self.peer_address = ("192.0.2.99", 9)
        self.local_id = self.endpoint.allocate()
        self.timer_at: float | None = None
        self.timers_set = 0
        self.received: list[bytes] = []
        self.reports: list[Output] = []
        self.secrets: Secrets | None = None

    @property
    def connection(self) -> Connection:
        return self.endpoint._connections[self.local_id]

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
                    self.timers_set += 1
                case CancelTimer():
                    self.timer_at = None
                case MessageReceived(payload=payload):
                    self.received.append(payload)
                case _:
                    self.reports.append(output)
        return datagrams

    def send(self, now: float, *payloads: bytes) -> list[SendDatagram]:
        return self.step(now, *[SendMessage(self.local_id, payload) for payload in payloads])

    def send_each(self, now: float, *payloads: bytes) -> list[SendDatagram]:
        """Send each payload in a step, and so in a packet, of its own."""
        return [datagram for payload in payloads for datagram in self.send(now, payload)]

    def fire(self, now: float | None = None) -> tuple[float, list[SendDatagram]]:
        """Fire the timer when it is due (or at ``now``); return the time and the datagrams that are sent then."""
        assert self.timer_at is not None, "no timer is set"
        at = self.timer_at if now is None else now
        self.timer_at = None
        return at, self.step(at, TimerFired(self.local_id))

    def take(self, now: float, datagrams: list[SendDatagram], source: Address | None = None) -> list[SendDatagram]:
        """Receive the other side's datagrams in one batch, from its address or from ``source``."""
        source = source or self.peer_address
        return self.step(now, *[DatagramReceived("data", source, datagram.data) for datagram in datagrams])


class Pair:
    """Two connected sides; ``left`` and ``right`` are symmetrical.

    Only ``left`` has the ``detector``. Unless ``announcing``, they know each other's tokens already, so that packets
    hold only the frames of the test.
    """

    def __init__(
        self,
        config: RudpConfig,
        seed: int = 0,
        sealed: bool = False,
        announcing: bool = False,
        detector: MakeDetector | None = None,
    ) -> None:
        self.left = Side(2 * seed + 1, ("192.0.2.1", 1000), config, detector=detector)
        self.right = Side(2 * seed + 2, ("192.0.2.2", 2000), config)
        self.sealed = sealed
        ahead, back = bytes(32), bytes([1]) * 32
        self.open(self.left, self.right, Secrets(ahead, back) if sealed else None)
        self.open(self.right, self.left, Secrets(back, ahead) if sealed else None)
        if not announcing:
            for side, peer in ((self.left, self.right), (self.right, self.left)):
                peer.connection.peer_token, side.connection._token = side.connection._token, b""

    @staticmethod
    def open(side: Side, peer: Side, secrets: Secrets | None = None) -> None:
        side.secrets, side.peer_address = secrets, peer.address
        sent = side.step(0.0, OpenConnection(side.local_id, peer.local_id, peer.address, 0, secrets))
        assert sent == [] or side.has_detector

    def settle(self, now: float, datagrams: list[SendDatagram]) -> None:
        """Deliver the datagrams of ``left``, and all datagrams that follow, without loss or delay."""
        while datagrams:
            answers = self.right.take(now, datagrams, self.left.address)
            datagrams = self.left.take(now, answers, self.right.address)

    def frames(self, datagram: SendDatagram) -> Frames:
        """Return the frames of a datagram of either side."""
        _, source_id, kind, epoch, _, number = decode_header(datagram.data)
        if not self.sealed:
            assert kind == PLAIN
            return decode_frames(datagram.data, HEADER_BYTES)
        assert kind == SEALED
        reader = self.right if source_id == self.left.local_id else self.left
        assert reader.secrets is not None
        opened = Sealer(reader.secrets, 2**20).open(datagram.data, number, epoch)
        assert opened is not None
        return decode_frames(opened)

    def data(self, datagrams: list[SendDatagram]) -> list[DataFrame]:
        return [frame for datagram in datagrams for frame in self.frames(datagram).data]

    def acks(self, datagrams: list[SendDatagram]) -> list[AckFrame]:
        return [ack for datagram in datagrams for ack in self.frames(datagram).acks]

    def controls(self, datagrams: list[SendDatagram]) -> list[ControlFrame]:
        return [control for datagram in datagrams for control in self.frames(datagram).controls]

    def from_left(self, number: int, frames: bytes, generation: int = 0) -> DatagramReceived:
        """Return what ``right`` receives if ``left`` breaks the protocol with these frames; plain mode."""
        header = encode_header(self.right.local_id, self.left.local_id, PLAIN, 0, generation, number)
        return DatagramReceived("data", self.left.address, header + frames)


def numbers(datagrams: list[SendDatagram]) -> list[int]:
    """Return the packet numbers."""
    return [decode_header(datagram.data)[5] for datagram in datagrams]


def fresh_marks(acks: list[AckFrame]) -> list[int]:
    """Return the packets that have just arrived according to ``acks``."""
    return sorted(number for newest, fresh, _ in acks for number in (newest, *marked(newest, fresh)))


def marked(newest: int, marks: int) -> list[int]:
    """Return the packet numbers that one set of marks names."""
    return [newest - 1 - i for i in range(64) if marks >> i & 1]


def measure(pair: Pair, rtt_s: float) -> None:
    """Give left an estimate of the round trip, in time below 0."""
    for n in range(10):
        now = -100.0 + n
        pair.left.take(now + rtt_s, pair.right.take(now, pair.left.send(now, b"sample")))


MakePair = Callable[..., Pair]


@pytest.fixture(scope="session")
def make_pair() -> MakePair:
    def make(
        seed: int = 0,
        sealed: bool = False,
        announcing: bool = False,
        detector: MakeDetector | None = None,
        **options: float | None,
    ) -> Pair:
        return Pair(RudpConfig(**options), seed, sealed, announcing, detector)  # type: ignore[arg-type]

    return make


@pytest.fixture
def pair(make_pair: MakePair) -> Pair:
    return make_pair()
