"""Base of all records of the event log; see :mod:`wanderbus.records`."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True, omit_defaults=True):
    """Base of all records; ``at_us`` is the broker's clock when it wrote the record."""

    at_us: int
