"""Events of a foreign domain on their way, and what follows from a message about them."""

from __future__ import annotations

import msgspec

from wanderbus import protocol
from wanderbus.broker.messages import LinkClosed, LinkOpened, MessageArrived
from wanderbus.channels.causal.domain_past import Cause
from wanderbus.event import EventId
from wanderbus.federation.wire import EventsLost, EventsTaken


class WaitingEvent(msgspec.Struct):
    """An event, or a loss, that the foreign domain gets acknowledged in its turn."""

    server: str
    epoch: int
    number: int
    is_done: bool = False
    publish: protocol.PublishFor | None = None
    is_published: bool = False
    """True while it waits for the answer of the broker."""
    id: EventId | None = None
    """Its id in its own domain, at ``DOMAIN/SERVER``; None for a loss."""
    causes: tuple[Cause, ...] = ()
    """Events that have to come before it."""
    held_until: float | None = None
    """Time up to which it waits for them; None if it does not wait."""
    is_counted: bool = False
    """True if the other domain was allowed to send another event in its place already."""

    @property
    def device(self) -> str:
        """Return the device that publishes the event here, "" for a loss."""
        return "" if self.publish is None else self.publish.device


class Imported(msgspec.Struct):
    """Work that follows from a call."""

    for_broker: list[LinkOpened | LinkClosed | MessageArrived] = msgspec.field(default_factory=list)
    taken: list[EventsTaken] = msgspec.field(default_factory=list)
    done: int = 0
    """Messages of the foreign domain that are finished: it may send as many again."""
    lost: EventsLost | None = None
    """Report about events that are lost."""
    report_at: float | None = None
    """Time at which :meth:`Imports.losses_due` is due, if that has to be set."""
    examine_at: float | None = None
    """Time at which :meth:`Imports.examine` is due, if that has to be set."""
    retry_at: float | None = None
    """Time at which :meth:`Imports.retry` is due, if that has to be set."""
