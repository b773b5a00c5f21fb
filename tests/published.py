"""A record of a published event, as tests write it."""

from __future__ import annotations

from typing import Any

import msgspec

from wanderbus.event import Event, EventId
from wanderbus.protocol import encode_event
from wanderbus.records import Acceptance, Delivery, Notified, Published


def published(
    event: Event,
    *,
    number: int,
    at_us: int = 0,
    id: EventId | None = None,
    user: str = "sip:a@b",
    device: str = "d",
    epoch: int = 1,
    notified: tuple[Notified, ...] = (),
    **more: Any,
) -> Published:
    """Return the record of ``event``; without an ``id`` its number is that of the publisher."""
    acceptance = Acceptance(
        id=id or EventId("wb", 1, number),
        event=msgspec.Raw(encode_event(event)),
        user=user,
        device=device,
        epoch=epoch,
        number=number,
        **more,
    )
    return Published(at_us=at_us, acceptance=acceptance, delivery=Delivery(notified=notified))
