"""Log that grows while a job reads it: events, notifications, subscriptions and sessions, some of them unreadable.

The real writer of the log makes it, with short segments.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

import msgspec

from tests.published import published
from wanderbus.event import DeclaredAttribute, Event, EventId
from wanderbus.pipeline.tables.declared import Declared
from wanderbus.records import (
    Acknowledged,
    Attached,
    Changed,
    Dropped,
    Notified,
    Record,
    SchemaDeclared,
    Started,
    StatusChanged,
    Subscribed,
    Unsubscribed,
    encode_record,
)
from wanderbus.runtime.log.event_log import EventLog
from wanderbus.subscription import Frequency, Subscription

DECLARED: Final[Declared] = {"Departure": {"Row": "Integer", "Dest": "String", "Delay": "Double"}}
"""Attributes with columns, beside those that the log declares. Events have others too, and values of other types."""

SEGMENT_BYTES: Final = 256 * 1024
START_US: Final = 1_700_000_000_000_000
HOUR_US: Final = 3_600_000_000
USERS: Final = tuple(f"sip:user{number}@localhost" for number in range(5))
UNREADABLE: Final = (b"\xc1", msgspec.msgpack.encode({"kind": "invented", "at_us": 1}))


class GrowingLog:
    """The log in ``directory``, written by this process."""

    def __init__(self, directory: Path, random: Random) -> None:
        self._random = random
        self._log = EventLog.open(directory, segment_bytes_max=SEGMENT_BYTES)
        self._live: list[str] = []
        self._at_us = START_US
        gate = (DeclaredAttribute("Gate", "String"),)
        schema = SchemaDeclared(at_us=0, subject="Arrival", version=1, attributes=gate, by="sip:admin@localhost")
        self._append([Started(at_us=0, server="wb", incarnation=7), schema])

    @property
    def records(self) -> int:
        """Number of records so far."""
        return self._log.next_offset

    def grow(self, count: int) -> None:
        """Write ``count`` records, and make them durable."""
        first = self.records
        self._append([self._record(first + number) for number in range(count)])

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def _append(self, records: list[Record | bytes]) -> None:
        entries = []
        for offset, record in enumerate(records, self.records):
            self._at_us += self._random.randrange(HOUR_US // 60)
            payload = record if isinstance(record, bytes) else encode_record(record)
            entries.append((offset, self._at_us, payload))
        self._log.append(entries)
        self._log.sync()

    def _record(self, number: int) -> Record | bytes:
        random, user = self._random, self._random.choice(USERS)
        kind = random.random()
        if kind < 0.6:
            return self._event(number, user)
        if kind < 0.75:
            return Acknowledged(at_us=0, user=user, session="default", device="d", number=number)
        if kind < 0.8:
            return Dropped(at_us=0, user=user, session="default", first=number, last=number + 2, reason="full")
        if kind < 0.85:
            return Attached(at_us=0, user=user, session="default", device="d", epoch=number)
        if kind < 0.9:
            status = random.choice(("CONNECTED", "DISCONNECTED"))
            return StatusChanged(at_us=0, user=user, device="d", status=status, reason="timeout", grace_s=30.0)
        return self._change(number, user) if kind < 0.99 else random.choice(UNREADABLE)

    def _event(self, number: int, user: str) -> Record:
        random = self._random
        subject = random.choice(("Departure", "Departure", "Arrival", "" if number % 7 == 0 else "Arrival"))
        delay = random.choice((None, 2.5, random.randrange(200), "late", float("inf")))
        values = {"Row": number, "Dest": "IAH", "Gate": random.choice(("A1", 7)), "Note": f"n{number}", "Delay": delay}
        notified = tuple(
            Notified(each, "default", number, ("s1",)) for each in random.sample(USERS, random.randrange(3))
        )
        event = Event(
            subject, {name: value for name, value in values.items() if value is not None}, published_us=START_US
        )
        return published(event, id=EventId("wb", 7, number), user=user, number=number, notified=notified)

    def _change(self, number: int, user: str) -> Record:
        """Return a subscription, or the change or end of one that is live."""
        how = self._random.randrange(3) if self._live else 0
        if how == 0:
            self._live.append(f"s{number}")
            return Subscribed(at_us=0, subscription=_subscription(f"s{number}", user), number=number)
        name = self._random.choice(self._live)
        if how == 1:
            return Changed(at_us=0, subscription=_subscription(name, user, Frequency(float(number))))
        self._live.remove(name)
        return Unsubscribed(at_us=0, user=user, subscription=name, reason="asked")


def _subscription(name: str, owner: str, *restrictions: Frequency) -> Subscription:
    return Subscription(name, owner, "default", "Departure", "Delay > 30", restrictions=restrictions)
