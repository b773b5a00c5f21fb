"""Entries of one user's sessions in logs, as plain Python: what the analytics make of the tables of a lake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from pathlib import Path
from typing import Any

from wanderbus import records
from wanderbus.broker.state.drops import drops_of
from wanderbus.event import Event
from wanderbus.pipeline.analytics.handovers import Handover
from wanderbus.pipeline.analytics.user_fold import Fate, FoldEntry, Taking
from wanderbus.pipeline.analytics.user_logs import UserLogs
from wanderbus.pipeline.lake_offsets import base_of
from wanderbus.runtime.log.log_reader import oldest_record, read_log
from wanderbus.runtime.segment_files import end_of_log


def records_of(log: Path) -> list[records.AnyRecord]:
    """Return all records of a log."""
    frames = read_log(log, oldest_record(log), end_of_log(log))
    return [records.decode_record(frame.payload) for frame in frames]


def published_in(log: Iterable[records.AnyRecord]) -> Iterator[tuple[Event, int]]:
    """Yield the events that a server has accepted, each with the time at which it was published."""
    for record in log:
        if isinstance(record, records.Published):
            event = record.event
            yield event, event.published_us or record.received_us


def first_servers(logs: Mapping[str, Iterable[records.AnyRecord]]) -> dict[str, str]:
    """Return the server of these logs to which a device of each user attached first."""
    attached = [
        (record.at_us, record.user, server)
        for server, log in logs.items()
        for record in log
        if isinstance(record, records.Attached)
    ]
    return {user: server for _, user, server in sorted(attached, reverse=True)}


def followed(
    user: str, logs: Mapping[str, Iterable[records.AnyRecord]]
) -> tuple[list[Fate | Taking], list[Handover], UserLogs]:
    """Follow a user's sessions through the logs of these servers; return what they settle, and the handovers.

    Servers of several domains are called ``DOMAIN/SERVER``.
    """
    every: list[Sequence[FoldEntry]] = [
        [_named(server, each)._replace(offset=each.offset + base_of(place)) for each in entries_of(log, user)]
        for place, (server, log) in enumerate(logs.items())
    ]
    fold = UserLogs(list(logs))
    found = [each for entry in merge(*every, key=lambda each: each.at_us) for each in fold.step(entry)]
    rest = list(fold.close())
    found += [each for each in rest if not isinstance(each, Handover)]
    return found, [each for each in rest if isinstance(each, Handover)], fold


def _named(server: str, entry: FoldEntry) -> FoldEntry:
    """Return an entry of the log of a server of one domain among others, with the names of servers that all know.

    In its own log, a server that is alone has another name than for other domains.
    """
    domain, is_far, _ = server.partition("/")
    if entry.kind == "started" and is_far:
        return entry._replace(value=server)
    if entry.kind in ("session_awaited", "session_fenced") and is_far and entry.value and "/" not in entry.value:
        return entry._replace(value=f"{domain}/{entry.value}")
    return entry


def entries_of(written: Iterable[records.AnyRecord], user: str) -> Iterator[FoldEntry]:
    """Yield the entries of one user, as plain Python."""
    owners: dict[str, tuple[str, str]] = {}
    own: dict[str, Any]
    mark: dict[str, Any]
    for offset, record in enumerate(written):
        at_us = record.at_us
        match record:
            case records.Started(server=server):
                yield FoldEntry(None, offset, at_us, "started", value=server)
            case records.Published(delivery=delivery) | records.Arrived(delivery=delivery):
                for each in delivery.notified:
                    if each.user == user:
                        own = {"last": each.number, "subscriptions": list(each.subscriptions)}
                        subject = record.event.subject if isinstance(record, records.Published) else None
                        yield FoldEntry(each.session, offset, at_us, "notified", subject=subject, **own)
            case records.Matched(events=events):
                for each in (notified for event in events for notified in event.notified):
                    if each.user == user:
                        own = {"last": each.number, "subscriptions": list(each.subscriptions)}
                        yield FoldEntry(each.session, offset, at_us, "notified", **own)
            case records.Replayed() if record.user == user:
                for notified in record.notified:
                    own = {"last": notified.number, "subscriptions": list(notified.subscriptions)}
                    yield FoldEntry(record.session, offset, at_us, "notified", **own)
            case records.Subscribed(subscription=subscription, inherits=inherits):
                owners[subscription.id] = (subscription.owner, subscription.session)
                if subscription.owner == user:
                    if subscription.device:
                        own = {"subscriptions": [subscription.id], "device": subscription.device}
                        yield FoldEntry(subscription.session, offset, at_us, "bound", **own)
                    if inherits:
                        pair = [inherits, subscription.id]
                        yield FoldEntry(subscription.session, offset, at_us, "inherited", subscriptions=pair)
            case records.Forgotten(subscriptions=forgotten):
                for identity in forgotten:
                    if owners[identity][0] == user:
                        yield FoldEntry(owners[identity][1], offset, at_us, "forgotten", subscriptions=[identity])
            case records.Acknowledged() if record.user == user:
                own = {"last": record.number, "device": record.device, "resumed": record.resumed}
                several = list(record.subscriptions)
                yield FoldEntry(record.session, offset, at_us, "acknowledged", subscriptions=several, **own)
            case records.Dropped() if record.user == user:
                yield dropped(offset, record)
            case records.Attached() if record.user == user:
                own = {"first": record.epoch, "device": record.device}
                yield FoldEntry(record.session, offset, at_us, "attached", **own)
                for kind, several_marks in (("begins_behind", record.taken), ("redelivered", record.redelivered)):
                    for identity, number in several_marks:
                        mark = {"last": number, "device": record.device, "subscriptions": [identity]}
                        yield FoldEntry(record.session, offset, at_us, kind, **mark)
            case records.Left() if record.user == user:
                yield FoldEntry(record.session, offset, at_us, "left", device=record.device, reason=record.reason)
            case records.StatusChanged() if record.user == user:
                own = {"device": record.device, "value": record.status, "reason": record.reason}
                yield FoldEntry(None, offset, at_us, "status", **own)
            case (
                records.SessionAwaited()
                | records.SessionNotAwaited()
                | records.SessionFenced()
                | records.SessionImported()
                | records.QueueContinued()
                | records.ExportDropped()
            ) if record.user == user:
                yield of_handover(offset, record)
            case records.DialogStored() if record.user == user:
                yield FoldEntry(None, offset, at_us, "dialog_stored", device=record.device, value=record.address)
        for drop in drops_of(record):
            if drop.user == user:
                yield dropped(offset, drop)


def dropped(offset: int, record: records.Dropped) -> FoldEntry:
    own: dict[str, Any] = {"first": record.first, "last": record.last, "reason": record.reason}
    return FoldEntry(record.session, offset, record.at_us, "dropped", subscriptions=list(record.subscriptions), **own)


def of_handover(offset: int, record: records.OfMoves) -> FoldEntry:
    own: dict[str, Any] = {"first": getattr(record, "owner_epoch", None), "reason": getattr(record, "cause", None)}
    own["value"] = getattr(record, "source", None) or getattr(record, "target", None)
    if isinstance(record, records.SessionImported | records.QueueContinued):
        own["last"] = len(record.export)
    kind = type(record).__struct_config__.tag
    return FoldEntry(getattr(record, "session", None), offset, record.at_us, str(kind), **own)
