"""Rows of events, with declared attributes in columns of their types, and of the notifications that they generated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from wanderbus.event import EventId
from wanderbus.pipeline.lake.records import MISFITS, Columns, Decode, Payloads
from wanderbus.pipeline.source.variants import variant_of
from wanderbus.pipeline.tables.declared import TYPE_NAMES, Declared, columns_of
from wanderbus.pipeline.tables.specification import Table, Type
from wanderbus.records import Notified
from wanderbus.subject_schemas import typed

EVENT_KINDS: Final = ("published",)

NOTIFICATION_KINDS: Final = ("replayed", *EVENT_KINDS)
"""Kinds of record that generate notifications; a replayed record does so for events of the past."""

_FITTING: Final[Mapping[Type, frozenset[type]]] = {
    "string": frozenset({str, type(None)}),
    "bigint": frozenset({int, type(None)}),
    "double": frozenset({float, type(None)}),
    "boolean": frozenset({bool, type(None)}),
    "timestamp": frozenset({datetime, type(None)}),
}


class _Event(msgspec.Struct, gc=False):
    subject: str
    attributes: dict[str, Any]
    published_us: int | None = None


class _Acceptance(msgspec.Struct, gc=False):
    id: EventId
    event: _Event
    user: str
    device: str
    epoch: int
    number: int
    received_us: int | None = None


class _Published(msgspec.Struct, gc=False):
    acceptance: _Acceptance


class _Subject(msgspec.Struct, gc=False):
    subject: str


class _AcceptedSubject(msgspec.Struct, gc=False):
    event: _Subject


class _Delivery(msgspec.Struct, frozen=True, gc=False):
    notified: tuple[Notified, ...] = ()


class _Notifying(msgspec.Struct, gc=False, tag_field="kind", tag="published"):
    acceptance: _AcceptedSubject
    delivery: _Delivery = _Delivery()

    def notifications(self) -> Iterator[tuple[str, Notified]]:
        """Yield each notification with the subject of its event."""
        return ((self.acceptance.event.subject, each) for each in self.delivery.notified)


class _ReplayedEvent(msgspec.Struct, array_like=True, gc=False):
    id: EventId
    at_us: int
    event: _Subject


class _Replayed(msgspec.Struct, gc=False, tag_field="kind", tag="replayed"):
    user: str
    session: str
    subscription: str
    first: int
    events: tuple[_ReplayedEvent, ...] = ()

    def notifications(self) -> Iterator[tuple[str, Notified]]:
        """Yield the notification of each event, numbered from the first, with the event's subject."""
        for number, each in enumerate(self.events, self.first):
            yield each.event.subject, Notified(self.user, self.session, number, (self.subscription,))


def event_decoder(declared: Declared, table: Table) -> Callable[[], Decode]:
    """Return the maker of a decoder of events into ``table``, which has columns for ``declared`` attributes."""

    def make() -> Decode:
        decode = msgspec.msgpack.Decoder(_Published).decode
        attribute_types = {
            subject: {attribute: (column.name, column.type) for attribute, column in found.items()}
            for subject in declared
            if (found := columns_of(subject, declared, table))
        }

        def rows(payloads: Payloads) -> Columns:
            accepted = [decode(record).acceptance for record in payloads.records]
            events = [each.event for each in accepted]
            columns: Columns = {
                "offset": payloads.offsets,
                "at_us": payloads.times,
                "server": [each.id.origin for each in accepted],
                "incarnation": [each.id.incarnation for each in accepted],
                "number": [each.id.number for each in accepted],
                "published_us": [event.published_us for event in events],
                "received_us": [each.received_us for each in accepted],
                "user": [each.user for each in accepted],
                "device": [each.device for each in accepted],
                "device_epoch": [each.epoch for each in accepted],
                "device_number": [each.number for each in accepted],
                "subject": [event.subject for event in events],
            }
            columns |= attribute_columns(events, attribute_types)
            columns["attributes"] = [variant_of(event.attributes) if event.attributes else None for event in events]
            return columns

        return rows

    return make


def attribute_columns(events: Sequence[_Event], types: Mapping[str, Mapping[str, tuple[str, Type]]]) -> Columns:
    """Take the declared attributes out of the events, into columns; :data:`MISFITS` counts values of other types."""
    places: dict[str, list[int]] = {}
    for place, event in enumerate(events):
        places.setdefault(event.subject, []).append(place)
    misfits = [0] * len(events)
    columns: dict[str, list[Any]] = {}
    for subject, own in places.items():
        for attribute, (name, kind) in types.get(subject, {}).items():
            values = [events[place].attributes.pop(attribute, None) for place in own]
            if not {type(value) for value in values} <= _FITTING[kind]:
                _put_back(values, [events[place] for place in own], attribute, kind, own, misfits)
            if len(own) == len(events):
                columns[name] = values
            else:
                column = columns.setdefault(name, [None] * len(events))
                for place, value in zip(own, values, strict=True):
                    column[place] = value
    return {**columns, MISFITS: misfits}


def _put_back(
    values: list[Any], events: Sequence[_Event], attribute: str, kind: Type, places: Sequence[int], misfits: list[int]
) -> None:
    """Return the values that do not fit to their events, and widen the others to the type of the column.

    An Integer without an exact Double is in both places.
    """
    for row, value in enumerate(values):
        if type(value) in _FITTING[kind]:
            continue
        fitting = typed(value, TYPE_NAMES[kind])
        values[row] = None if fitting is None else fitting.value
        if fitting is None or not fitting.is_exact:
            events[row].attributes[attribute] = value
        misfits[places[row]] += fitting is None


def notification_decoder() -> Decode:
    """Return a decoder of the notifications that events generated, also those of the past."""
    decode = msgspec.msgpack.Decoder(_Notifying | _Replayed).decode

    def rows(payloads: Payloads) -> Columns:
        found = [
            (offset, at_us, subject, each)
            for offset, at_us, record in zip(
                payloads.offsets, payloads.times, map(decode, payloads.records), strict=True
            )
            for subject, each in record.notifications()
        ]
        return {
            "offset": [row[0] for row in found],
            "at_us": [row[1] for row in found],
            "subject": [row[2] for row in found],
            "user": [row[3].user for row in found],
            "session": [row[3].session for row in found],
            "number": [row[3].number for row in found],
            "subscriptions": [row[3].subscriptions for row in found],
        }

    return rows
