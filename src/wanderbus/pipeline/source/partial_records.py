"""Partial records of events: the fields that one reader needs, at a fraction of the cost of the whole (SPEC T-01).

An event stays encoded within a record, so a reader chooses its part of it: ``EventRecord[Subject]``. Whoever needs most
fields decodes the record itself (:mod:`wanderbus.records`).
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from wanderbus.event import EventId

OfEvent = TypeVar("OfEvent")


class Subject(msgspec.Struct, gc=False):
    """The subject of an event."""

    subject: str


class Content(msgspec.Struct, gc=False):
    """An event without its subject, which is a column already."""

    attributes: dict[str, Any]
    published_us: int | None = None


class Receipt(msgspec.Struct, Generic[OfEvent], gc=False):
    """The acceptance of an event, or its arrival from another server."""

    event: OfEvent
    received_us: int | None = None


class EventRecord(msgspec.Struct, Generic[OfEvent], gc=False):
    """A record with one event, which this server has accepted or which arrived there; other kinds have no receipt."""

    at_us: int
    acceptance: Receipt[OfEvent] | None = None
    arrival: Receipt[OfEvent] | None = None
    engine: str = ""

    @property
    def receipt(self) -> Receipt[OfEvent]:
        """Return how the event was received; ``msgspec.DecodeError`` if the record has none."""
        found = self.acceptance or self.arrival
        if found is None:
            raise msgspec.ValidationError("the record has no event")
        return found

    @property
    def received_us(self) -> int:
        """Return the wall clock as read when the event was received."""
        received_us = (self.acceptance or self.receipt).received_us
        return self.at_us if received_us is None else received_us


class _Published(msgspec.Struct, gc=False):
    published_us: int | None = None


class _Named(msgspec.Struct, gc=False):
    id: EventId
    event: _Published


class NamedRecord(msgspec.Struct, gc=False):
    """A record of an accepted event, with the id and the publication time of that event."""

    acceptance: _Named


class _Counted(msgspec.Struct, frozen=True, gc=False):
    notified: tuple[msgspec.Raw, ...] = ()
    restricted: tuple[tuple[str, int], ...] = ()


class DeliveryRecord(msgspec.Struct, gc=False):
    """A record of an event with its delivery, whose notifications stay encoded."""

    delivery: _Counted = _Counted()
