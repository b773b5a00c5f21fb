"""Random logs that a broker could have written, with its state as the judge of what may come next."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from tests.published import published
from wanderbus.broker.state.rows import SessionRow
from wanderbus.broker.state.state import BrokerState
from wanderbus.event import Event, EventId
from wanderbus.records import (
    SPARK,
    Acknowledged,
    AnyRecord,
    Attached,
    Changed,
    Delivery,
    DialogStored,
    Drop,
    Dropped,
    Forgotten,
    Left,
    Matched,
    MatchedEvent,
    Notified,
    Published,
    Replayed,
    ReplayedEvent,
    Started,
    StatusChanged,
    Subscribed,
    Unsubscribed,
)
from wanderbus.subscription import Subscription

START_US: Final = 1_700_000_000_000_000
USERS: Final = ("sip:bob@localhost", "sip:eve@localhost")
DEVICES: Final = ("phone", "laptop", "ship")
SESSIONS: Final = ("default", "work")
SUBJECTS: Final = ("Departure", "Arrival")
REASONS: Final = ("queue.notifications_max", "purged")


class RandomLog:
    """Writes random records, each of which is valid after those before; ``state`` is the broker's own."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.state = BrokerState("wb", 100)
        self.records: list[AnyRecord] = []
        self.at_us = START_US
        self.epoch = 0
        self.waiting: list[Published] = []
        self.write(Started(at_us=self.at_us, server="wb", incarnation=7))

    def write(self, record: AnyRecord) -> None:
        self.state.apply(len(self.records), record)
        self.records.append(record)

    def grow(self, count: int) -> RandomLog:
        """Write some more records."""
        steps: Sequence[tuple[int, Callable[[], AnyRecord | None]]] = [
            (30, self._published),
            (6, self._matched),
            (14, self._acknowledged),
            (4, self._dropped),
            (6, self._attached),
            (2, self._left),
            (8, self._status),
            (4, self._moved),
            (8, self._subscribed),
            (2, self._unsubscribed),
            (1, self._changed),
            (1, self._forgotten),
            (2, self._replayed),
            (1, lambda: Started(at_us=self.at_us, server="wb", incarnation=7)),
        ]
        while count:
            self.at_us += self.random.choice((0, 1, 700, 90_000, 4_000_000))
            (step,) = self.random.choices([step for _, step in steps], [weight for weight, _ in steps])
            if (record := step()) is not None:
                self.write(record)
                count -= 1
        return self

    def _session(self) -> tuple[str, str]:
        return self.random.choice(USERS), self.random.choice(SESSIONS)

    def _subscribed(self) -> AnyRecord:
        user, session = self._session()
        number = self.state.next_subscription
        ended = [
            row.subscription
            for row in self.state.tombstones.values()
            if (row.subscription.owner, row.subscription.session) == (user, session)
        ]
        inherits = self.random.choice(ended) if ended and self.random.random() < 0.5 else None
        device = self.random.choice((*DEVICES, None, None, None))
        subscription = Subscription(
            f"s{number}",
            user,
            session,
            self.random.choice((*SUBJECTS, "*")),
            self.random.choice(("", "Delay > 5", "Delay > 20", "Dest == 'IAH'")),
            device=inherits.device if inherits else device,
        )
        own = inherits.id if inherits else None
        history = len(self.records) if self.random.random() < 0.2 else None
        return Subscribed(at_us=self.at_us, subscription=subscription, number=number, inherits=own, history=history)

    def _live(self) -> list[Subscription]:
        return [row.subscription for row in self.state.subscriptions.values()]

    def _unsubscribed(self) -> AnyRecord | None:
        if not (live := self._live()):
            return None
        one = self.random.choice(live)
        return Unsubscribed(at_us=self.at_us, user=one.owner, subscription=one.id, reason="asked")

    def _changed(self) -> AnyRecord | None:
        ended = [row.subscription for row in self.state.tombstones.values()]
        if not (known := self._live() + ended):
            return None
        return Changed(at_us=self.at_us, subscription=self.random.choice(known))

    def _forgotten(self) -> AnyRecord | None:
        if not (ended := [row.subscription.id for row in self.state.tombstones.values()]):
            return None
        return Forgotten(at_us=self.at_us, subscriptions=tuple(self.random.sample(ended, 1)))

    def _published(self) -> AnyRecord:
        subject = self.random.choice(SUBJECTS)
        number = len(self.records)
        published_us = self.at_us - self.random.randrange(5_000) if self.random.random() < 0.8 else None
        is_later = self.random.random() < 0.2
        record = published(
            Event(subject, {"Delay": self.random.randrange(40), "Dest": "IAH"}, published_us=published_us),
            id=EventId("wb", 7, number),
            at_us=self.at_us,
            user="sip:airline@localhost",
            number=number,
        )
        if is_later:
            self.waiting.append(record)
            return Published(at_us=record.at_us, acceptance=record.acceptance, engine=SPARK)
        notified, blocked = self._delivery(subject)
        displaced = {self.random.choice(REASONS): tuple(self._first(each) for each in notified)}
        delivery = Delivery(notified, blocked, (), displaced, self._dropped_by(notified))
        return Published(at_us=record.at_us, acceptance=record.acceptance, delivery=delivery)

    def _matched(self) -> AnyRecord | None:
        """Return the matches of the event that the engine has waited with for longest."""
        if not self.waiting:
            return None
        event = self.waiting.pop(0)
        acceptance = event.acceptance
        notified, blocked = self._delivery(event.event.subject)
        own = MatchedEvent(acceptance.id, event.at_us, acceptance.event, notified, blocked)
        dropped = self._dropped_by(notified)
        return Matched(at_us=self.at_us, next=acceptance.id.number + 1, events=(own,), dropped=dropped)

    def _first(self, notified: Notified) -> int:
        """Return an earlier notification of the only subscription of ``notified``, or 0."""
        is_only = len(notified.subscriptions) == 1 and notified.number > 1
        return self.random.randrange(1, notified.number) if is_only and self.random.random() < 0.3 else 0

    def _dropped_by(self, notified: Sequence[Notified]) -> tuple[Drop, ...]:
        """Return drops for notifications: of earlier ones, of themselves, or of those between."""
        dropped = []
        for each in notified:
            if self.random.random() < 0.3:
                last = self.random.randrange(max(1, each.number - 2), each.number + 1)
                own = tuple(self.random.sample(each.subscriptions, 1))
                first = self.random.randrange(max(1, last - 2), last + 1)
                dropped.append(Drop(each.user, each.session, first, last, self.random.choice(REASONS), own))
        return tuple(dropped)

    def _delivery(self, subject: str) -> tuple[tuple[Notified, ...], tuple[tuple[str, int], ...]]:
        matched = [each for each in self._live() if each.subject in (subject, "*") and self.random.random() < 0.6]
        blocked = [each for each in matched if self.random.random() < 0.1]
        notified = []
        for user in USERS:
            for session in SESSIONS:
                own = [each for each in matched if (each.owner, each.session) == (user, session) if each not in blocked]
                row = self.state.sessions.get(f"{user}/{session}")
                if own:
                    bound = tuple((each.id, each.device) for each in own if each.device is not None)
                    ids = tuple(each.id for each in own)
                    notified.append(Notified(user, session, row.next if row else 1, ids, bound))
        return tuple(notified), tuple((each.id, 0) for each in blocked)

    def _replayed(self) -> AnyRecord | None:
        candidates = [row for row in self.state.subscriptions.values() if row.history]
        if not candidates:
            return None
        one = candidates[0].subscription
        session = self.state.ensure_session(one.owner, one.session)
        event = published(Event("Departure", {"Delay": 1}), number=1).acceptance.event
        identity = EventId("wb", 6, 1)  # of no record of this log, which has its own time
        events = (ReplayedEvent(identity, START_US, event),) * self.random.randrange(3)
        return Replayed(
            at_us=self.at_us,
            user=one.owner,
            session=one.session,
            subscription=one.id,
            first=session.next,
            events=events,
            restricted=1,
        )

    def _acknowledged(self) -> AnyRecord | None:
        sessions = [row for row in self.state.sessions.values() if row.devices and row.next > 1]
        if not sessions:
            return None
        row = self.random.choice(sessions)
        ids = [*row.subscriptions, *row.ended]
        own = tuple(self.random.sample(ids, 1)) if ids and self.random.random() < 0.7 else ()
        return Acknowledged(
            at_us=self.at_us,
            user=row.user,
            session=row.name,
            device=self.random.choice(row.devices),
            number=self.random.randrange(1, row.next),
            subscriptions=own,
            resumed=self.random.random() < 0.1,
        )

    def _dropped(self) -> AnyRecord | None:
        sessions = [row for row in self.state.sessions.values() if row.next > 1]
        if not sessions:
            return None
        row = self.random.choice(sessions)
        first = self.random.randrange(1, row.next)
        ids = [*row.subscriptions, *row.ended]
        own = tuple(self.random.sample(ids, 1)) if ids and self.random.random() < 0.7 else ()
        return Dropped(
            at_us=self.at_us,
            user=row.user,
            session=row.name,
            first=first,
            last=min(row.next - 1, first + self.random.randrange(3)),
            reason=self.random.choice(REASONS),
            subscriptions=own,
        )

    def _attached(self) -> AnyRecord:
        user, session = self._session()
        device = self.random.choice(DEVICES)
        known = self.state.devices.get(f"{user}/{device}")
        if known is None or self.random.random() < 0.6:
            self.epoch += 1
        row = self.state.sessions.get(f"{user}/{session}")
        ids = [*row.subscriptions, *row.ended] if row else []
        marks = [(each, self.random.randrange(1, row.next + 1)) for each in ids if row and self.random.random() < 0.5]
        return Attached(
            at_us=self.at_us,
            user=user,
            session=session,
            device=device,
            epoch=known.epoch if known and self.random.random() < 0.3 else self.epoch,
            redelivered=tuple(marks),
            taken=() if row is None or device in row.devices else self._taken(row),
        )

    def _taken(self, session: SessionRow) -> tuple[tuple[str, int], ...]:
        """Return the subscriptions of which something waits, with what a device has acknowledged."""
        queue = self.state.queue.get(session.key)
        rows = [row for each in (queue.queues if queue else ()) if (row := self.state.known(each)) is not None]
        return tuple((row.subscription.id, row.taken) for row in rows if row.taken and row.subscription.device is None)

    def _left(self) -> AnyRecord | None:
        members = [row for row in self.state.devices.values() if row.session]
        if not members:
            return None
        row = self.random.choice(members)
        return Left(at_us=self.at_us, user=row.user, session=row.session, device=row.device, reason="asked")

    def _status(self) -> AnyRecord | None:
        members = [row for row in self.state.devices.values() if row.session]
        if not members:
            return None
        row = self.random.choice(members)
        status = "CONNECTED" if row.status == "DISCONNECTED" else "DISCONNECTED"
        return StatusChanged(at_us=self.at_us, user=row.user, device=row.device, status=status, reason="timeout")

    def _moved(self) -> AnyRecord | None:
        members = [row for row in self.state.devices.values() if row.session]
        if not members:
            return None
        row = self.random.choice(members)
        address = f"127.0.0.{self.random.randrange(1, 4)}:5000"
        return DialogStored(at_us=self.at_us, user=row.user, device=row.device, address=address, binding=b"")
