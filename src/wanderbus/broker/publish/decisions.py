"""Decisions about a published event: whether it is accepted, and who gets it (DESIGN 5.2)."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from wanderbus import records
from wanderbus.broker.interest.filter_accounts import Undecided
from wanderbus.broker.permissions import Permissions
from wanderbus.broker.state.rows import SessionRow
from wanderbus.event import Event, EventId
from wanderbus.limits import EVENT_BYTES_MAX
from wanderbus.subscription import Subscription


class Conditions(msgspec.Struct):
    """The state of the server that the acceptance of every event needs; it is the same for all events of a step."""

    permissions: Permissions
    at_us: int
    """The broker's clock."""
    received_us: int = 0
    """The last reading of the wall clock (DESIGN 5.8)."""
    event_bytes_max: int = EVENT_BYTES_MAX
    is_disk_full: bool = False
    """True if every event is refused because the log has no room."""


class Source(msgspec.Struct, frozen=True, gc=False):
    """Identifier of a published event by its publisher (DESIGN 5.2), and how the server has got it."""

    user: str
    device: str
    epoch: int
    number: int
    is_outbox: bool
    key: str
    """Key of the publisher's row."""
    request: int
    """Number under which the sender of the message knows the event."""
    received_us: int
    """The wall clock as read when it was received (DESIGN 5.8)."""
    is_forwarded: bool = False
    """True if another server sent it, which may repeat an event after the publisher has begun another epoch."""
    is_foreign: bool = False
    """True if a foreign domain has accepted it from its own publisher, and a gateway publishes it here."""


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """The event is refused because of ``reason``; ``limit`` is the bound that was met."""

    reason: str
    limit: str | None = None


class Offered(msgspec.Struct, frozen=True, gc=False):
    """An event that was published: decoded and encoded once, whichever way it goes from here."""

    event: Event
    encoded: bytes
    """Its bytes; empty if it cannot be encoded."""
    rejected: Rejected | None = None
    """Refusal of an event that nobody may publish; None for a valid one."""


class Repeated(msgspec.Struct, frozen=True, gc=False):
    """The publisher has used this number, or a higher one; ``id`` is the answer of then, None if it is unknown."""

    id: EventId | None


class ArrivedAs(NamedTuple):
    """Id of an event that another server has accepted, and the model of its channel."""

    id: EventId
    is_decentralised: bool


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """The notifications of an event: the part of the record, and each notification with its session, in order."""

    delivery: records.Delivery
    notified: list[tuple[SessionRow, records.Notified]]
    undecided: dict[str, Undecided]
    """Subscriptions whose filters were not evaluated; they get a gap."""
    expired: list[Subscription]
    """Subscriptions that the event matched after their expiry."""
    behind: list[str]
    """Matching subscriptions that have not caught up with the log, which they read."""
    full: str | None
    """The bound of a full queue whose policy refuses the event; None if the event is delivered."""

    @property
    def is_matched(self) -> bool:
        """Return whether a subscription matches the event, whatever restrictions say."""
        delivery = self.delivery
        return bool(delivery.notified or delivery.restricted or delivery.steps or self.behind or self.expired)
