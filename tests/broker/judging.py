"""Helper that checks restrictions for a notification without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.restrictions.restriction_check import blocked_by
from wanderbus.event import Event
from wanderbus.subscription import Restriction

MINUTE_US = 60_000_000
EVENT = Event("Trade", {})


def us(text: str, zone: str = "UTC") -> int:
    """The instant of a local date and time, in microseconds since the Unix epoch."""
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1_000_000


def blocked(
    restrictions: Sequence[Restriction],
    now_us: int,
    *,
    received_us: int | None = None,
    last_us: int | None = None,
    away: bool = False,
    kinds: CustomRestrictions | None = None,
) -> int | None:
    """Index of the restriction that blocks; both clocks show the same time unless ``received_us`` is given."""
    return blocked_by(
        restrictions,
        now_us=now_us,
        received_us=now_us if received_us is None else received_us,
        last_us=last_us,
        away=away,
        event=EVENT,
        kinds=kinds or CustomRestrictions(),
    )


def passes(*restrictions: Restriction, now_us: int, last_us: int | None = None, away: bool = False) -> bool:
    return blocked(restrictions, now_us, last_us=last_us, away=away) is None
