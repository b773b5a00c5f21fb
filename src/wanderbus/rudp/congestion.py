"""Congestion control: NewReno, counted in packets (RFC 9002 7)."""

from __future__ import annotations

from typing import Final

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
