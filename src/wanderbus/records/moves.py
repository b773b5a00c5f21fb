"""Records of the event log about sessions that move to another server, and from there (SPEC L, T-01)."""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.event import EventId
from wanderbus.records.bases import Record
from wanderbus.subscription import Subscription

MOVED_AWAY: Final = "moved to another server"
"""Reason for which a device is DISCONNECTED whose session leaves its server."""


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """First event of a server's log that was not delivered, among those of its ordered and its decentralised channels.

    The two kinds come in streams of their own, each in the order of the log. If the session has come from another
    domain, a cut is that of the events whose origin is at ``DOMAIN/SERVER``, or ``/SERVER`` here, and if there is a
    ``subject``, of its events.
    """

    ordered: EventId
    decentralised: EventId
    subject: str = ""


class SessionFenced(Record, frozen=True, tag="session_fenced", kw_only=True):
    """The session belongs to another server, its owner in ``owner_epoch``: this one delivers nothing for it any more.

    Its rows become an export for the server ``target``, which is kept until :class:`ExportDropped`. ``cuts`` say what
    the session has got here of the log of each server of the domain; there are none in a domain of one server.
    ``cause`` says who wanted the move: ``user``, ``asked`` for another user, or the server itself: ``drain``, or
    ``network`` if a device came into that of the target. ``subscriptions`` are the live ones, which go along. The
    export has about ``queue_bytes`` of the notifications that wait, all of them if it is 0; the others follow it.
    If the target is in another domain, ``answers`` has those of other servers here to the publishes of the session.
    """

    user: str
    session: str
    owner_epoch: int
    target: str = ""
    cuts: tuple[Cut, ...] = ()
    cause: str = ""
    subscriptions: tuple[str, ...] = ()
    queue_bytes: int = 0
    answers: bytes | None = None


class ExportTaken(Record, frozen=True, tag="export_taken", kw_only=True):
    """The owner of a fenced session has it durably, and its queue up to number ``through``; the rest follows."""

    user: str
    session: str
    through: int


class ExportDropped(Record, frozen=True, tag="export_dropped", kw_only=True):
    """The owner of a fenced session has it durably in its own log, so its export is no longer needed."""

    user: str
    session: str


class DrainingChanged(Record, frozen=True, tag="draining_changed", kw_only=True):
    """The server began to drain, or takes sessions again: a draining server moves all its sessions to others."""

    is_draining: bool


class SessionAwaited(Record, frozen=True, tag="session_awaited", kw_only=True):
    """The session is about to move here from the server ``source``, and this one will own it in ``owner_epoch``.

    It gets the events for ``subscriptions`` from now on, until :class:`SessionImported` or :class:`SessionNotAwaited`.
    """

    user: str
    session: str
    owner_epoch: int
    source: str
    subscriptions: tuple[Subscription, ...]


class SessionNotAwaited(Record, frozen=True, tag="session_not_awaited", kw_only=True):
    """The session stays where it is."""

    user: str
    session: str


class SessionImported(Record, frozen=True, tag="session_imported", kw_only=True):
    """This server owns the session from now on, in ``owner_epoch``; ``export`` is the broker's own.

    :func:`imported_subscriptions` reads what others need of it."""

    user: str
    session: str
    owner_epoch: int
    export: bytes


class QueueContinued(Record, frozen=True, tag="queue_continued", kw_only=True):
    """The next piece of the queue of an imported session has come; ``export`` is the broker's own."""

    user: str
    session: str
    owner_epoch: int
    export: bytes


class DeviceCame(Record, frozen=True, tag="device_came", kw_only=True):
    """A device has come from another server, which knows its ``publishers``: they are opaque outside the broker.

    The server ``following`` knows more, "" if none does.
    """

    user: str
    device: str
    publishers: bytes
    following: str = ""


class DeviceGone(Record, frozen=True, tag="device_gone", kw_only=True):
    """A device is at another ``server`` now, which knows what the device has published here."""

    user: str
    device: str
    server: str


OfMoves = (
    SessionFenced
    | ExportTaken
    | ExportDropped
    | DrainingChanged
    | SessionAwaited
    | SessionNotAwaited
    | SessionImported
    | QueueContinued
    | DeviceCame
    | DeviceGone
)
"""Records about sessions and devices that move to another server, or from there."""


class _ExportedSubscription(msgspec.Struct):
    subscription: Subscription


class _ExportedSubscriptions(msgspec.Struct):
    subscriptions: tuple[_ExportedSubscription, ...]


_subscriptions: Final = msgspec.msgpack.Decoder(_ExportedSubscriptions)


def imported_subscriptions(export: bytes) -> tuple[Subscription, ...]:
    """Return the live subscriptions in an export; ``msgspec.DecodeError`` if it is none."""
    return tuple(each.subscription for each in _subscriptions.decode(export).subscriptions)
