"""Places in a source as Spark's checkpoints store them (decision 0107)."""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.segments import LogPlace

REMEDY: Final = "begin with a new checkpoint"
"""The way out for a query whose checkpoint belongs to another log."""

Offset = dict[str, int]


def stored(place: LogPlace) -> Offset:
    """Return a place as a checkpoint stores it: without a checksum if that is unknown."""
    return {"offset": place.offset} if place.checksum is None else msgspec.structs.asdict(place)
