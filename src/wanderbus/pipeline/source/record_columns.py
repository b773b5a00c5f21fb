"""Columns taken from the bytes of a record (SPEC T-01).

Most rows need a few fields only, so a record is decoded into a head that has nothing else: a twentieth of the cost of
decoding it whole. A record with a head may still be undecodable as a whole; who decodes it finds out.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final, get_args

import msgspec

from wanderbus.event import EventId
from wanderbus.pipeline.source.partial_records import Content, EventRecord, NamedRecord, Subject
from wanderbus.records import (
    AnyRecord,
    ArrivalsLost,
    Arrived,
    CausalChanged,
    Detected,
    Matched,
    Published,
    Replayed,
    decode_record,
)

KINDS: Final = frozenset(str(record.__struct_config__.tag) for record in get_args(AnyRecord))
"""The kinds of record that this version knows."""


class _Subscription(msgspec.Struct, gc=False):
    owner: str
    session: str
    subject: str
    device: str | None = None


class _Acceptance(msgspec.Struct, gc=False):
    event: Subject
    user: str
    device: str


class Head(msgspec.Struct, gc=False):
    """The fields of a record that are columns of the source; what names them within it is resolved."""

    kind: str | None = None
    at_us: int | None = None
    user: str | None = None
    session: str | None = None
    device: str | None = None
    subject: str | None = None
    subscription: _Subscription | str | None = None
    acceptance: _Acceptance | None = None


NO_HEAD: Final = Head()
"""The head of a record that cannot be decoded."""

_WITH_ENCODED: Final = (Matched, Detected, Replayed, ArrivalsLost, CausalChanged)
"""Records with several events, or with changes of the causal order, that stay encoded."""

_GETTERS: Final = {name: attrgetter(name) for name in ("kind", "user", "session", "device", "subject")}
_heads: msgspec.msgpack.Decoder[Head] = msgspec.msgpack.Decoder(Head)
_contents = msgspec.msgpack.Decoder(EventRecord[Content])
_names = msgspec.msgpack.Decoder(NamedRecord)
_receipts = msgspec.msgpack.Decoder(EventRecord[msgspec.Raw])
_json = msgspec.json.Encoder()


def heads_of(payloads: Sequence[bytes | None], errors: dict[int, str]) -> list[Head]:
    """Return the head of each record; the reason for an undecodable one goes to ``errors``, by its place."""
    try:
        heads = list(map(_heads.decode, payloads))  # type: ignore[arg-type]
    except (msgspec.DecodeError, TypeError):
        heads = [_head(payload, place, errors) for place, payload in enumerate(payloads)]
    if {head.kind for head in heads} <= KINDS:
        return [head if head.acceptance is None and head.subscription is None else _resolved(head) for head in heads]
    return [_known(head, place, errors) for place, head in enumerate(heads)]


def content_of(payload: bytes) -> Content:
    """Return the event of a record that has one; ``msgspec.DecodeError`` if it has none."""
    record = _contents.decode(payload)
    return (record.acceptance or record.receipt).event  # the property alone would add a tenth to the time


def name_of(payload: bytes) -> tuple[EventId, int | None]:
    """Return id and time of publication of a published record; ``msgspec.DecodeError`` if it has none."""
    acceptance = _names.decode(payload).acceptance
    return acceptance.id, acceptance.event.published_us


def received_us_of(payload: bytes) -> int:
    """Return the wall clock at the receipt of a record's event; ``msgspec.DecodeError`` if it has none."""
    return _receipts.decode(payload).received_us


def json_of(payload: bytes) -> str:
    """Return a whole record as JSON, in which infinite numbers are null; ``msgspec.DecodeError`` if it is none."""
    record = decode_record(payload)
    if isinstance(record, Published):
        event = msgspec.Raw(_json.encode(record.event))
        record = msgspec.structs.replace(record, acceptance=msgspec.structs.replace(record.acceptance, event=event))
    elif isinstance(record, Arrived):
        event = msgspec.Raw(_json.encode(record.event))
        record = msgspec.structs.replace(record, arrival=msgspec.structs.replace(record.arrival, event=event))
    elif isinstance(record, _WITH_ENCODED):
        return _json.encode(msgspec.msgpack.decode(payload)).decode()
    return _json.encode(record).decode()


def is_published(head: Head) -> bool:
    """Return whether the record is that of a published event."""
    return head.kind == "published"


def values_of(heads: Sequence[Head], column: str) -> list[Any]:
    """Return one column of these heads."""
    return list(map(_GETTERS[column], heads))


def _head(payload: bytes | None, place: int, errors: dict[int, str]) -> Head:
    if payload is None:
        return NO_HEAD
    try:
        return _heads.decode(payload)
    except msgspec.DecodeError as error:
        errors[place] = f"not a record: {error}"
        return NO_HEAD


def _known(head: Head, place: int, errors: dict[int, str]) -> Head:
    if head is NO_HEAD or head.kind in KINDS:
        return _resolved(head)
    errors[place] = "a record without a kind" if head.kind is None else f"a record of the unknown kind {head.kind!r}"
    return NO_HEAD


def _resolved(head: Head) -> Head:
    """Return the head with the columns of the acceptance or the subscription that it contains."""
    acceptance, subscription = head.acceptance, head.subscription
    if acceptance is not None:
        head.user, head.device, head.subject = acceptance.user, acceptance.device, acceptance.event.subject
    elif type(subscription) is _Subscription:
        head.user, head.session = subscription.owner, subscription.session
        head.device, head.subject = subscription.device, subscription.subject
    return head
