"""What a loss says of the path (RFC 9002 7.6): pure arithmetic on packet numbers and times of sending."""

from __future__ import annotations

from bisect import bisect_left

SentPacket = tuple[int, float]
"""A packet number, and when it was sent."""


def longest_blackout_s(lost: list[SentPacket], confirmed: list[int], measured_at: float) -> float:
    """Return the longest time over which everything sent was lost, seconds.

    ``lost`` and ``confirmed`` rise in packet numbers. A confirmed packet between two lost ones ends a blackout. Those
    sent before ``measured_at``, the first sample of the round trip, do not count (RFC 9002 7.6.2).
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
