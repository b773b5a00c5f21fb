"""State of the truth about a log, which its parts share: streams, subscriptions, devices, and what each is owed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.weeks.server import OfferedEvent
from wanderbus.simulation.weeks.stream import Known, Stream


@dataclass
class Member:
    """A device: its session, and the time since which it has been away."""

    session: str = ""
    away_since_us: int | None = 0
    grace_s: float | None = None
    """Longest absence this time, if the operator's hook set one (SPEC G-24)."""
    discards: bool = False
    """True if it began again, and may give up what waits for it (SPEC G-09, X20)."""


@dataclass
class EndedSessions:
    """Counters of a user's sessions that are over."""

    next: int = 1
    generated: int = 0
    delivered: int = 0
    restricted: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, stream: Stream) -> None:
        """Add those of a session."""
        self.next = max(self.next, stream.next)
        self.generated += stream.generated
        self.delivered += stream.delivered
        self.restricted += stream.restricted
        self.dropped += stream.dropped


@dataclass
class Happened:
    """Facts that are not in the log, but known to the world."""

    walls_us: Mapping[int, int]
    """Wall clock at each decision of the broker, by offset of its record."""
    discarding: Collection[tuple[str, str, int]]
    """User, device and epoch of lives that requested to keep nothing."""
    taken: Mapping[tuple[str, str, str], int]
    """Highest number that the application consumed, by user, device and subscription."""
    left: Collection[tuple[str, str]]
    """Users' devices that announced not to return."""
    purgers: Collection[str]
    """Users who requested to drop what waits for them."""
    kickers: Collection[str]
    """Users who requested to end connections of theirs."""
    unsubscribed: Collection[str]
    """Subscriptions that somebody requested to end."""
    refused: Sequence[tuple[OfferedEvent, str]]
    """Refused events, and the bound that each exceeded."""


@dataclass
class Account:
    """State of a fold over the log at one of its records, independent of the broker's own."""

    config: BrokerConfig
    happened: Happened
    streams: dict[tuple[str, str], Stream] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    devices: dict[tuple[str, str], Member] = field(default_factory=dict)
    successors: dict[str, str] = field(default_factory=dict)
    """Heir of each ended subscription, which inherited what waited for it."""
    joined: set[tuple[str, str, int]] = field(default_factory=set)
    """User, device and epoch of lives in which a device became a member."""
    begun: dict[tuple[str, str, int], dict[str, int]] = field(default_factory=dict)
    """Numbers that other devices had acknowledged by then, by subscription."""
    owed: dict[tuple[str, str], set[tuple[str, int]]] = field(default_factory=dict)
    """For every device, the matches, by subscription and number, that it is to receive or has received."""
    given_up: set[tuple[str, str, str, int]] = field(default_factory=set)
    """User, device, subscription and number of matches that the device gave up before the engine had matched them."""
    past: dict[str, EndedSessions] = field(default_factory=dict)
    """Counters of the sessions that are over, by user."""
    gone: set[tuple[str, str]] = field(default_factory=set)
    """Devices that left on request and have not returned."""
    at_us: int = 0
    problems: list[str] = field(default_factory=list)

    def stream(self, user: str, session: str) -> Stream:
        """Return a session, created on first use."""
        return self.streams.setdefault((user, session), Stream(user, session))

    def is_overdue(self, member: Member, at_us: int) -> bool:
        """Return whether a device is away for longer than it may be."""
        if member.away_since_us is None:
            return False
        grace_s = self.config.device_grace_s if member.grace_s is None else member.grace_s
        return (at_us - member.away_since_us) / 1e6 >= grace_s

    def holds_something(self, stream: Stream) -> bool:
        """Return whether a session has a live subscription, or a notification that waits."""
        of_session = (k for k in self.of_owner(stream.user) if k.subscription.session == stream.name)
        return any(known.live for known in of_session) or any(True for _ in stream.queue())

    def is_away(self, user: str) -> bool:
        """Return whether no device of ``user`` is reachable (SPEC E-06)."""
        return all(member.away_since_us is not None for (of, _), member in self.devices.items() if of == user)

    def of_owner(self, owner: str) -> list[Known]:
        """Return the known subscriptions of a user, including ended ones."""
        return [known for known in self.known.values() if known.subscription.owner == owner]

    def present(self, subscription: str) -> str:
        """Return the subscription that now has what waited for this one."""
        while subscription in self.successors:
            subscription = self.successors[subscription]
        return subscription

    def has_taken(self, user: str, device: str, subscription: str) -> int:
        """Return the position that a device's application has consumed of a subscription, under any of its names."""
        present = self.present(subscription)
        taken = [
            number
            for (owner, name, identity), number in self.happened.taken.items()
            if (owner, name) == (user, device) and self.present(identity) == present
        ]
        return max(taken, default=0)

    def wrong(self, offset: int, what: str) -> None:
        """Note that the record at ``offset`` is wrong."""
        self.problems.append(f"record {offset}: {what}")
