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
"""RFC 9002 7.2."""

PACKETS_MIN: Final = 2
"""RFC 9002 7.2."""

_LOSS_REDUCTION: Final = 0.5
"""kLossReductionFactor of RFC 9002 B.1."""


class Congestion:
    """The congestion window of one path; created again when the path changes (RFC 9000 9.4).

    The window bounds bursts. It grows only when it limits sending, and returns to its initial size when nothing was
    sent for a while (RFC 9002 7.8, RFC 5681 4.1).
    """

    __slots__ = ("_most", "_recovery_end", "_threshold", "limiting", "window")

    def __init__(self, packets_max: int, first_number: int = 0) -> None:
        """Begin with packet ``first_number``; earlier packets were on another path and are ignored."""
        self._most = float(packets_max)
        self._threshold = self._most
        self._recovery_end = first_number
        self.window = min(float(INITIAL_PACKETS), self._most)
        """Packets that may be in flight."""
        self.limiting = False
        """True if the window alone prevents sending."""

    def confirmed(self, numbers: list[int]) -> None:
        """Grow for acknowledged packets; packets sent before the end of the recovery do not count (RFC 9002 7.3.2)."""
        if not self.limiting or self.window >= self._most:
            return
        window, threshold, recovery_end = self.window, self._threshold, self._recovery_end
        for number in numbers:
            if number >= recovery_end:
                window += 1.0 if window < threshold else 1.0 / window
        self.window = min(window, self._most)

    def lost(self, number: int, next_number: int) -> None:
        """Halve the window for the loss of packet ``number``, unless halved since that was sent (RFC 9002 7.3.2).

        ``next_number`` is that of the next packet: the recovery lasts until a packet sent from now on is acknowledged.
        """
        if number >= self._recovery_end:
            self._recovery_end = next_number
            self.window = self._threshold = max(self.window * _LOSS_REDUCTION, float(PACKETS_MIN))

    def collapse(self) -> None:
        """Restart from the minimum window: persistent congestion (RFC 9002 7.6.2)."""
        self.window = float(PACKETS_MIN)

    def idle(self) -> None:
        """Return to the initial window: nothing was sent on the path for longer than a timeout (RFC 5681 4.1)."""
        self.window = min(self.window, float(INITIAL_PACKETS))
