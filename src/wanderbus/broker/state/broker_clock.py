"""Disciplined clock of the broker: a wall clock that never jumps; subscriptions expire by it (DESIGN 5.8)."""

from __future__ import annotations

from typing import Final

_NS_PER_S: Final = 1_000_000_000
_NS_PER_US: Final = 1_000


class BrokerClock:
    """Follows the wall clock, never backwards, and at a rate within ``slew_max`` of the monotonic clock's.

    If the wall clock drifts or is slewed, as time services do, both show the same time. If it is set, this clock
    catches up slowly: a step of one hour takes 1 h / ``slew_max``, ten hours by default. Meanwhile a lifetime or a
    period, the difference of two readings, has a relative error of at most ``slew_max``; an instant is off by the
    remaining difference. The clock never overshoots.

    At the start it takes the time of the wall clock at once, unless the log is ahead: then it continues from the log,
    slowed down. So a host must have the right time before its broker starts. The monotonic clock stops while a host
    sleeps; this has the same effect as setting the wall clock forward: subscriptions live longer, until a restart.
    """

    def __init__(self, last_us: int, slew_max: float) -> None:
        self._at_ns = last_us * _NS_PER_US
        self._slew_max = slew_max
        self._read_ns: int | None = None

    def read(self, wall_us: int, now: float) -> int:
        """Return the time in microseconds since the Unix epoch, of a wall clock that shows ``wall_us``.

        ``now`` is the monotonic clock in seconds.
        """
        wall_ns, now_ns = wall_us * _NS_PER_US, round(now * _NS_PER_S)
        if self._read_ns is None:
            self._at_ns = max(self._at_ns, wall_ns)
        else:
            passed_ns = max(0, now_ns - self._read_ns)
            slew_ns = int(passed_ns * self._slew_max)
            expected_ns = self._at_ns + passed_ns
            self._at_ns = min(max(wall_ns, expected_ns - slew_ns), expected_ns + slew_ns)
        self._read_ns = now_ns
        return self._at_ns // _NS_PER_US
