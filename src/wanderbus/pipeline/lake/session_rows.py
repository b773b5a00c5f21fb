"""Rows of deliveries and of changes of sessions: records whose fields are columns."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import msgspec

from wanderbus.pipeline.lake.records import Columns, Decode, Payloads, Rows
from wanderbus.pipeline.tables.silver import DELIVERIES, SESSIONS

DELIVERY_KINDS: Final = dict.fromkeys(("acknowledged", "dropped"), DELIVERIES.name)
SESSION_KINDS: Final = dict.fromkeys(
    (
        *("attached", "dialog_stored", "status", "left"),
        *("session_awaited", "session_not_awaited", "session_fenced", "session_imported", "export_dropped"),
        *("queue_continued", "device_came", "device_gone"),
    ),
    SESSIONS.name,
)


class _Ended(msgspec.Struct, gc=False):
    kind: str
    user: str
    session: str
    device: str | None = None
    number: int | None = None
    first: int | None = None
    last: int | None = None
    reason: str | None = None
    subscriptions: tuple[str, ...] = ()
    resumed: bool = False


class _Change(msgspec.Struct, gc=False):
    kind: str
    user: str
    session: str | None = None
    device: str | None = None
    epoch: int | None = None
    status: str | None = None
    reason: str | None = None
    grace_s: float | None = None
    address: str | None = None
    owner_epoch: int | None = None
    source: str | None = None
    target: str | None = None
    server: str | None = None
    cause: str | None = None
    export: memoryview | None = None


_SAME: Final = ("kind", "user", "session", "device", "epoch", "status", "grace_s", "address", "owner_epoch")
"""Columns that are fields of the record."""


def delivery_decoder() -> Decode:
    """Return a decoder of acknowledged and dropped notifications."""
    decode = msgspec.msgpack.Decoder(_Ended).decode
    names = ("kind", "user", "session", "device", "first", "reason", "subscriptions", "resumed")

    def rows(payloads: Payloads) -> Rows:
        records = [decode(record) for record in payloads.records]
        columns: Columns = {name: list(map(attrgetter(name), records)) for name in names}
        columns["last"] = [record.number if record.last is None else record.last for record in records]
        return {DELIVERIES.name: {"offset": payloads.offsets, "at_us": payloads.times, **columns}}

    return rows


def session_decoder() -> Decode:
    """Return a decoder of changes of sessions."""
    decode = msgspec.msgpack.Decoder(_Change).decode

    def rows(payloads: Payloads) -> Rows:
        records = [decode(record) for record in payloads.records]
        columns: Columns = {name: list(map(attrgetter(name), records)) for name in _SAME}
        columns["reason"] = [record.reason or record.cause for record in records]
        columns["other_server"] = [record.source or record.target or record.server or None for record in records]
        columns["export_bytes"] = [None if record.export is None else len(record.export) for record in records]
        return {SESSIONS.name: {"offset": payloads.offsets, "at_us": payloads.times, **columns}}

    return rows
