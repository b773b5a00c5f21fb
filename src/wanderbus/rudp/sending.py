"""Sending half of a connection: waiting, unacknowledged and repeated frames (SPEC F-04 to F-06).

The unit is the :class:`Bundle`: the frames that were first sent in one packet. They are repeated together and
unchanged, each time in a packet with a new number, until one of those packets is acknowledged::

    waiting ──▶ in flight ──ACK of its packet, or of any earlier one──▶ gone
                   ├── timeout ──▶ overdue ──▶ in flight, at once (RFC 9002 7.5)
                   └── loss, change of path ──▶ repeats ──▶ in flight, as the congestion window allows

No operation visits all bundles for each packet. All are visited when the timer fires or the path changes, and some when
an ACK overtakes them.
"""

from __future__ import annotations

from collections import deque
from heapq import nsmallest
from typing import Final

from wanderbus.parameters.transports import INITIAL_WINDOW_FRAMES, RudpConfig
from wanderbus.rudp.bundle import Bundle
from wanderbus.rudp.congestion import BURST_PACKETS, Congestion, PacketPace, SentPacket, longest_blackout_s
from wanderbus.rudp.frame_division import divided, renumbered
from wanderbus.rudp.frames import (
    DATA_HEADER_BYTES,
    FINISH,
    PADDING,
    PING_FRAME,
    AckFrame,
    encode_data,
    encode_numbered,
)
from wanderbus.rudp.interface import Counters
from wanderbus.rudp.path_mtu import LOSSES_MAX, PathMtu
from wanderbus.rudp.recovery import RoundTrip

_EARLIER_PACKETS_MAX: Final = 32
"""Earlier packets of one bundle whose ACK is still recognized: more than the retries of one path, and bounded even if
the path changes often."""

_PROBES: Final = 2
"""Packets that a timeout repeats while the path is not measured (RFC 9002 6.2.4)."""

_PACKET_THRESHOLD: Final = 3
"""kPacketThreshold of RFC 9002 6.1.1: a packet is lost if an ACK is ahead of it by this many numbers."""


class Sender:
    """Numbers, splits and bundles messages, and keeps them until the peer has acknowledged them.

    At most ``packets_in_flight_max`` bundles are in flight or to be repeated, in addition to PINGs of the owner, each
    with at most 32 earlier packets. ``send_queue_bytes_max`` bounds the waiting frames; the connection enforces it.
    """

    __slots__ = (
        "_config",
        "_confirmed",
        "_controls",
        "_counters",
        "_earlier",
        "_first_confirmed",
        "_in_flight",
        "_largest",
        "_last_sent_at",
        "_number_due",
        "_overdue",
        "_overtaken",
        "_passed",
        "_ping_wanted",
        "_probe",
        "_repeats",
        "_sent_bytes",
        "_short_wanted",
        "_timed_out",
        "_waiting",
        "congestion",
        "finished",
        "granted",
        "loss_at",
        "mtu",
        "pace",
        "round_trip",
        "unsent_bytes",
    )

    def __init__(self, config: RudpConfig, frame_bytes_max: int, counters: Counters) -> None:
        self.round_trip = RoundTrip(config)
        self.congestion = Congestion(config.packets_in_flight_max)
        self.pace = PacketPace()
        self.granted = INITIAL_WINDOW_FRAMES
        """First DATA number beyond the peer's grant."""
        self.unsent_bytes = 0
        """Bytes of DATA frames that wait to be sent for the first time."""
        self._sent_bytes = 0
        self.loss_at: float | None = None
        """Time when the first overtaken packet counts as lost, None if there is none."""
        self.finished = False
        """True if FINISH was enqueued."""
        self._config = config
        self._counters = counters
        self.mtu = PathMtu(frame_bytes_max, DATA_HEADER_BYTES)
        self._waiting: deque[bytes] | tuple[()] = ()
        """A deque while frames wait; None otherwise, since an empty deque is larger than the rest of an idle sender."""
        self._number_due = 0
        self._controls: dict[int, bytes] = {}
        self._in_flight: dict[int, Bundle] = {}
        self._overdue: list[Bundle] = []
        self._repeats: list[Bundle] = []
        self._earlier: dict[int, tuple[Bundle, float | None]] = {}
        self._timed_out: dict[int, float] = {}
        self._ping_wanted = False
        self._last_sent_at = 0.0
        self._confirmed: list[int] = []
        self._first_confirmed: int | None = None
        self._largest = -1
        self._passed = 0, -1
        """Frame bytes and number of the newest of the longest packets that were acknowledged."""
        self._overtaken = -1
        self._probe: Bundle | None = None
        self._short_wanted = False

    @property
    def packets_in_flight(self) -> int:
        """Return the number of packets that wait for their ACK; a retransmitted one counts once."""
        return len(self._in_flight)

    @property
    def newest_acknowledged(self) -> int:
        """Return the highest number of a packet that the peer has acknowledged, -1 before the first."""
        return self._largest

    @property
    def unconfirmed_bytes(self) -> int:
        """Return the bytes of DATA frames that wait to be sent or acknowledged."""
        return self.unsent_bytes + self._sent_bytes

    @property
    def wants_to_send(self) -> bool:
        """Return whether there is something to send, if the windows permit it."""
        return bool(self._waiting or self._overdue or self._repeats or self._controls or self._ping_wanted)

    def is_backing_off(self, now: float) -> bool:
        """Return whether a repetition was not acknowledged, and nothing was sent for longer than the timeout."""
        if now - self._last_sent_at <= self.round_trip.timeout_s:
            return False
        return any(bundle.retries for bundle in self._in_flight.values())

    def queue(self, message: bytes) -> None:
        """Enqueue a message; one longer than a datagram is split into DATA frames that fill one each."""
        if self.finished:
            return
        size, most = len(message), self.mtu.size_bytes - DATA_HEADER_BYTES
        if size <= most:
            self._queue_frame(encode_data(self._number_due, False, message))
            return
        for start in range(0, size, most):
            more = start + most < size
            self._queue_frame(encode_data(self._number_due, more, message[start : start + most]))

    def finish(self) -> None:
        """Enqueue FINISH after the last message; messages enqueued later are ignored."""
        if not self.finished:
            self._queue_frame(encode_numbered(FINISH, self._number_due))
            self.finished = True

    def close(self) -> None:
        """Ignore messages enqueued from now on."""
        self.finished = True

    def _queue_frame(self, frame: bytes) -> None:
        self._number_due += 1
        if isinstance(self._waiting, tuple):
            self._waiting = deque()
        self._waiting.append(frame)
        self.unsent_bytes += len(frame)

    def control(self, kind: int, frame: bytes) -> None:
        """Send ``frame`` reliably with the next bundle; it replaces a waiting frame of its kind."""
        self._controls[kind] = frame

    def ping(self) -> None:
        """Send an ack-eliciting packet soon, whatever is in flight."""
        self._ping_wanted = True

    def next_bundle(self, reserved_bytes: int, now: float) -> Bundle | None:
        """Return the bundle that may be sent now, or None.

        ``reserved_bytes`` are left free for ACKs if the first frame permits it.
        """
        repeats = self._repeats
        if self._overdue:
            self._counters.retransmitted += 1
            return self._overdue.pop(0)
        if self._short_wanted:
            # A packet that any path carries shows whether only long ones are lost.
            self._short_wanted = False
            return Bundle(PING_FRAME, 0)
        if self._probe is None and self._in_flight and (size := self.mtu.next_probe_bytes(now)) is not None:
            self._probe = Bundle(PING_FRAME.ljust(size, bytes([PADDING])), 0, is_probe=True)
            return self._probe
        if len(self._in_flight) >= self.congestion.window or self._is_paced(now):
            self.congestion.limiting = bool(self._waiting or repeats)
            return self._ping_bundle()
        while repeats:
            bundle = repeats.pop(0)
            if not bundle.confirmed:
                self._counters.retransmitted += 1
                return bundle
        return self._new_bundle(reserved_bytes)

    def _is_paced(self, now: float) -> bool:
        """Return whether the pace holds back what waits; a window of one burst needs no pace."""
        window, rtt_s = self.congestion.window, self.round_trip.smoothed_s
        if window <= BURST_PACKETS or not rtt_s or not (self._waiting or self._repeats):
            self.pace.resumes_at = None
            return False
        return not self.pace.admits(window, rtt_s, now)

    def _new_bundle(self, reserved_bytes: int) -> Bundle | None:
        frames = list(self._controls.values()) if self._controls else []
        self._controls.clear()
        control_bytes = size = sum(map(len, frames)) if frames else 0
        if waiting := self._waiting:
            room = self.mtu.size_bytes - reserved_bytes
            unsent_number = self._number_due - len(waiting)
            allowed = min(self.granted - unsent_number, self._config.messages_per_datagram_max, len(waiting))
            while allowed > 0:
                length = len(waiting[0])
                if size + length > room and frames:
                    break
                size += length
                frames.append(waiting.popleft())
                allowed -= 1
            if not waiting:
                self._waiting = ()
        if frames:
            data_bytes = size - control_bytes
            self._ping_wanted = False
            self.unsent_bytes -= data_bytes
            self._sent_bytes += data_bytes
            return Bundle(frames[0] if len(frames) == 1 else b"".join(frames), data_bytes)
        self.congestion.limiting = False
        return self._ping_bundle()

    def _ping_bundle(self) -> Bundle | None:
        """Return a PING if one is requested; the congestion window does not delay it (RFC 9002 7.5)."""
        if not self._ping_wanted:
            return None
        self._ping_wanted = False
        return Bundle(PING_FRAME, 0)

    def sent(self, bundle: Bundle, number: int, now: float) -> None:
        """Record that ``bundle`` is sent now as packet ``number``."""
        since_last_s = now - self._last_sent_at
        self._last_sent_at = bundle.sent_at = now
        bundle.number = number
        self._in_flight[number] = bundle
        self._short_wanted |= len(bundle.earlier) >= LOSSES_MAX - 1 and self._is_swallowed(bundle)
        self.congestion.sent(len(self._in_flight), since_last_s)

    def acknowledged(self, ack: AckFrame, now: float) -> None:
        """Process an ACK frame, which names only packets that were sent; :meth:`settle` completes the processing.

        Fresh marks measure the path; those in ``again`` are checked only if an older packet is missing. An ACK of a
        packet that was declared lost still counts, and is still measured: otherwise a round trip longer than the
        initial timeout would never be known.
        """
        newest, fresh, again = ack
        if newest > self._largest:
            self._largest = newest
        self._confirm(newest, now, True)
        number = newest - 1
        while fresh:
            if fresh & 1:
                self._confirm(number, now, True)
            fresh >>= 1
            number -= 1
        if again and (self._earlier or (self._in_flight and next(iter(self._in_flight)) < newest)):
            missing = [*self._earlier, *self._in_flight]
            for number in missing:
                if number < newest and again >> newest - 1 - number & 1:
                    self._confirm(number, now, False)

    def _confirm(self, number: int, now: float, measures: bool) -> None:
        bundle = self._in_flight.pop(number, None)
        sent_at: float | None
        if bundle is not None:
            sent_at = bundle.sent_at
        elif number in self._earlier:
            bundle, sent_at = self._earlier[number]
            self._in_flight.pop(bundle.number, None)
            for later in bundle.earlier[bundle.earlier.index(number) :]:
                self._timed_out.pop(later, None)  # needless repetitions, whose ACKs may still be on their way
            self._counters.spurious += 1
        else:
            return
        if measures and sent_at is not None:
            self.round_trip.sample(max(now - sent_at, 0.0), now)
        bundle.confirmed = True
        if len(bundle.payload) >= self._passed[0]:
            self._passed = len(bundle.payload), number
        if bundle.is_probe:
            self._probe = None
            self.mtu.confirmed(len(bundle.payload))
        self._confirmed.append(number)
        self._sent_bytes -= bundle.data_bytes
        for earlier in bundle.earlier:
            del self._earlier[earlier]

    def settle(self, now: float, next_number: int) -> bool:
        """Complete the processing of a batch's ACKs; return whether a deadline may now be earlier.

        Packets sent before an acknowledged one reached a peer that is not silent, so their retries are counted from 0.
        """
        eased = False
        if self._largest > self._overtaken:
            self._overtaken = self._largest
            for bundle in self._in_flight.values() if self._earlier else ():
                if bundle.retries and bundle.earlier[0] < self._largest:
                    bundle.retries = 0
                    eased = True
        confirmed = self._confirmed
        if confirmed and (self._first_confirmed is None or min(confirmed) < self._first_confirmed):
            self._first_confirmed = min(confirmed)
        if self._timed_out or (self._in_flight and next(iter(self._in_flight)) < self._largest):
            confirmed.sort()
            self.detect_lost(now, next_number)
        self.congestion.confirmed(confirmed, next_number, self.round_trip.least_s)
        confirmed.clear()
        if not self._in_flight:
            self._in_flight.clear()  # releases the memory that it had grown to
        return eased

    def detect_lost(self, now: float, next_number: int) -> None:
        """Declare packets lost that the newest ACK overtook by too many numbers or too long ago (RFC 9002 6.1).

        A packet that timed out earlier and was overtaken now is lost too, and counts for congestion.
        """
        largest, delay_s = self._largest, self.round_trip.loss_delay_s
        overtaken = [bundle for number, bundle in self._in_flight.items() if number < largest]
        lost = [(number, sent_at) for number, sent_at in self._timed_out.items() if number < largest]
        for number, _ in lost:
            del self._timed_out[number]
        self.loss_at = None
        for bundle in overtaken:
            bundle.retries = 0
            if bundle.number <= largest - _PACKET_THRESHOLD or bundle.sent_at + delay_s <= now:
                if bundle.is_probe:
                    self._drop_probe(bundle)
                    continue
                lost.append((bundle.number, bundle.sent_at))
                self._counters.lost += 1
                self._give_up(bundle, bundle.sent_at)
                self._repeats.append(bundle)
            elif self.loss_at is None:
                self.loss_at = bundle.sent_at + delay_s
        if any(len(bundle.earlier) >= LOSSES_MAX and self._is_swallowed(bundle) for bundle in self._repeats):
            self._fall_back(now, next_number)
        elif lost:
            lost.sort()
            self._congested(lost, next_number)

    def _is_swallowed(self, bundle: Bundle) -> bool:
        """Return whether ``bundle`` is long, and no packet as long was acknowledged during its last losses."""
        size, (passed_bytes, number) = len(bundle.payload), self._passed
        return size > self.mtu.half_bytes and (passed_bytes < size or number < bundle.earlier[-LOSSES_MAX:][0])

    def _fall_back(self, now: float, next_number: int) -> None:
        """Divide what is too long for the path, and send it at once: its losses were no congestion."""
        self._counters.black_holes += 1
        self.mtu.fall_back(now)
        self.congestion = Congestion(self._config.packets_in_flight_max, next_number)
        self.loss_at = None
        self._timed_out.clear()
        if self._probe is not None:
            self._drop_probe(self._probe)
        in_flight = [bundle for bundle in self._in_flight.values() if len(bundle.payload) > self.mtu.size_bytes]
        for bundle in in_flight:
            del self._in_flight[bundle.number]
        self._repeats = [part for bundle in (*in_flight, *self._repeats) for part in self._divide(bundle)]
        self._overdue = [part for bundle in self._overdue for part in self._divide(bundle)]
        first = self._number_due - len(self._waiting)
        frames = renumbered(self._waiting, first, self.mtu.size_bytes - DATA_HEADER_BYTES)
        self._waiting = deque(frames) if frames else ()
        self._number_due = first + len(frames)
        self.unsent_bytes = sum(map(len, frames))

    def _divide(self, bundle: Bundle) -> list[Bundle]:
        """Return ``bundle``, or what replaces it if it is too long; a late ACK of it counts no more then."""
        if bundle.confirmed or len(bundle.payload) <= self.mtu.size_bytes:
            return [bundle]
        for number in bundle.earlier:
            self._earlier.pop(number, None)
        parts = [Bundle(*part) for part in divided(bundle.payload, self.mtu.size_bytes)]
        self._sent_bytes += sum(part.data_bytes for part in parts) - bundle.data_bytes
        return parts

    def _drop_probe(self, probe: Bundle) -> None:
        """Give up a probe of the path's MTU."""
        self._in_flight.pop(probe.number, None)
        self._probe = None
        self.mtu.lost(len(probe.payload))

    def _congested(self, lost: list[SentPacket], next_number: int) -> None:
        """Treat ``lost`` as a sign of congestion, as persistent congestion if nothing was acknowledged for long.

        Packets from before the first acknowledged one do not count: the peer drops what arrives before the signalling
        that opens its side of the connection (RFC 9002 7.4).
        """
        if self._first_confirmed is None or lost[-1][0] < self._first_confirmed:
            return
        self.congestion.lost(lost[-1][0], next_number)
        measured_at = self.round_trip.measured_at
        if measured_at is not None:
            blackout_s = longest_blackout_s(lost, self._confirmed, measured_at)
            if blackout_s > self.round_trip.persistent_congestion_s:
                self.congestion.collapse()

    def expired(self, now: float) -> list[Bundle]:
        """Return the bundles whose timeout has passed, for :meth:`repeat` (SPEC F-05)."""
        backed_off_s = self.round_trip.backed_off_s
        late = [bundle for bundle in self._awaited() if bundle.sent_at + backed_off_s(bundle.retries) <= now]
        for bundle in late:
            if bundle.is_probe:
                self._drop_probe(bundle)
        return [bundle for bundle in late if not bundle.is_probe]

    def repeat(self, expired: list[Bundle]) -> None:
        """Declare packets lost, and send them again at once."""
        for bundle in expired:
            bundle.retries += 1
            self._counters.timeouts += 1
            self._timed_out[bundle.number] = bundle.sent_at
            self._give_up(bundle, bundle.sent_at)
            self._overdue.append(bundle)

    def most_retries(self, expired: list[Bundle]) -> int:
        """Return the timeouts in a row of the packet that timed out most often, now in ``expired`` (SPEC F-06)."""
        before = [bundle.retries for bundle in self._in_flight.values()]
        return max([*before, *[bundle.retries + 1 for bundle in expired]], default=0)

    def waiting_since(self) -> float | None:
        """Return when the oldest unacknowledged packet was first sent on this path; None without any."""
        waits = []
        for bundle in (*self._overdue, *self._repeats, *self._in_flight.values()):
            if not bundle.confirmed:
                waits.append(bundle.sent_at if bundle.lost_at is None else bundle.lost_at)
        return min(waits, default=None)

    def _awaited(self) -> list[Bundle]:
        """Return the bundles in flight that time out; the loss of overtaken ones is noticed otherwise.

        Until the path is measured the timeout is a guess, which a long path always misses. Only the oldest bundles are
        repeated then, as probes (RFC 9002 6.2.4); their ACK shows what else is lost.
        """
        largest = self._largest
        bundles = [bundle for number, bundle in self._in_flight.items() if number > largest]
        if self.round_trip.measured_at is None and len(bundles) > _PROBES:
            return nsmallest(
                _PROBES, bundles, key=lambda bundle: bundle.earlier[0] if bundle.earlier else bundle.number
            )
        return bundles

    def restart(self, next_number: int, now: float) -> None:
        """Declare all packets in flight lost, to be repeated on a new path with fresh retries and estimates.

        An ACK of a packet sent on the old path still confirms it, but does not measure the new path.
        """
        self.round_trip = RoundTrip(self._config)
        self.congestion = Congestion(self._config.packets_in_flight_max, next_number)
        self.loss_at = None
        if self._probe is not None:
            self._drop_probe(self._probe)
        self.mtu.restart(now)
        self._passed = 0, -1
        self._timed_out.clear()
        for number, (bundle, _) in self._earlier.items():
            self._earlier[number] = (bundle, None)
        for bundle in list(self._in_flight.values()):
            self._give_up(bundle, None)
            self._repeats.append(bundle)
        for bundle in (*self._overdue, *self._repeats):
            bundle.retries = 0
            bundle.lost_at = None
            bundle.sent_at = now

    def _give_up(self, bundle: Bundle, sent_at: float | None) -> None:
        number = bundle.number
        del self._in_flight[number]
        self._earlier[number] = (bundle, sent_at)
        bundle.earlier += (number,)
        if bundle.lost_at is None:
            bundle.lost_at = sent_at
        if len(bundle.earlier) > _EARLIER_PACKETS_MAX:
            del self._earlier[bundle.earlier[0]]
            bundle.earlier = bundle.earlier[1:]

    def next_deadline(self) -> float | None:
        """Return the time when the first packet in flight is overdue or lost, in monotonic seconds."""
        backed_off_s = self.round_trip.backed_off_s
        deadlines = [bundle.sent_at + backed_off_s(bundle.retries) for bundle in self._awaited()]
        if self.loss_at is not None:
            deadlines.append(self.loss_at)
        return min(deadlines, default=None)
