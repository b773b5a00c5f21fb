"""Rows of events, with declared attributes in columns of their types, and of the notifications that they generated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

from wanderbus.broker.state.drops import displaced_by
from wanderbus.event import EventId
from wanderbus.pipeline.lake.records import MISFITS, Columns, Decode, Payloads, Rows
from wanderbus.pipeline.lake_offsets import base_below
from wanderbus.pipeline.source.partial_records import Content, Subject
from wanderbus.pipeline.source.variants import variant_of
from wanderbus.pipeline.tables.declared import TYPE_NAMES, Declared, columns_of
from wanderbus.pipeline.tables.silver import DELIVERIES, EVENTS, NOTIFICATIONS
from wanderbus.pipeline.tables.specification import TableSpecification, Type
from wanderbus.records import Delivery, Detected, Drop, Matched, Notified, Replayed
from wanderbus.subject_schemas import typed

EVENT_KINDS: Final = {
    "published": EVENTS.name,
    "arrived": NOTIFICATIONS.name,
    "matched": NOTIFICATIONS.name,
    "detected": NOTIFICATIONS.name,
    "replayed": NOTIFICATIONS.name,
}
"""Kinds of record with events; those with notifications alone have them for events of other records or servers, or
detections."""

_FITTING: Final[Mapping[Type, frozenset[type]]] = {
    "string": frozenset({str, type(None)}),
    "bigint": frozenset({int, type(None)}),
    "double": frozenset({float, type(None)}),
    "boolean": frozenset({bool, type(None)}),
    "timestamp": frozenset({datetime, type(None)}),
}


class _Event(Content, gc=False, kw_only=True):
    subject: str


class _Acceptance(msgspec.Struct, gc=False):
    id: EventId
    event: _Event
    user: str
    device: str
    epoch: int
    number: int
    received_us: int | None = None


class _Published(msgspec.Struct, gc=False, tag_field="kind", tag="published"):
    acceptance: _Acceptance
    delivery: Delivery = Delivery()


class _Arrival(msgspec.Struct, gc=False):
    id: EventId
    event: Subject


class _Arrived(msgspec.Struct, gc=False, tag_field="kind", tag="arrived"):
    arrival: _Arrival
    delivery: Delivery = Delivery()


_AnyRecord: TypeAlias = _Published | _Arrived | Matched | Detected | Replayed

_subject: Final = msgspec.msgpack.Decoder(Subject)


def event_decoder(declared: Declared, table: TableSpecification, bases: Mapping[str, int] = {}) -> Callable[[], Decode]:
    """Return the maker of a decoder of events, their notifications, and the deliveries that these displaced.

    ``table``, that of the events, has columns for ``declared`` attributes. ``bases`` are those of the logs of the lake,
    by identity: an event that arrived from another server is named by its lake offset in the log of that one.
    """

    def make() -> Decode:
        decode = msgspec.msgpack.Decoder(_AnyRecord).decode
        attribute_types = {
            subject: {attribute: (column.name, column.type) for attribute, column in found.items()}
            for subject in declared
            if (found := columns_of(subject, declared, table))
        }

        def rows(payloads: Payloads) -> Rows:
            found = list(zip(payloads.offsets, payloads.times, map(decode, payloads.records), strict=True))
            published = [each for each in found if type(each[2]) is _Published]
            return {
                EVENTS.name: _events(published, attribute_types),
                NOTIFICATIONS.name: _notifications(found, bases),
                DELIVERIES.name: _displaced(found),
            }

        return rows

    return make


def _events(
    found: Sequence[tuple[int, int, _Published]], types: Mapping[str, Mapping[str, tuple[str, Type]]]
) -> Columns:
    accepted = [record.acceptance for _, _, record in found]
    events = [each.event for each in accepted]
    ids = [each.id for each in accepted]
    columns: Columns = {
        "offset": [offset for offset, _, _ in found],
        "at_us": [at_us for _, at_us, _ in found],
        "server": [each.origin for each in ids],
        "incarnation": [each.incarnation for each in ids],
        "number": [each.number for each in ids],
        "published_us": [event.published_us for event in events],
        "received_us": [each.received_us for each in accepted],
        "user": [each.user for each in accepted],
        "device": [each.device for each in accepted],
        "device_epoch": [each.epoch for each in accepted],
        "device_number": [each.number for each in accepted],
        "subject": [event.subject for event in events],
    }
    columns |= attribute_columns(events, types)
    columns["attributes"] = [variant_of(event.attributes) if event.attributes else None for event in events]
    return columns


def attribute_columns(events: Sequence[_Event], types: Mapping[str, Mapping[str, tuple[str, Type]]]) -> Columns:
    """Take the declared attributes out of the events, into columns; :data:`MISFITS` counts values of other types."""
    places: dict[str, list[int]] = {}
    for place, event in enumerate(events):
        places.setdefault(event.subject, []).append(place)
    misfits = [0] * len(events)
    columns: dict[str, list[Any]] = {}
    for subject, own in places.items():
        attributes = [events[place].attributes for place in own]
        for attribute, (name, kind) in types.get(subject, {}).items():
            values = [each.pop(attribute, None) for each in attributes]
            if not set(map(type, values)) <= _FITTING[kind]:
                _put_back(values, attributes, attribute, kind, own, misfits)
            if len(own) == len(events):
                columns[name] = values
            else:
                column = columns.setdefault(name, [None] * len(events))
                for place, value in zip(own, values, strict=True):
                    column[place] = value
    return {**columns, MISFITS: misfits}


def _put_back(
    values: list[Any],
    attributes: Sequence[dict[str, Any]],
    attribute: str,
    kind: Type,
    places: Sequence[int],
    misfits: list[int],
) -> None:
    """Return the values that do not fit to their events, and widen the others to the type of the column.

    An Integer that is widened to Double is in both places.
    """
    for row, value in enumerate(values):
        if type(value) in _FITTING[kind]:
            continue
        fitting = typed(value, TYPE_NAMES[kind])
        values[row] = None if fitting is None else fitting.value
        if fitting is None or not fitting.is_exact:
            attributes[row][attribute] = value
        misfits[places[row]] += fitting is None


def _notifications(found: Sequence[tuple[int, int, _AnyRecord]], bases: Mapping[str, int]) -> Columns:
    """Return the notifications; ``bases`` are those of the logs of the lake, by identity."""
    offsets: list[int] = []
    times: list[int] = []
    subjects: list[str] = []
    notified: list[Notified] = []
    events: list[int | None] = []
    for offset, at_us, record in found:
        if isinstance(record, _Published):
            own: Sequence[Notified] = record.delivery.notified
            subjects += [record.acceptance.event.subject] * len(own)
        elif isinstance(record, _Arrived):
            own = record.delivery.notified
            subjects += [record.arrival.event.subject] * len(own)
            events += [None] * (len(offsets) - len(events))
            events += [_lake_offset(record.arrival.id, bases)] * len(own)
        elif isinstance(record, Matched | Detected):
            own = [notified for each in record.events for notified in each.notified]
            events += [None] * (len(offsets) - len(events))
            base = base_below(offset)
            for each in record.events:
                of_event = _lake_offset(each.id, bases) if each.arrived else base + each.id.number
                events += [of_event] * len(each.notified)
                subjects += [_subject_of(each.event)] * len(each.notified)
        else:
            own = record.notified
            subjects += [_subject_of(each.event) for each in record.events]
        offsets += [offset] * len(own)
        times += [at_us] * len(own)
        notified += own
    return {
        "offset": offsets,
        "at_us": times,
        "subject": subjects,
        "user": [each.user for each in notified],
        "session": [each.session for each in notified],
        "number": [each.number for each in notified],
        "subscriptions": [each.subscriptions for each in notified],
        "event_offset": events + [None] * (len(offsets) - len(events)),
    }


def _displaced(found: Sequence[tuple[int, int, _AnyRecord]]) -> Columns:
    """Return what the notifications of these records displaced."""
    drops = [(offset, at_us, drop) for offset, at_us, record in found for drop in _drops_of(record)]
    columns: Columns = {name: [getattr(drop, name) for _, _, drop in drops] for name in Drop.__struct_fields__}
    own: Columns = {"offset": [offset for offset, _, _ in drops], "at_us": [at_us for _, at_us, _ in drops]}
    return own | columns | {"kind": ["dropped"] * len(drops), "resumed": [False] * len(drops)}


def _drops_of(record: _AnyRecord) -> Sequence[Drop]:
    if not isinstance(record, _Published | _Arrived):
        return record.dropped
    delivery = record.delivery
    return (*displaced_by(delivery.notified, delivery.displaced), *delivery.dropped)


def _subject_of(event: msgspec.Raw) -> str:
    return _subject.decode(event).subject


def _lake_offset(id: EventId, bases: Mapping[str, int]) -> int | None:
    """Return the lake offset of the record that accepted an event; None if the lake does not have its log.

    Of the logs of a server it is the last one that was begun before: each start of a server gives ids of another epoch.
    """
    begun = [identity.rpartition("-") for identity in bases]
    of_server = [int(begin) for server, _, begin in begun if server == id.origin and int(begin) <= id.incarnation]
    return bases[f"{id.origin}-{max(of_server)}"] + id.number if of_server else None
