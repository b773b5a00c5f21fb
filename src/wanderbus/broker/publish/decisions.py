"""Decisions about a published event: whether it is accepted, and who gets it (DESIGN 5.2)."""

from __future__ import annotations

from typing import NamedTuple

from wanderbus import records
from wanderbus.broker.interest.filter_accounts import Undecided
from wanderbus.broker.permissions import Permissions
from wanderbus.broker.state.rows import SessionRow
from wanderbus.event import Event, EventId
from wanderbus.records import Acceptance
from wanderbus.subscription import Subscription


class Delivered(NamedTuple):
    """The notifications of an event: the part of the record, and the session of each notification in order."""

    delivery: records.Delivery
    sessions: list[SessionRow]
    undecided: dict[str, Undecided]
    """Subscriptions whose filters were not evaluated; they get a gap."""
    expired: list[Subscription]
    """Subscriptions that the event matched after their expiry."""
    full: str | None
    """The bound of a full queue whose policy refuses the event; None if the event is delivered."""


class Candidate(NamedTuple):
    """A publish to decide about: the event, and the publisher's own identifier of it."""

    event: Event
    user: str
    device: str
    epoch: int
    number: int
    outbox: bool
    encoded: bytes | None = None
    """The bytes of the event, if it has been checked and encoded already."""


class Conditions(NamedTuple):
    """The state of the server that the decision needs."""

    id: EventId
    """The id that the event gets if it is accepted, and its record is the next one."""
    at_us: int
    """The broker's clock."""
    received_us: int
    """The wall clock as read."""
    permissions: Permissions
    is_disk_full: bool = False
    held_up: tuple[int, str] | None = None
    """Number of an event of the outbox that was refused temporarily, and the bound that it met."""


class Accepted(NamedTuple):
    """The event is accepted; ``acceptance`` is the part of the record about this."""

    event: Event
    acceptance: Acceptance

    @property
    def size(self) -> int:
        """Return the bytes of the event."""
        return len(memoryview(self.acceptance.event))


class Repeated(NamedTuple):
    """The publisher has used this number, or a higher one; ``id`` is the answer of then, None if it is unknown."""

    id: EventId | None


class Rejected(NamedTuple):
    """The event is refused because of ``reason``; ``limit`` is the bound that was met."""

    reason: str
    limit: str | None = None
