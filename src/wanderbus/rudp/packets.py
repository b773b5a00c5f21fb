"""Packets of one connection: numbered, sealed, and each accepted once (DESIGN 6.2 and 6.5)."""

from __future__ import annotations

from typing import Final

from wanderbus.errors import RemoteProtocolError
from wanderbus.machine import Address, SendDatagram
from wanderbus.parameters.transports import RudpConfig
from wanderbus.rudp.ack_tracker import PacketNumbers
from wanderbus.rudp.frames import (
    ACK_BYTES,
    HEADER_BYTES,
    PLAIN,
    SEALED,
    Frames,
    Header,
    decode_frames,
    encode_header,
)
from wanderbus.rudp.interface import Counters, OpenConnection
from wanderbus.rudp.sealing import SEAL_BYTES, Awake, Sealer
from wanderbus.transport import Outputs

_GENERATION_MASK: Final = 0xFFFF
_EPOCH_MASK: Final = 0xFF


class Packets:
    """Conversion between the frames of a connection and its datagrams, both ways."""

    __slots__ = (
        "_counters",
        "_generation",
        "_ids",
        "_sealer",
        "_socket",
        "arrivals",
        "frame_bytes_max",
        "next_number",
        "overhead_bytes",
    )

    def __init__(
        self, opened: OpenConnection, config: RudpConfig, socket: str, counters: Counters, awake: Awake | None = None
    ) -> None:
        self.next_number = 0
        """Number of the next packet."""
        self.arrivals = PacketNumbers()
        self._ids = opened.remote_id, opened.local_id
        self._socket = socket
        self._counters = counters
        self._generation = 0
        self._sealer = Sealer(opened.secrets, config.rekey_packets, awake) if opened.secrets else None
        self.overhead_bytes = HEADER_BYTES + (SEAL_BYTES if self._sealer else 0)
        self.frame_bytes_max = config.datagram_bytes_max - self.overhead_bytes

    def rest(self) -> None:
        """Release state that can be created again when a packet is sent or received."""
        if self._sealer is not None:
            self._sealer.rest()

    def moved_here(self, generation: int) -> None:
        """Use our ``generation`` in packets from now on."""
        self._generation = generation & _GENERATION_MASK

    def open(self, header: Header, packet: bytes) -> Frames | None:
        """Return the frames of a packet; count it and return None if it is old, not authentic, or invalid."""
        _, _, kind, epoch, _, number = header
        if not self.arrivals.is_new(number):
            self._counters.replayed += 1
            return None
        body: bytes | None
        if self._sealer is None:
            body, offset = (packet if kind == PLAIN else None), HEADER_BYTES
        else:
            body, offset = (self._sealer.open(packet, number, epoch) if kind == SEALED else None), 0
        if body is None:
            self._counters.forged += 1
            return None
        try:
            return decode_frames(body, offset)
        except RemoteProtocolError:
            self._counters.malformed += 1
            return None

    def confirmed(self, number: int) -> None:
        """Record that the peer has packet ``number``, and therefore the key that sealed it."""
        if self._sealer is not None:
            self._sealer.confirmed(number)

    def take_acks(self) -> list[bytes]:
        """Return and remove the ACK frames that are due, oldest first."""
        marks, frames = self.arrivals.take_acks()
        if marks:
            self._counters.acks += marks
            self._counters.ack_frames += len(frames)
        return frames

    def send(self, frames: bytes, destination: Address, outputs: Outputs) -> None:
        """Send ``frames`` as the next packet."""
        number, sealer = self.next_number, self._sealer
        remote_id, local_id = self._ids
        if sealer is None:
            packet = encode_header(remote_id, local_id, PLAIN, 0, self._generation, number) + frames
        else:
            header = encode_header(remote_id, local_id, SEALED, sealer.epoch & _EPOCH_MASK, self._generation, number)
            packet = sealer.seal(header, number, frames)
        self.next_number = number + 1
        self._counters.sent += 1
        outputs.append(SendDatagram(self._socket, destination, packet))

    def send_acks(self, acks: list[bytes], destination: Address, outputs: Outputs) -> None:
        """Send ``acks`` in packets of their own."""
        while acks:
            self.send(take_fitting(acks, self.frame_bytes_max), destination, outputs)


def take_fitting(acks: list[bytes], room_bytes: int) -> bytes:
    """Remove the oldest ``acks`` that fit, and return them joined."""
    fitting = room_bytes // ACK_BYTES
    taken = b"".join(acks[:fitting])
    del acks[:fitting]
    return taken
