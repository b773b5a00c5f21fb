"""How much may be on the way at once: NewReno, counted in packets (RFC 9002 7)."""

from __future__ import annotations

from typing import Final

INITIAL_PACKETS: Final = 10
"""RFC 9002 7.2."""

PACKETS_MIN: Final = 2
"""RFC 9002 7.2."""

_LOSS_REDUCTION: Final = 0.5
"""kLossReductionFactor of RFC 9002 B.1."""


class Congestion:
    """The congestion window of one path; made anew when the path changes (RFC 9000 9.4).

    Bursts are bounded by the window. It grows only when it is what holds packets back, and falls back to the initial
    one when nothing was sent for a while (RFC 9002 7.8, RFC 5681 4.1).
    """

    __slots__ = ("_most", "_recovery_end", "_threshold", "limiting", "window")

    def __init__(self, packets_max: int, first_number: int = 0) -> None:
        """Begin with packet ``first_number``; earlier ones were on another path and say nothing of this one."""
        self._most = float(packets_max)
        self._threshold = self._most
        self._recovery_end = first_number
        self.window = min(float(INITIAL_PACKETS), self._most)
        """Packets that may be in flight."""
        self.limiting = False
        """Whether something waits for the window alone."""

    def confirmed(self, numbers: list[int]) -> None:
        """Grow for packets that the peer has; those sent before the recovery ended do not count (RFC 9002 7.3.2)."""
        if not self.limiting or self.window >= self._most:
            return
        window, threshold, recovery_end = self.window, self._threshold, self._recovery_end
        for number in numbers:
            if number >= recovery_end:
                window += 1.0 if window < threshold else 1.0 / window
        self.window = min(window, self._most)

    def lost(self, number: int, next_number: int) -> None:
        """Halve for the loss of packet ``number``, unless done since that was sent (RFC 9002 7.3.2).

        ``next_number`` is that of the next packet: the recovery lasts until one sent from now on is confirmed.
        """
        if number >= self._recovery_end:
            self._recovery_end = next_number
            self.window = self._threshold = max(self.window * _LOSS_REDUCTION, float(PACKETS_MIN))

    def collapse(self) -> None:
        """Begin again from the least window: persistent congestion (RFC 9002 7.6.2)."""
        self.window = float(PACKETS_MIN)

    def idle(self) -> None:
        """Forget what the path could carry: nothing was sent on it for longer than a timeout (RFC 5681 4.1)."""
        self.window = min(self.window, float(INITIAL_PACKETS))
