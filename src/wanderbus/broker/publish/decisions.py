"""Decisions about a published event: whether it is accepted, and who gets it (DESIGN 5.2)."""

from __future__ import annotations

import msgspec

from wanderbus import records
from wanderbus.broker.interest.filter_accounts import Undecided
from wanderbus.broker.permissions import Permissions
from wanderbus.broker.state.rows import SessionRow
from wanderbus.event import Event, EventId
from wanderbus.records import Acceptance
from wanderbus.subscription import Subscription


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """The notifications of an event: the part of the record, and the session of each notification in order."""

    delivery: records.Delivery
    sessions: list[SessionRow]
    undecided: dict[str, Undecided]
    """Subscriptions whose filters were not evaluated; they get a gap."""
    expired: list[Subscription]
    """Subscriptions that the event matched after their expiry."""
    full: str | None
    """The bound of a full queue whose policy refuses the event; None if the event is delivered."""


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A publish to decide about: the event, and the publisher's own identifier of it."""

    event: Event
    user: str
    device: str
    epoch: int
    number: int
    outbox: bool
    held_up: tuple[int, str] | None = None
    """Number of an event of the outbox that was refused temporarily, and the bound that it met."""
    encoded: bytes | None = None
    """The bytes of the event, if it has been checked and encoded already."""


class Conditions(msgspec.Struct, frozen=True, gc=False):
    """The state of the server that the decision needs."""

    at_us: int
    """The broker's clock."""
    received_us: int
    """The wall clock as read."""
    permissions: Permissions
    is_disk_full: bool = False


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The event is accepted; ``acceptance`` is the part of the record about this."""

    event: Event
    acceptance: Acceptance
    size: int
    """Bytes of the event."""


class Repeated(msgspec.Struct, frozen=True, gc=False):
    """The publisher has used this number, or a higher one; ``id`` is the answer of then, None if it is unknown."""

    id: EventId | None


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """The event is refused because of ``reason``; ``limit`` is the bound that was met."""

    reason: str
    limit: str | None = None
