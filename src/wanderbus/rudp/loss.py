"""Duration of persistent losses (RFC 9002 7.6): pure arithmetic on packet numbers and send times."""

from __future__ import annotations

from bisect import bisect_left

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
