"""Receiver of streams of interest: a table for each of them (SPEC J-03, K-05, K-08).

Operations apply in order; after a gap the receiver asks for the whole. Messages of an earlier incarnation are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.messages import (
    FromReceiver,
    FromSender,
    InterestChanged,
    InterestConfirmed,
    InterestPosition,
    InterestRefused,
    InterestRequested,
    InterestWhole,
    NumberedFilter,
    Stream,
)

Route = tuple[str, Stream]
"""The sender of a stream, which may be its origin or a leader that spreads it, and the stream."""

ASK_S: Final = 0.5
"""Shortest time between two requests for the whole of one stream."""


class StreamResult(msgspec.Struct, frozen=True):
    """Result of a message: the answer to its sender, and the filters that the table gained and lost, by number."""

    answer: FromReceiver | None
    added: tuple[NumberedFilter, ...] = ()
    removed: tuple[NumberedFilter, ...] = ()
    is_new: bool = False
    """True if the stream was unknown before."""


class IncomingStreams:
    """Tables of the streams that a server receives; they outlive links and senders (SPEC K-08)."""

    def __init__(self) -> None:
        self._tables: dict[Route, _Table] = {}
        self._asked_at: dict[Route, float] = {}
        self._current: set[Route] = set()

    def routes(self) -> list[Route]:
        """Return the streams whose interest is known completely up to some version."""
        return list(self._tables)

    def knows(self, route: Route) -> bool:
        """Return whether the interest is known completely up to some version."""
        return route in self._tables

    def filters(self, route: Route) -> list[NumberedFilter]:
        """Return the table of a stream, empty if it is unknown."""
        table = self._tables.get(route)
        return list(table.filters.values()) if table is not None else []

    def position(self, route: Route) -> tuple[int, int] | None:
        """Return the incarnation and the version of the table; None if the stream is unknown."""
        table = self._tables.get(route)
        return (table.incarnation, table.version) if table is not None else None

    def load(self, route: Route, incarnation: int, version: int, filters: Iterable[NumberedFilter]) -> None:
        """Take over a table that was saved."""
        self._tables[route] = _Table(incarnation, version, {each.number: each for each in filters})

    def is_current(self, route: Route) -> bool:
        """Return whether the table was complete up to the sender's position at some time since :meth:`restart`."""
        return route in self._current

    def restart(self) -> None:
        """Begin a new life with the same tables; none of them is current."""
        self._current.clear()
        self._asked_at.clear()

    def forget(self, route: Route) -> None:
        """Remove a table."""
        self._tables.pop(route, None)
        self._asked_at.pop(route, None)
        self._current.discard(route)

    def clear(self) -> None:
        """Forget everything."""
        self._tables.clear()
        self.restart()

    def receive(self, sender: str, message: FromSender, now: float) -> StreamResult:
        """Take a message of ``sender``; a repeated one changes nothing.

        Raises :class:`RemoteProtocolError` for an invalid filter; the table is then unchanged.
        """
        route = sender, message.stream
        table = self._tables.get(route)
        if table is not None and message.incarnation < table.incarnation:
            return StreamResult(InterestRefused(message.stream, table.incarnation, table.version))
        is_same_life = table is not None and message.incarnation == table.incarnation
        if table is not None and is_same_life and message.version <= table.version:
            return StreamResult(self._confirmed(route, table))
        match message:
            case InterestWhole(filters=filters):
                return self._replace(route, message, filters)
            case InterestChanged(previous=0, added=added) if not is_same_life:
                return self._replace(route, message, added)
            case InterestPosition(version=0):
                return self._replace(route, message, ())
            case InterestChanged() if table is not None and is_same_life and table.follows(message):
                return self._apply(route, message, table)
        return StreamResult(self._request(route, message, now))

    def _replace(self, route: Route, message: FromSender, filters: Iterable[NumberedFilter]) -> StreamResult:
        before = self._tables.get(route)
        table = _Table(message.incarnation, message.version, {each.number: each for each in filters})
        for each in table.filters.values():
            each.form()
        self._tables[route] = table
        old = {(each.subject, each.expression): each for each in before.filters.values()} if before is not None else {}
        new = {(each.subject, each.expression): each for each in table.filters.values()}
        return StreamResult(
            self._confirmed(route, table),
            tuple([each for key, each in new.items() if key not in old]),
            tuple([each for key, each in old.items() if key not in new]),
            before is None,
        )

    def _apply(self, route: Route, message: InterestChanged, table: _Table) -> StreamResult:
        for each in message.added:
            each.form()
        removed = tuple([table.filters.pop(number) for number in message.removed])
        table.filters |= {each.number: each for each in message.added}
        table.version = message.version
        return StreamResult(self._confirmed(route, table), message.added, removed)

    def _confirmed(self, route: Route, table: _Table) -> InterestConfirmed:
        self._asked_at.pop(route, None)
        self._current.add(route)
        return InterestConfirmed(route[1], table.incarnation, table.version)

    def _request(self, route: Route, message: FromSender, now: float) -> InterestRequested | None:
        asked_at = self._asked_at.get(route)
        if asked_at is not None and now < asked_at + ASK_S:
            return None
        self._asked_at[route] = now
        return InterestRequested(message.stream, message.incarnation, message.version)


class _Table:
    """The filters of one stream, as of a version."""

    __slots__ = ("filters", "incarnation", "version")

    def __init__(self, incarnation: int, version: int, filters: dict[int, NumberedFilter]) -> None:
        self.incarnation = incarnation
        self.version = version
        self.filters = filters

    def follows(self, message: InterestChanged) -> bool:
        """Return whether the table is where ``message`` applies."""
        return message.previous == self.version and self.filters.keys() >= set(message.removed)


def interests_of(filters: Iterable[NumberedFilter]) -> list[Interest]:
    """Return the interests of ``filters``, which a table has accepted."""
    return [Interest(each.subject, conjunction) for each in filters for conjunction in each.form()]
