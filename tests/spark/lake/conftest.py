"""A log with every kind of record that the lake decodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.published import published
from wanderbus.event import Event, EventId
from wanderbus.records import (
    Acknowledged,
    Attached,
    Changed,
    Dropped,
    Notified,
    Record,
    Started,
    StatusChanged,
    Subscribed,
    Unsubscribed,
)
from wanderbus.subscription import Frequency, Subscription

START_US = 1_700_000_000_000_000
DAY_US = 86_400_000_000
USER = "sip:bob@localhost"


def subscription(identifier: str, expression: str = "Dest = 'IAH'", **more: object) -> Subscription:
    """Return a subscription to departures."""
    return Subscription(identifier, USER, "default", "Departure", expression, **more)  # type: ignore[arg-type]


def departure(number: int, at_us: int, subject: str = "Departure", **attributes: object) -> Record:
    """Return the record of an event with one notification."""
    return published(
        Event(subject, {"Row": number, "Dest": "IAH", **attributes}, published_us=at_us - 500),
        id=EventId("wb", 7, number),
        at_us=at_us,
        user="sip:airline@localhost",
        number=number,
        notified=(Notified(USER, "default", number, ("s1",)),),
    )


@pytest.fixture(scope="session")
def every_record() -> Callable[[int], list[Record]]:
    """Return a function that makes twelve records, or the first ones of them."""

    def make(count: int = 12) -> list[Record]:
        at_us = [START_US + number * 1_000 for number in range(12)]
        records: list[Record] = [
            Started(at_us=at_us[0], server="wb", incarnation=7),
            Attached(at_us=at_us[1], user=USER, session="default", device="d", epoch=4),
            Subscribed(at_us=at_us[2], subscription=subscription("s1"), number=1),
            departure(3, at_us[3], Delay=2.5),
            departure(4, at_us[4] + DAY_US, Delay=3),
            Changed(at_us=at_us[5], subscription=subscription("s1", restrictions=(Frequency(60.0),))),
            departure(6, at_us[6], subject="Arrival / É 100%", Delay="late"),
            Acknowledged(at_us=at_us[7], user=USER, session="default", device="d", number=4),
            Dropped(at_us=at_us[8], user=USER, session="default", first=5, last=6, reason="full"),
            StatusChanged(at_us=at_us[9], user=USER, device="d", status="DISCONNECTED", reason="timeout", grace_s=30.0),
            Unsubscribed(at_us=at_us[10], user=USER, subscription="s1", reason="asked"),
            Subscribed(at_us=at_us[11], subscription=subscription("s2"), number=2),
        ]
        return records[:count]

    return make
