"""Wall clock that is sometimes set, and a check of the broker's own clock (DESIGN 5.8)."""

from __future__ import annotations

from typing import Final

from wanderbus.simulation.world import World

_ROUNDING_US: Final = 5
"""Resolution of both clocks: a whole microsecond."""


class WallClock:
    """The wall clock of one host: it shows ``start_us`` at second 0 of the world, and may be set."""

    def __init__(self, world: World, start_us: int) -> None:
        self.jumps = 0
        self._world = world
        self._ahead_us = start_us

    def read(self) -> int:
        """Return the time that the clock shows, µs since the Unix epoch."""
        return self._ahead_us + round(self._world.now * 1e6)

    def jump(self, seconds: float) -> None:
        """Set the clock forward or back."""
        self.jumps += 1
        self._ahead_us += round(seconds * 1e6)
        self._world.note("clock", f"is set by {seconds:+.3f} s")


class ClockWatch:
    """Watches one broker's clock: never backwards, never too fast or slow, always towards the wall clock."""

    def __init__(self, slew_max: float) -> None:
        self.problems: list[str] = []
        self._slew_max = slew_max
        self._read: tuple[float, int] | None = None
        self._ahead_of_log_us = 0

    def booted(self, last_us: int) -> None:
        """Handle the start of a broker from a log whose last record is of ``last_us``."""
        self._read, self._ahead_of_log_us = None, last_us

    def observe(self, now: float, wall_us: int, shown_us: int) -> None:
        """Check that the broker's clock may show ``shown_us`` when the wall clock shows ``wall_us``."""
        if self._read is None:
            expected_us = max(wall_us, self._ahead_of_log_us)
        else:
            then, was_us = self._read
            passed_us = (now - then) * 1e6
            if shown_us < was_us:
                self.problems.append(f"the broker's clock went back by {was_us - shown_us} µs at {now:.6f} s")
            behind_us = wall_us - (was_us + passed_us)
            step_us = min(abs(behind_us), passed_us * self._slew_max)
            expected_us = round(was_us + passed_us + (step_us if behind_us > 0 else -step_us))
        if abs(shown_us - expected_us) > _ROUNDING_US:
            self.problems.append(
                f"the broker's clock is {shown_us - expected_us} µs off what it should show at {now:.6f} s"
            )
        self._read = now, shown_us
