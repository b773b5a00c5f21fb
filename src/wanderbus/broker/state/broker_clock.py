"""The broker's own clock: a wall clock that is never set, by which subscriptions expire (DESIGN 5.8)."""

from __future__ import annotations

from typing import Final

_NS_PER_S: Final = 1_000_000_000
_NS_PER_US: Final = 1_000


class DisciplinedClock:
    """Follows the wall clock, never backwards, and at a rate within ``slew_max`` of the monotonic clock's.

    With a wall clock that drifts or is slewed, as time services do, both show the same. One that is set is caught up
    with: an hour takes 1 h / ``slew_max``, ten hours by default. Meanwhile a lifetime or a period, which is a
    difference of two readings, is right to within ``slew_max`` of itself; an instant is off by what is not caught up
    with yet. There is no overshooting, as the clock stops at what it follows.

    A start takes up the wall clock at once, unless the log is ahead of it: then the clock goes on from the log, slowed
    down. So a host must have the right time before its broker starts. The monotonic clock stands still while a host
    sleeps, which is therefore as if the wall clock had been set forward: subscriptions live on for longer, and a
    restart ends that.
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
