"""Times of events as Spark's watermark and timers have them: none before 1970, where Spark knows no time.

Spark begins with the watermark 0 and fires no timer below it. So every time is later there by so many years that the
year 1, less the lateness of a pattern, is after 1970.
"""

from __future__ import annotations

from typing import Final

from wanderbus.patterns.state import BEFORE_ALL_US

_SHIFT_US: Final = 1 << 57
"""4,567 years."""


def to_spark_us(time_us: int) -> int:
    """Return a time of an event as Spark has it."""
    return time_us + _SHIFT_US


def to_spark_ms(time_us: int) -> int:
    """Return a time as one of Spark's watermarks and timers, which are whole milliseconds."""
    return to_spark_us(time_us) // 1_000


def from_spark_ms(time_ms: int) -> int:
    """Return a watermark of Spark as a time of events: one before all events if Spark has none yet."""
    return time_ms * 1_000 - _SHIFT_US if time_ms > 0 else BEFORE_ALL_US
