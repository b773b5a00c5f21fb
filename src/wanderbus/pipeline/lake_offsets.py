"""Lake offsets: offsets of records in a lake of several logs (decision 0095).

A lake offset is the offset of a record in its log, above the base of that log. The logs of a lake have numbers, and
the base of the first one is 0: in the lake of one log both offsets are the same.
"""

from __future__ import annotations

from typing import Final

NUMBER_SHIFT: Final = 43
"""Bits of a lake offset below the number of its log."""

OFFSETS_A_LOG: Final = 1 << NUMBER_SHIFT
"""Distance between the bases of two logs, and bound of the offsets in one."""

LOGS_MAX: Final = 1 << 10
"""Bound of the logs of a lake: lake offsets stay below 2**53, so JSON and spreadsheets show them exactly."""

LAKE_SHIFT: Final = NUMBER_SHIFT + LOGS_MAX.bit_length() - 1
"""Bits below the number of the lake in an offset of several lakes that are read together (decision 0168)."""

OFFSETS_A_LAKE: Final = 1 << LAKE_SHIFT
"""Distance between the bases of two lakes that are read together, and bound of the lake offsets in one."""


def base_of(number: int) -> int:
    """Return the lake offset of the first record of a log."""
    return number << NUMBER_SHIFT


def base_below(lake_offset: int) -> int:
    """Return the base of the log that has the record at a lake offset."""
    return lake_offset >> NUMBER_SHIFT << NUMBER_SHIFT
