"""Rows of listings received from a broker, converted and checked.

A broker of another version may add fields, which are ignored. A missing field, a wrong type or an endless listing
raises :class:`RemoteProtocolError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from wanderbus.errors import EventError, RemoteProtocolError
from wanderbus.event import Event, EventId, Loss, Number, check_content

PAGES_MAX: Final = 10_000
"""Most responses to one listing: ten million rows, with a thousand in each response."""

Row = TypeVar("Row")


class Purged(msgspec.Struct, frozen=True):
    """Number of matches that one step of a purge discarded."""

    purged: int


class ListedItem(msgspec.Struct, frozen=True):
    """Items of a queue that begin at number ``first``: a gap if any were lost, and the event if there is one."""

    epoch: Number
    first: Number
    last: Number
    lost: tuple[Loss, ...] = ()
    event: Event | None = None
    id: EventId | None = None
    subscriptions: tuple[str, ...] = ()


def read_rows(kind: type[Row], what: str, rows: Sequence[Mapping[str, Any]]) -> Sequence[Row]:
    """Return ``rows`` of the listing ``what``; :class:`RemoteProtocolError` if one is invalid."""
    try:
        return [msgspec.convert(row, kind) for row in rows]
    except (msgspec.ValidationError, RecursionError) as error:
        raise RemoteProtocolError(f"the broker's listing of {what} cannot be read: {error}", None) from None


def check_listed(event: Event) -> Event:
    """Return an event of a row; :class:`RemoteProtocolError` if it is invalid."""
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
