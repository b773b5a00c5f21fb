"""The rows of the broker's state: plain structs that the fold changes, and that the store keeps (DESIGN 5.1)."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec

from wanderbus.subscription import Subscription

Status = Literal["CONNECTED", "DISCONNECTED"]


class SessionRow(msgspec.Struct, dict=True):
    """A user's named session: its stream's epoch, the numbers in use, who is a member, and what became of matches.

    A match is one notification for one subscription, which its restrictions have let pass. Of those,
    ``generated = delivered + queued + sum(dropped.values())`` (SPEC G-21, U-02).
    """

    user: str
    name: str
    epoch: int
    """When the stream began, µs since the Unix epoch: a broker that lost everything begins another one."""
    next: int = 1
    """Number of the next notification."""
    waiting: int = 0
    """Notifications that wait for some subscription, gaps not counted."""
    generated: int = 0
    delivered: int = 0
    queued: int = 0
    queued_bytes: int = 0
    """Of the events that wait; each counts once, however many subscriptions it waits for."""
    restricted: int = 0
    """Matches that a restriction forbade; they were never generated."""
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    """By reason."""
    devices: list[str] = msgspec.field(default_factory=list)
    subscriptions: list[str] = msgspec.field(default_factory=list)
    ended: list[str] = msgspec.field(default_factory=list)
    """Subscriptions that can still be renewed: those in the table of tombstones (SPEC X21)."""

    @cached_property
    def key(self) -> str:
        """Return the key of this row."""
        return session_key(self.user, self.name)


class DeviceRow(msgspec.Struct):
    """A device of a user: its session, the life of its agent, and how it can be reached."""

    user: str
    device: str
    session: str
    epoch: int = 0
    redelivered: dict[str, int] | None = None
    """By subscription: notifications up to this number may have been seen by an earlier life of its agent."""
    status: Status = "DISCONNECTED"
    away_since_us: int | None = None
    grace_s: float | None = None
    """How long it may be away this time; None for what the broker's settings say (SPEC G-24)."""
    binding: bytes | None = None
    address: str | None = None
    """Where its data went last, ``host:port``."""


class PublisherRow(msgspec.Struct):
    """What a device, or its outbox, has published in its present epoch: highest number, and the recent offsets."""

    epoch: int
    number: int = 0
    recent: dict[int, int] = msgspec.field(default_factory=dict)


class FormerRow(msgspec.Struct):
    """Devices of a user that were removed and may come back to repeat what they published; the earliest first."""

    devices: list[str] = msgspec.field(default_factory=list)


class ClockRow(msgspec.Struct):
    """The time of the last record, µs since the Unix epoch: the broker's clock goes on from it (DESIGN 5.8)."""

    at_us: int = 0


class SubscriptionRow(msgspec.Struct):
    """A subscription, when it last generated a notification (SPEC H-11), and how far its devices have got.

    One that has ended keeps its row, with when and why, until it is forgotten (SPEC X21).
    """

    subscription: Subscription
    last_us: int | None = None
    cursors: dict[str, int] | None = None
    """By device: its application has taken everything up to this number. None while nothing waits; a member that is
    missing has taken nothing of what does."""
    settled: int = 0
    """Nothing of a number up to this one waits for it any more."""
    ended_us: int = 0
    """0 while it lives; ``reason`` is that of :class:`wanderbus.records.Unsubscribed`."""
    reason: str = ""


class EventRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An event that waits in some queue: the bytes that messages carry, its offset, and when it was published."""

    offset: int
    at_us: int
    data: bytes


def session_key(user: str, name: str) -> str:
    """Return the key of a session; names hold no slash, so the last one parts the two."""
    return f"{user}/{name}"


def device_key(user: str, device: str) -> str:
    """Return the key of a device."""
    return f"{user}/{device}"


def publisher_key(user: str, device: str, *, outbox: bool) -> str:
    """Return the key of what a device has published, or of what came out of its outbox."""
    return f"{user}/{device}/outbox" if outbox else f"{user}/{device}"
