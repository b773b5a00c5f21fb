"""Stream of one session, rebuilt from the log: every notification ever made, and the outcome of each match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from wanderbus.event import Event, EventId
from wanderbus.records import Notified, Published
from wanderbus.subscription import Subscription


@dataclass
class Known:
    """A subscription, its state, and the time of its last notification."""

    subscription: Subscription
    live: bool = True
    last_us: int | None = None
    ended_us: int = 0
    reason: str = ""
    forgotten_us: int = 0
    """Time when it was forgotten, with its own bounds; 0 if not yet."""


def name_of(event: Event) -> str:
    """Return the name that identifies an event in its world."""
    return str(event["Uid"])


@dataclass
class NotifiedEvent:
    """An event, or the detection of a pattern, that generates notifications."""

    id: EventId
    name: str
    recorded: int
    """Offset of the record that delivers it."""
    at_us: int
    size: int
    event: Event

    @classmethod
    def of(cls, record: Published, recorded: int) -> NotifiedEvent:
        """Return the event of a record, which the record at offset ``recorded`` delivers."""
        event, acceptance = record.event, record.acceptance
        return cls(acceptance.id, name_of(event), recorded, record.at_us, len(bytes(acceptance.event)), event)


@dataclass
class StreamEntry:
    """A notification: its subscriptions, with the device of those that are bound."""

    number: int
    id: EventId
    recorded: int
    """Offset of the record that made it."""
    at_us: int
    size: int
    stock: str
    price: int
    matches: dict[str, str | None]
    waiting: dict[str, None]
    lost: dict[str, str] = field(default_factory=dict)
    """Reason for which this notification was dropped, by subscription."""

    def subscriptions_on(self, device: str) -> dict[str, None]:
        """Return the subscriptions that this notification is, or was, for on ``device`` (SPEC E-05)."""
        return {s: None for s, bound_to in self.matches.items() if bound_to in (None, device)}


@dataclass
class Stream:
    """A session: its notifications by number, its members with their consumed positions, and counters."""

    user: str
    name: str
    entries: dict[int, StreamEntry] = field(default_factory=dict)
    first: int = 1
    """Lowest number that may wait."""
    next: int = 1
    members: list[str] = field(default_factory=list)
    places: dict[tuple[str, str], int] = field(default_factory=dict)
    """Consumed position, by subscription and member."""
    generated: int = 0
    delivered: int = 0
    restricted: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    at_us: int = 0
    """Time of the current record."""
    settled_us: dict[str, int] = field(default_factory=dict)
    """Time when a match last ceased to wait, by subscription."""
    taken: dict[str, int] = field(default_factory=dict)
    """Highest number that any device has acknowledged, by subscription."""
    exists: bool = False
    """False before the first device, and once the session is over."""

    def begin(self, number: int) -> None:
        """Begin another session of this name, whose first notification has ``number``; it counts from 0 again."""
        self.exists = True
        self.first = self.next = number
        self.members, self.places, self.taken = [], {}, {}
        self.generated = self.delivered = self.restricted = 0
        self.dropped = Counter()

    def add(self, source: NotifiedEvent, notified: Notified) -> None:
        """Append a new notification of an event."""
        matches = dict.fromkeys(notified.subscriptions) | dict(notified.bound)
        stock, price = str(source.event.get("Stock")), int(source.event.get("Price", 0))
        entry = StreamEntry(
            number=notified.number,
            id=source.id,
            recorded=source.recorded,
            at_us=source.at_us,
            size=source.size,
            stock=stock,
            price=price,
            matches=matches,
            waiting=dict.fromkeys(matches),
        )
        self.entries[notified.number] = entry
        self.next = notified.number + 1
        self.generated += len(matches)
        self.trim()

    def queue(self) -> Iterator[StreamEntry]:
        """Yield what waits, oldest first, without notifications that were dropped altogether."""
        for number in range(self.first, self.next):
            if self.entries[number].waiting:
                yield self.entries[number]

    def waiting_for(self, subscription: str) -> list[StreamEntry]:
        """Return what waits for one subscription, oldest first."""
        return [entry for entry in self.queue() if subscription in entry.waiting]

    @property
    def queued(self) -> int:
        """Return how many matches wait."""
        return sum(len(entry.waiting) for entry in self.queue())

    @property
    def queued_bytes(self) -> int:
        """Return the size in bytes of what waits."""
        return sum(entry.size for entry in self.queue())

    def drop(self, entry: StreamEntry, subscription: str, reason: str) -> None:
        """Drop a notification for one subscription."""
        self._settle(entry, subscription)
        entry.lost[subscription] = reason
        self.dropped[reason] += 1

    def _settle(self, entry: StreamEntry, subscription: str) -> None:
        del entry.waiting[subscription]
        self.settled_us[subscription] = self.at_us

    def join(self, device: str) -> None:
        """Add a device as a member; what waits also waits for it, except what another device has acknowledged."""
        if device not in self.members:
            self.members.append(device)
            for subscription, number in self.taken.items():
                self.places[subscription, device] = number
            self.trim()

    def leave(self, device: str) -> None:
        """Remove a device as a member."""
        if device in self.members:
            self.members.remove(device)
            self.places = {key: number for key, number in self.places.items() if key[1] != device}
            self.trim()

    def inherit(self, ended: str, successor: str) -> None:
        """Assign what waits for an ended subscription to another one."""
        for entry in self.queue():
            if ended in entry.waiting:
                del entry.waiting[ended]
                entry.waiting[successor] = None
                entry.matches[successor] = entry.matches.pop(ended)
        if ended in self.taken:
            self.taken[successor] = self.taken.pop(ended)
        for member in self.members:
            if (number := self.places.pop((ended, member), None)) is not None:
                self.places[successor, member] = number

    def trim(self) -> None:
        """Remove what every concerned member has consumed; without members everything stays (SPEC X40)."""
        if not self.members:
            return
        for entry in self.queue():
            for subscription in list(entry.waiting):
                bound_to = entry.matches[subscription]
                concerned = [member for member in self.members if bound_to in (None, member)]
                if not concerned:
                    self.drop(entry, subscription, "device_left")
                elif all(self.places.get((subscription, member), 0) >= entry.number for member in concerned):
                    self._settle(entry, subscription)
                    self.delivered += 1
        while self.first < self.next and not self.entries[self.first].waiting:
            self.first += 1
