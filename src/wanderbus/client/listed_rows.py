"""Checks of listing rows received from a broker: types, depth and number.

A broker of another version may add fields. A missing field, a wrong type or an endless listing raises
:class:`RemoteProtocolError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NotRequired, TypedDict

import msgspec

from wanderbus.errors import EventError, RemoteProtocolError
from wanderbus.event import Event, EventId, Loss, Number, check_content

PAGES_MAX: Final = 10_000
"""Most responses to one listing: ten million rows, with a thousand in each response."""

_DEPTH_MAX: Final = 16
"""Most nesting levels of a row; a deeper one could not be printed."""


class _ReaderRow(TypedDict):
    device: str
    unacknowledged: int


class _UnreadRow(TypedDict):
    subscription: str
    state: str
    queued: int
    oldest_s: float | None
    blocked_s: float | None
    readers: NotRequired[list[_ReaderRow]]


class _DeviceRow(TypedDict):
    device: str
    status: str
    address: str | None
    away_s: float | None
    reading: int


class _RestrictionRow(TypedDict):
    type: str


class _SessionRow(TypedDict):
    user: str
    session: str
    status: str
    subscriptions: int
    queued: int
    delivered: int
    dropped: NotRequired[dict[str, int]]
    devices: NotRequired[list[_DeviceRow]]
    unread: NotRequired[int]
    unread_subscriptions: NotRequired[list[_UnreadRow]]


class _SubscriptionRow(_UnreadRow):
    user: str
    session: str
    subject: str
    expression: str
    language: str
    expires_us: int | None
    last_us: int | None
    restrictions: NotRequired[list[_RestrictionRow]]


class _QueueRow(TypedDict):
    user: str
    session: str
    notifications: int
    oldest_s: float | None
    notifications_max: int | None
    bytes_max: int | None
    age_max_s: float | None
    unread: NotRequired[int]
    unread_subscriptions: NotRequired[list[_UnreadRow]]


class _LimitRow(TypedDict):
    limit: str
    party: str
    count: int
    reason: str
    since_s: NotRequired[float]
    last_s: NotRequired[float]


class _BoundRow(TypedDict):
    limit: str


class _PurgedRow(TypedDict):
    purged: int


class _KickedRow(TypedDict):
    device: str
    connected: bool
    forgotten: bool


class _WaitingRow(TypedDict):
    epoch: Number
    first: Number
    last: Number
    lost: NotRequired[tuple[Loss, ...]]
    event: NotRequired[Event]
    id: NotRequired[EventId]
    subscriptions: NotRequired[tuple[str, ...]]


_SHAPES: Final[Mapping[str, Any]] = {
    "sessions": _SessionRow,
    "subscriptions": _SubscriptionRow,
    "queues": _QueueRow,
    "limits": _LimitRow,
    "bounds": _BoundRow,
    "purged": _PurgedRow,
    "kicked": _KickedRow,
    "waiting": _WaitingRow,
}


def checked_rows(what: str, rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return ``rows`` if all are valid rows of the listing ``what``; :class:`RemoteProtocolError` otherwise."""
    try:
        for row in rows:
            msgspec.convert(row, _SHAPES[what])
            _check_depth(row)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"the broker's listing of {what} cannot be read: {error}", None) from None
    return rows


def read_event(value: object) -> Event:
    """Return the event of a checked row; :class:`RemoteProtocolError` if it is invalid."""
    event = msgspec.convert(value, Event)
    try:
        check_content(event)
    except EventError as error:
        raise RemoteProtocolError(f"the broker listed an invalid event: {error}", None) from None
    return event


class Pages:
    """Cursor over the responses to one listing; each response contains the cursor of the next."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._pages = 0
        self._after: str | None = None

    def next(self, after: str | None) -> str | None:
        """Return the cursor ``after``; :class:`RemoteProtocolError` if it does not advance or there are too many."""
        self._pages += 1
        if after is not None and (after == self._after or self._pages >= PAGES_MAX):
            raise RemoteProtocolError(f"the broker's listing of {self._what} does not end", None)
        self._after = after
        return after

    def next_number(self, after: str | None) -> int | None:
        """Return the cursor ``after`` as a number; errors as :meth:`next`, and if it is not a number."""
        text = self.next(after)
        if text is not None and not (text.isascii() and text.isdigit() and len(text) <= 19):
            raise RemoteProtocolError(f"the broker's listing of {self._what} has a cursor that is not a number", None)
        return None if text is None else int(text)


def _check_depth(row: object) -> None:
    level = [row]
    for _ in range(_DEPTH_MAX):
        level = [below for value in level if isinstance(value, Mapping | list) for below in _items(value)]
    if level:
        raise msgspec.ValidationError(f"more than {_DEPTH_MAX} levels")


def _items(value: Any) -> Any:
    return value.values() if isinstance(value, Mapping) else value
