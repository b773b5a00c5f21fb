"""The sending half of a connection: what waits, what is in flight, what is due again (SPEC F-04 to F-06).

The unit is the :class:`Bundle`: the frames that first left in one packet. When its ACK does not come in time they
leave again, together and unchanged, in a packet of a new number, until one of those packets is confirmed. Nothing
here looks at every bundle for each packet: only when the timer fires, or the path changes, are they gone through.
"""

from __future__ import annotations

from collections import deque

from wanderbus.rudp.config import RudpConfig
from wanderbus.rudp.frames import DATA_HEADER_BYTES, PACKET_HEADER_BYTES, PING_FRAME, encode_data
from wanderbus.rudp.recovery import RoundTrip

_EARLIER_PACKETS_MAX = 32
"""Given-up packets of one bundle whose ACK is still understood; more than the retries of one path, bounded however
often the path changes."""


class Bundle:
    """Ack-eliciting frames that travel together, and the packet that carries them now.

    ``first`` and ``end`` are the DATA numbers within, half open, and equal for a PING. ``retries`` counts the
    retransmissions since the path last changed.
    """

    __slots__ = ("deadline", "earlier", "end", "first", "number", "payload", "retries", "sent_at")

    def __init__(self, payload: bytes, first: int, end: int) -> None:
        self.payload = payload
        self.first = first
        self.end = end
        self.retries = 0
        self.number = -1
        self.sent_at = 0.0
        self.deadline = 0.0
        self.earlier: list[int] = []


class Sender:
    """Numbers, cuts, bundles and remembers what was given to it until the peer has confirmed it."""

    def __init__(self, config: RudpConfig) -> None:
        self._config = config
        self._frame_bytes_max = config.datagram_bytes_max - PACKET_HEADER_BYTES
        self._waiting: deque[bytes] = deque()
        self._number_due = 0
        self._first_waiting = 0
        self._base = 0
        self._confirmed_ahead: dict[int, int] = {}
        self._in_flight: dict[int, Bundle] = {}
        self._earlier: dict[int, tuple[Bundle, float | None]] = {}
        self._ping: Bundle | None = None
        self._ping_wanted = False
        self.round_trip = RoundTrip(config)
        self.unsent_bytes = 0

    @property
    def packets_in_flight(self) -> int:
        """Packets that wait for their ACK, retransmitted ones once."""
        return len(self._in_flight)

    @property
    def all_confirmed(self) -> bool:
        """Whether every DATA frame queued so far has been confirmed."""
        return self._base == self._number_due

    def queue(self, message: bytes) -> None:
        """Take a message; above one datagram it is cut into DATA frames that fill one each."""
        most = self._frame_bytes_max - DATA_HEADER_BYTES
        size = len(message)
        if size <= most:
            self._queue_frame(False, message)
            return
        for start in range(0, size, most):
            self._queue_frame(start + most < size, message[start : start + most])

    def _queue_frame(self, more: bool, payload: bytes) -> None:
        frame = encode_data(self._number_due, more, payload)
        self._number_due += 1
        self._waiting.append(frame)
        self.unsent_bytes += len(frame)

    def ping(self) -> None:
        """Have an ack-eliciting packet leave soon, unless a PING is already on its way."""
        self._ping_wanted = self._ping is None

    def next_bundle(self, reserved_bytes: int) -> Bundle | None:
        """Return what may leave for the first time, or None.

        ``reserved_bytes`` are left free for ACKs where the first frame allows it.
        """
        if len(self._in_flight) >= self._config.packets_in_flight_max:
            self._ping_wanted = False
            return None
        waiting = self._waiting
        first = self._first_waiting
        allowed = self._base + self._config.reorder_frames_max - first
        if not waiting or allowed <= 0:
            return self._ping_bundle()
        frame = waiting.popleft()
        size = len(frame)
        room = self._frame_bytes_max - reserved_bytes
        frames = [frame]
        while waiting and len(frames) < allowed and size + len(waiting[0]) <= room:
            frame = waiting.popleft()
            size += len(frame)
            frames.append(frame)
        self.unsent_bytes -= size
        self._first_waiting = end = first + len(frames)
        self._ping_wanted = False
        return Bundle(b"".join(frames), first, end)

    def _ping_bundle(self) -> Bundle | None:
        if not self._ping_wanted:
            return None
        self._ping_wanted = False
        self._ping = Bundle(PING_FRAME, 0, 0)
        return self._ping

    def sent(self, bundle: Bundle, number: int, now: float) -> None:
        """Note that ``bundle`` leaves now as packet ``number``; its deadline follows from its retries."""
        bundle.number = number
        bundle.sent_at = now
        bundle.deadline = now + self.round_trip.backed_off_s(bundle.retries)
        self._in_flight[number] = bundle

    def confirm(self, number: int, now: float) -> None:
        """Take an ACK. One that comes after the packet was given up still counts, and still measures the path.

        Without that, a round trip longer than the initial timeout would never be measured.
        """
        bundle = self._in_flight.pop(number, None)
        if bundle is not None:
            sent_at: float | None = bundle.sent_at
        else:
            late = self._earlier.get(number)
            if late is None:
                return
            bundle, sent_at = late
            self._in_flight.pop(bundle.number, None)
        if sent_at is not None:
            self.round_trip.sample(max(now - sent_at, 0.0))
        for earlier in bundle.earlier:
            del self._earlier[earlier]
        if bundle is self._ping:
            self._ping = None
        if bundle.first != bundle.end:
            self._advance(bundle)

    def _advance(self, bundle: Bundle) -> None:
        """Move the lowest unconfirmed DATA number, to which the receiver's window is tied."""
        if bundle.first != self._base:
            self._confirmed_ahead[bundle.first] = bundle.end
            return
        base = bundle.end
        ahead = self._confirmed_ahead
        while ahead and (end := ahead.pop(base, None)) is not None:
            base = end
        self._base = base

    def expired(self, now: float) -> list[Bundle] | None:
        """Take back what was not confirmed by ``now``, to be sent again; None if the retries of one ran out."""
        overdue = [bundle for bundle in self._in_flight.values() if bundle.deadline <= now]
        for bundle in overdue:
            if bundle.retries >= self._config.retries_max:
                return None
            bundle.retries += 1
            self._give_up(bundle, bundle.sent_at)
        return overdue

    def restarted(self) -> list[Bundle]:
        """Take back everything in flight, to be sent again on a new path with fresh retries and estimate.

        An ACK for what left on the old path still confirms it, but does not measure the new one.
        """
        self.round_trip = RoundTrip(self._config)
        for number, (bundle, _) in self._earlier.items():
            self._earlier[number] = (bundle, None)
        bundles = list(self._in_flight.values())
        for bundle in bundles:
            bundle.retries = 0
            self._give_up(bundle, None)
        return bundles

    def _give_up(self, bundle: Bundle, sent_at: float | None) -> None:
        del self._in_flight[bundle.number]
        self._earlier[bundle.number] = (bundle, sent_at)
        bundle.earlier.append(bundle.number)
        if len(bundle.earlier) > _EARLIER_PACKETS_MAX:
            del self._earlier[bundle.earlier.pop(0)]

    def next_deadline(self) -> float | None:
        """Return when the first packet in flight is overdue, in monotonic seconds."""
        return min((bundle.deadline for bundle in self._in_flight.values()), default=None)
