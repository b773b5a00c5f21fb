"""One connection: a pair of ids, a path, and its two halves (SPEC F, DESIGN 6.1 and 6.2).

The endpoint hands over a batch of datagrams and requests first and calls :meth:`Connection.flush` once after it.
So every ACK of a batch shares datagrams with the data of the batch, small messages share datagrams with each
other, and an ACK that arrived together with a late timer is seen before the timer is.
"""

from __future__ import annotations

from wanderbus.errors import RemoteProtocolError
from wanderbus.machine import Address, CancelTimer, Output, SendDatagram, SetTimer
from wanderbus.rudp.config import RudpConfig
from wanderbus.rudp.frames import (
    ACK_BYTES,
    PACKET_HEADER_BYTES,
    decode_frames,
    decode_packet_number,
    encode_acks,
    encode_packet_header,
)
from wanderbus.rudp.interface import Counters, GapDetected, MessageReceived, OpenConnection
from wanderbus.rudp.receiving import Receiver
from wanderbus.rudp.sending import Bundle, Sender


class Connection:
    """The state of one pair of ids; it sends to ``remote`` and nowhere else."""

    def __init__(self, opened: OpenConnection, config: RudpConfig, socket: str, counters: Counters) -> None:
        self.local_id = opened.local_id
        self.remote_id = opened.remote_id
        self.remote = opened.remote
        self.generation = opened.generation
        self.sender = Sender(config)
        self.receiver = Receiver(config, counters)
        self._socket = socket
        self._counters = counters
        self._frame_bytes_max = config.datagram_bytes_max - PACKET_HEADER_BYTES
        self._packet_number = 0
        self._acks_due: list[int] = []
        self._timer_at: float | None = None
        self._timer_fired = False
        self._path_changed = False

    def change_path(self, remote: Address, generation: int) -> None:
        """Send to ``remote`` from now on and repeat there what is in flight; older generations are ignored."""
        if generation < self.generation:
            return
        self.remote, self.generation = remote, generation
        self._path_changed = True

    def timer_fired(self) -> None:
        """Look for overdue packets at the end of this batch."""
        self._timer_fired = True

    def receive(self, packet: bytes, now: float, outputs: list[Output]) -> None:
        """Take a packet of this pair; one that cannot be read or held changes nothing and gets no ACK."""
        counters, receiver = self._counters, self.receiver
        try:
            frames = decode_frames(packet)
        except RemoteProtocolError:
            counters.malformed += 1
            return
        if not receiver.has_room(frames.data):
            counters.refused += 1
            return
        counters.received += 1
        number = decode_packet_number(packet)
        gap = receiver.note_packet(number)
        if gap is not None:
            counters.gaps += 1
            outputs.append(GapDetected(self.local_id, *gap))
        for acked in frames.acks:
            self.sender.confirm(acked, now)
        if frames.data:
            self._acks_due.append(number)
            local_id = self.local_id
            outputs += [MessageReceived(local_id, message) for message in receiver.take(frames.data)]
        elif frames.pinged:
            self._acks_due.append(number)

    def flush(self, now: float, outputs: list[Output]) -> bool:
        """Send what is due, and see to the timer; False if a packet's retries ran out (SPEC F-06)."""
        overdue: list[Bundle] | None = []
        scan = self._timer_fired or self._path_changed
        if self._path_changed:
            overdue = self.sender.restarted()
        elif self._timer_fired:
            overdue = self.sender.expired(now)
        if self._timer_fired:
            self._timer_at = None
        self._timer_fired = self._path_changed = False
        if overdue is None:
            return False
        self._counters.retransmitted += len(overdue)
        earliest = self._transmit(overdue, now, outputs)
        if scan:
            earliest = self.sender.next_deadline()
        self._see_to_timer(earliest, outputs)
        return True

    def _transmit(self, overdue: list[Bundle], now: float, outputs: list[Output]) -> float | None:
        """Send bundles, new ones last, and ACKs; return the earliest deadline that this makes."""
        sender = self.sender
        earliest: float | None = None
        for bundle in overdue:
            self._send_bundle(bundle, now, outputs)
        while True:
            reserved_bytes = min(len(self._acks_due) * ACK_BYTES, self._frame_bytes_max // 2)
            fresh = sender.next_bundle(reserved_bytes)
            if fresh is None:
                break
            self._send_bundle(fresh, now, outputs)
            earliest = fresh.deadline
        while self._acks_due:
            self._send_packet(self._take_acks(self._frame_bytes_max), outputs)
        return earliest

    def _send_bundle(self, bundle: Bundle, now: float, outputs: list[Output]) -> None:
        """Send a bundle, with as many ACKs as fit beside it."""
        payload = bundle.payload
        self.sender.sent(bundle, self._packet_number, now)
        if self._acks_due:
            payload = self._take_acks(self._frame_bytes_max - len(payload)) + payload
        self._send_packet(payload, outputs)

    def _take_acks(self, room_bytes: int) -> bytes:
        acks = self._acks_due[: room_bytes // ACK_BYTES]
        del self._acks_due[: len(acks)]
        self._counters.acks += len(acks)
        return encode_acks(acks)

    def _send_packet(self, payload: bytes, outputs: list[Output]) -> None:
        header = encode_packet_header(self.remote_id, self.local_id, self._packet_number)
        self._packet_number += 1
        self._counters.sent += 1
        outputs.append(SendDatagram(self._socket, self.remote, header + payload))

    def _see_to_timer(self, earliest: float | None, outputs: list[Output]) -> None:
        """Set the timer if it would come too late; one that comes too early finds nothing due and is set again.

        So a busy connection asks for a timer about once per timeout instead of once per packet.
        """
        if earliest is not None and (self._timer_at is None or earliest < self._timer_at):
            self._timer_at = earliest
            outputs.append(SetTimer(self.local_id, earliest))

    def close(self, outputs: list[Output]) -> None:
        """Leave no timer behind."""
        if self._timer_at is not None:
            outputs.append(CancelTimer(self.local_id))
            self._timer_at = None
