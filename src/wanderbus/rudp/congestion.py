"""Congestion control: NewReno, counted in packets, and persistent congestion (RFC 9002 7)."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

SentPacket = tuple[int, float]
"""A packet number and its send time."""


def longest_blackout_s(lost: list[SentPacket], confirmed: list[int], measured_at: float) -> float:
    """Return the longest period in which every sent packet was lost, seconds.

    ``lost`` and ``confirmed`` are sorted by packet number. A confirmed packet between two lost ones ends a period.
    Packets sent before ``measured_at``, the first sample of the round trip, do not count (RFC 9002 7.6.2).
    """
    longest_s, began_at, before = 0.0, 0.0, -1
    for number, sent_at in lost:
        if sent_at < measured_at:
            continue
        if before < 0 or bisect_left(confirmed, before) != bisect_left(confirmed, number):
            began_at = sent_at
        before = number
        longest_s = max(longest_s, sent_at - began_at)
    return longest_s


INITIAL_PACKETS: Final = 10
"""RFC 9002 7.2, RFC 6928."""

PACKETS_MIN: Final = 2
"""RFC 9002 7.2."""

BURST_PACKETS: Final = 128
"""Packets that may leave at once. About 150 kB: more would only fill the receive buffer of a socket with default
limits, which holds about 200 kB on Linux."""

PACKETS_PER_S_MAX: Final = 12_800.0
"""Rate up to which a window beyond ``BURST_PACKETS`` fills a path, packets per second: a burst every 10 ms. A short
path, which holds no more than a burst, therefore keeps a window of one burst."""

VALID_S: Final = 300.0
"""Time without sending after which a window is halved, seconds (the non-validated period of RFC 7661 4.3)."""

_LOSS_REDUCTION: Final = 0.5
"""kLossReductionFactor of RFC 9002 B.1."""

_WINDOWS_PER_RTT: Final = 4.0
"""N of RFC 9002 7.7. It is above the 1.25 of the RFC, so that a whole window leaves in a quarter of a round trip: a
burst after a pause, without ACKs to clock it, then takes hardly longer than TCP, which does not pace it at all."""

_PACE_PACKETS: Final = 16
"""Packets that leave together when their time has come, so that the timer does not fire for each."""


class PacketPace:
    """Token bucket of the packets that may leave now: a burst, and then a part of the window in each round trip."""

    __slots__ = ("_packets", "_seen_at", "resumes_at")

    def __init__(self) -> None:
        self.resumes_at: float | None = None
        """Time when packets that the pace holds back may leave, None if it holds none back."""
        self._packets = float(BURST_PACKETS)
        self._seen_at = 0.0

    def admits(self, window: float, rtt_s: float, now: float) -> bool:
        """Take a packet out of the bucket; return False if it is empty."""
        rate = _WINDOWS_PER_RTT * window / rtt_s
        self._packets = min(self._packets + (now - self._seen_at) * rate, float(BURST_PACKETS))
        self._seen_at = now
        if self.resumes_at is not None and now < self.resumes_at:
            return False
        self.resumes_at = None
        if self._packets < 1.0:
            self.resumes_at = now + (_PACE_PACKETS - self._packets) / rate
            return False
        self._packets -= 1.0
        return True


class Congestion:
    """The congestion window of one path; created again when the path changes (RFC 9000 9.4).

    The window bounds what is in flight. It grows when it limits sending; in slow start half of it in use suffices. It
    stays as it is while less is sent. A loss then halves what was in flight, or the initial window if that is larger,
    since nobody knows whether the path still carries more (RFC 7661 4).
    """

    __slots__ = ("_most", "_recovery_end", "_round_end", "_threshold", "_used", "limiting", "window")

    def __init__(self, packets_max: int, first_number: int = 0) -> None:
        """Begin with packet ``first_number``; earlier packets were on another path and are ignored."""
        self._most = float(packets_max)
        self._threshold = self._most
        self._recovery_end = self._round_end = first_number
        self._used = 0, 0
        """Most packets in flight in the round trip before, and in this one."""
        self.window = min(float(INITIAL_PACKETS), self._most)
        """Packets that may be in flight."""
        self.limiting = False
        """True if only the window, or the pace, prevents sending."""

    def sent(self, in_flight: int, since_last_s: float) -> None:
        """Record that a packet was sent, ``since_last_s`` after the last one, and that now ``in_flight`` are."""
        before, most = self._used
        if in_flight > most:
            self._used = before, in_flight
        if since_last_s > VALID_S:
            self._threshold = max(self._threshold, 0.75 * self.window)
            halved = self.window * _LOSS_REDUCTION ** (since_last_s // VALID_S)
            self.window = max(halved, min(self.window, float(INITIAL_PACKETS)))

    def confirmed(self, numbers: list[int], next_number: int, least_rtt_s: float) -> None:
        """Grow for acknowledged packets; packets sent before the end of the recovery do not count (RFC 9002 7.3.2).

        ``next_number`` is that of the next packet, ``least_rtt_s`` the least round trip of the path in seconds.
        """
        if numbers and numbers[-1] >= self._round_end:
            self._round_end = next_number
            self._used = self._used[1], 0
        most = min(self._most, max(float(BURST_PACKETS), PACKETS_PER_S_MAX * least_rtt_s))
        window, threshold, recovery_end = self.window, self._threshold, self._recovery_end
        is_valid = self.limiting or (window < threshold and window < 2 * max(self._used))
        if not is_valid or window >= most:
            return
        for number in numbers:
            if number >= recovery_end:
                window += 1.0 if window < threshold else 1.0 / window
        self.window = min(window, most)

    def lost(self, number: int, next_number: int) -> None:
        """Halve the window for the loss of packet ``number``, unless halved since that was sent (RFC 9002 7.3.2).

        ``next_number`` is that of the next packet: the recovery lasts until a packet sent from now on is acknowledged.
        """
        if number >= self._recovery_end:
            self._recovery_end = next_number
            used = min(self.window, float(max(INITIAL_PACKETS, *self._used)))
            self.window = self._threshold = max(used * _LOSS_REDUCTION, float(PACKETS_MIN))

    def collapse(self) -> None:
        """Restart from the minimum window: persistent congestion (RFC 9002 7.6.2)."""
        self.window = float(PACKETS_MIN)
