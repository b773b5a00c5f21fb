"""One session's stream as the log tells it: every notification there ever was, and what became of each match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from wanderbus.event import Event
from wanderbus.protocol import encode_event
from wanderbus.records import Notified, Published
from wanderbus.subscription import Subscription


@dataclass
class Known:
    """A subscription, how it fares, and when it last generated a notification."""

    subscription: Subscription
    live: bool = True
    last_us: int | None = None
    ended_us: int = 0
    reason: str = ""
    forgotten_us: int = 0
    """When it was forgotten, and its own bounds with it; 0 for not yet."""


def name_of(event: Event) -> str:
    """Return the name by which an event is told from all others of its world."""
    return str(event["Uid"])


@dataclass
class Entry:
    """A notification: the subscriptions that it was for, with the device of those that are bound."""

    number: int
    offset: int
    at_us: int
    size: int
    stock: str
    price: int
    matches: dict[str, str | None]
    waiting: dict[str, None]
    lost: dict[str, str] = field(default_factory=dict)
    """Subscription to the reason for which this notification was dropped for it."""

    def concerns(self, device: str) -> dict[str, None]:
        """Return the subscriptions that this notification is, or was, for on ``device`` (SPEC E-05)."""
        return {s: None for s, bound_to in self.matches.items() if bound_to in (None, device)}


@dataclass
class Stream:
    """A session: its notifications by number, its members with how far each has taken what, and counters."""

    user: str
    name: str
    entries: dict[int, Entry] = field(default_factory=dict)
    first: int = 1
    """Nothing of a lower number waits."""
    next: int = 1
    members: list[str] = field(default_factory=list)
    places: dict[tuple[str, str], int] = field(default_factory=dict)
    """Of a subscription and a member: up to where it has taken."""
    generated: int = 0
    delivered: int = 0
    restricted: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    at_us: int = 0
    """Time of the record that is taken now."""
    settled_us: dict[str, int] = field(default_factory=dict)
    """Of a subscription: when a match of it ceased to wait the last time."""

    def add(self, offset: int, record: Published, notified: Notified) -> None:
        """Put a new notification at the end."""
        matches = dict.fromkeys(notified.subscriptions) | dict(notified.bound)
        size = len(encode_event(record.event))
        stock, price = str(record.event.get("Stock")), int(record.event.get("Price", 0))
        entry = Entry(notified.number, offset, record.at_us, size, stock, price, matches, dict.fromkeys(matches))
        self.entries[notified.number] = entry
        self.next = notified.number + 1
        self.generated += len(matches)
        self.trim()

    def queue(self) -> Iterator[Entry]:
        """Yield what waits, oldest first; what was dropped altogether does not."""
        for number in range(self.first, self.next):
            if self.entries[number].waiting:
                yield self.entries[number]

    def waiting_for(self, subscription: str) -> list[Entry]:
        """Return what waits for one subscription, oldest first."""
        return [entry for entry in self.queue() if subscription in entry.waiting]

    @property
    def queued(self) -> int:
        """Return how many matches wait."""
        return sum(len(entry.waiting) for entry in self.queue())

    @property
    def queued_bytes(self) -> int:
        """Return the bytes of what waits."""
        return sum(entry.size for entry in self.queue())

    def drop(self, entry: Entry, subscription: str, reason: str) -> None:
        """A notification is lost to one subscription."""
        self._settle(entry, subscription)
        entry.lost[subscription] = reason
        self.dropped[reason] += 1

    def _settle(self, entry: Entry, subscription: str) -> None:
        del entry.waiting[subscription]
        self.settled_us[subscription] = self.at_us

    def join(self, device: str) -> None:
        """A device is a member from now on; everything that waits waits for it too."""
        if device not in self.members:
            self.members.append(device)
            self.trim()

    def leave(self, device: str) -> None:
        """A device is no member any more."""
        if device in self.members:
            self.members.remove(device)
            self.places = {key: number for key, number in self.places.items() if key[1] != device}
            self.trim()

    def inherit(self, ended: str, heir: str) -> None:
        """What waits for a subscription that has ended waits for another one from now on."""
        for entry in self.queue():
            if ended in entry.waiting:
                del entry.waiting[ended]
                entry.waiting[heir] = None
                entry.matches[heir] = entry.matches.pop(ended)
        for member in self.members:
            if (number := self.places.pop((ended, member), None)) is not None:
                self.places[heir, member] = number

    def trim(self) -> None:
        """What every member that it is for has taken is done with; without members all stays (SPEC X40)."""
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
