"""Log that grows while a job reads it: events, notifications, subscriptions and sessions, some of them unreadable.

The real writer of the log makes it, with short segments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from tests.published import published
from wanderbus.event import DeclaredAttribute, Event, EventId
from wanderbus.pipeline.tables.declared import Declared
from wanderbus.records import (
    SPARK,
    Acknowledged,
    Arrival,
    Arrived,
    Attached,
    Changed,
    Delivery,
    Dropped,
    Matched,
    MatchedEvent,
    Notified,
    Published,
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
ARRIVING_SHARE: Final = 0.4
"""Share of the records that are arrivals, or their matches, while such wait."""
ENGINE_SHARE: Final = 0.4
"""Share of the arrivals that the matching engine matches."""
UNREADABLE: Final = (b"\xc1", msgspec.msgpack.encode({"kind": "invented", "at_us": 1}))


class GrowingLog:
    """The log in ``directory``, written by this process."""

    def __init__(self, directory: Path, random: Random, server: str = "wb", incarnation: int = 7) -> None:
        self.server = server
        self.identity = f"{server}-{incarnation}"
        self.accepted: list[EventId] = []
        """Events with a row in the lake, which leaves out those without a subject."""
        self.arrivals: list[tuple[int, str, EventId]] = []
        """Notifications of events of other servers: the offset of the record, the user, and the event."""
        self.on_event: Callable[[GrowingLog, Published], None] = lambda log, record: None
        """Called with each accepted event that has a subject."""
        self._incarnation = incarnation
        self._coming: deque[Arrival] = deque()
        self._unmatched: deque[MatchedEvent] = deque()
        self._received: dict[str, int] = {}
        """Number of the last event of each server."""
        self._random = random
        self._log = EventLog.open(directory, segment_bytes_max=SEGMENT_BYTES)
        self._live: list[str] = []
        self._at_us = START_US
        gate = (DeclaredAttribute("Gate", "String"),)
        schema = SchemaDeclared(at_us=0, subject="Arrival", version=1, attributes=gate, by="sip:admin@localhost")
        self._append([Started(at_us=0, server=server, incarnation=incarnation), schema])

    @property
    def records(self) -> int:
        """Number of records so far."""
        return self._log.next_offset

    def grow(self, count: int) -> None:
        """Write ``count`` records, and make them durable."""
        first = self.records
        self._append([self._record(first + number) for number in range(count)])

    def receive(self, server: str, record: Published) -> None:
        """Let an event of another server arrive with one of the next records."""
        accepted, number = record.acceptance, self._received.get(server, 0) + 1
        self._received[server] = number
        self._coming.append(Arrival(server, 1, number, number - 1, accepted.id, START_US, accepted.event))

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
        if (self._coming or self._unmatched) and random.random() < ARRIVING_SHARE:
            return self._arrival(number)
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
        notified = self._notified(number)
        event = Event(
            subject, {name: value for name, value in values.items() if value is not None}, published_us=START_US
        )
        identity = EventId(self.server, self._incarnation, number)
        record = published(event, id=identity, user=user, number=number, notified=notified)
        if subject:
            self.accepted.append(identity)
            self.on_event(self, record)
        return record

    def _notified(self, number: int) -> tuple[Notified, ...]:
        users = self._random.sample(USERS, self._random.randrange(3))
        return tuple(Notified(each, "default", number, ("s1",)) for each in users)

    def _arrival(self, number: int) -> Record:
        """Return the arrival of an event of another server, or what the matching engine has found for earlier ones."""
        if self._unmatched and (not self._coming or self._random.random() < ARRIVING_SHARE):
            events = tuple(self._unmatched)
            self._unmatched.clear()
            self.arrivals += [(number, one.user, each.id) for each in events for one in each.notified]
            return Matched(at_us=0, next=number, events=events)
        arrival, notified = self._coming.popleft(), self._notified(number)
        if self._random.random() < ENGINE_SHARE:
            self._unmatched.append(MatchedEvent(arrival.id, START_US, arrival.event, notified, (), number))
            return Arrived(at_us=0, arrival=arrival, engine=SPARK)
        self.arrivals += [(number, each.user, arrival.id) for each in notified]
        return Arrived(at_us=0, arrival=arrival, delivery=Delivery(notified))

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
