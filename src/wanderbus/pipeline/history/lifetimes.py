"""Lifetimes of subscriptions in the log, and the times in which their owners were away (SPEC G, H)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Final

import msgspec

from wanderbus.pipeline.lake_offsets import base_below
from wanderbus.records import (
    AnyRecord,
    Changed,
    Left,
    SessionFenced,
    SessionImported,
    Started,
    StatusChanged,
    Subscribed,
    Unsubscribed,
    decode_record,
    imported_subscriptions,
)
from wanderbus.subscription import Restriction, Subscription

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_restrictions: Final = msgspec.json.Decoder(tuple[Restriction, ...])


Change = tuple[int, AnyRecord]
"""A record and its offset."""

KINDS: Final = (
    *("subscribed", "changed", "unsubscribed", "session_fenced", "session_imported"),
    *("started", "status", "left"),
)
"""Kinds of the records of which lifetimes and absences are made."""


class SubscriptionVersion(msgspec.Struct, frozen=True):
    """A subscription as it was for the records from ``from_offset`` up to, but without, ``to_offset``; None is no end.

    A change of a subscription makes its next version.
    """

    subscription: Subscription
    from_offset: int = 0
    to_offset: int | None = None


class UserAbsence(msgspec.Struct, frozen=True):
    """A user was DISCONNECTED from the record at ``from_offset`` up to that before ``to_offset``; None is no end."""

    user: str
    from_offset: int
    to_offset: int | None = None


class Absences:
    """Absences by user."""

    def __init__(self, absences: Iterable[UserAbsence]) -> None:
        self._of: dict[str, tuple[list[int], list[int | None]]] = {}
        for each in sorted(absences, key=lambda each: each.from_offset):
            begins, ends = self._of.setdefault(each.user, ([], []))
            begins.append(each.from_offset)
            ends.append(each.to_offset)

    def is_away(self, user: str, offset: int) -> bool:
        """Return whether the user was DISCONNECTED when the record at ``offset`` was written."""
        begins, ends = self._of.get(user, ([], []))
        place = bisect_right(begins, offset) - 1
        if place < 0:
            return False
        end = ends[place]
        is_of_log = base_below(begins[place]) == base_below(offset)
        return is_of_log and (end is None or offset < end)


def versions_in(subscriptions: DataFrame) -> list[SubscriptionVersion]:
    """Return the versions in a table of subscriptions (``silver/subscriptions``), in order of their offsets."""
    columns = ("id", "owner", "session", "subject", "expression", "language", "device", "expires_us", "restrictions")
    rows = subscriptions.select(*columns, "from_offset", "to_offset").orderBy("from_offset").collect()
    return [
        SubscriptionVersion(
            Subscription(
                **{name: row[name] for name in columns if name != "restrictions"},
                restrictions=_restrictions.decode(row["restrictions"]),
            ),
            row["from_offset"],
            row["to_offset"],
        )
        for row in rows
    ]


def versions_of(changes: Iterable[Change]) -> list[SubscriptionVersion]:
    """Return the versions of subscriptions that records made, in order of their offsets."""
    live: dict[tuple[int, str], SubscriptionVersion] = {}
    """Versions by log and subscription."""
    found: list[SubscriptionVersion] = []

    def end(identity: str, offset: int) -> None:
        if version := live.pop((base_below(offset), identity), None):
            found.append(msgspec.structs.replace(version, to_offset=offset))

    def begin(subscription: Subscription, offset: int) -> None:
        end(subscription.id, offset)
        live[base_below(offset), subscription.id] = SubscriptionVersion(subscription, offset)

    for offset, record in changes:
        match record:
            case Subscribed(subscription=subscription) | Changed(subscription=subscription):
                begin(subscription, offset)
            case Unsubscribed(subscription=identity):
                end(identity, offset)
            case SessionFenced(subscriptions=identities):
                for identity in identities:
                    end(identity, offset)
            case SessionImported(export=export):
                for subscription in imported_subscriptions(export):
                    begin(subscription, offset)
    return sorted([*found, *live.values()], key=lambda each: each.from_offset)


def absences_of(changes: Iterable[Change]) -> list[UserAbsence]:
    """Return the absences of the users whose devices the records name.

    A user is DISCONNECTED while no device is connected, and after each start of the server (SPEC E-06). Each log of a
    lake has the devices of its own server.
    """
    logs = groupby(changes, key=lambda change: base_below(change[0]))
    return [absence for base, own in logs for absence in _absences_in(own, base)]


def _absences_in(changes: Iterable[Change], base: int) -> list[UserAbsence]:
    """Return the absences in one log, which begins at ``base``."""
    connected: dict[str, set[str]] = {}
    since: dict[str, int] = {}
    found: list[UserAbsence] = []

    def note(user: str, offset: int) -> None:
        if not connected[user]:
            since.setdefault(user, offset)
        elif user in since:
            found.append(UserAbsence(user, since.pop(user), offset))

    for offset, record in changes:
        match record:
            case Started():
                for user, devices in connected.items():
                    devices.clear()
                    note(user, offset)
            case StatusChanged(user=user, device=device) | Left(user=user, device=device):
                if user not in connected:
                    connected[user], since[user] = set(), base
                is_connected = isinstance(record, StatusChanged) and record.status == "CONNECTED"
                (connected[user].add if is_connected else connected[user].discard)(device)
                note(user, offset)
    return found + [UserAbsence(user, offset) for user, offset in since.items()]


def changes_in(records: DataFrame) -> list[Change]:
    """Return the records of subscriptions, devices and starts, in order.

    ``records`` has the columns ``offset``, ``kind`` and ``record``, as the source and the table of records have them.
    """
    chosen = records.where(records["kind"].isin(*KINDS)).select("offset", "record").orderBy("offset")
    return [(row.offset, decode_record(bytes(row.record))) for row in chosen.collect()]
