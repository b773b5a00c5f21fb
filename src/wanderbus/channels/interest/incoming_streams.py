"""Receiver of streams of interest: a table for each of them (SPEC J-03, K-05).

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

ASK_S: Final = 0.5
"""Shortest time between two requests for the whole of one stream."""


class Taken(msgspec.Struct, frozen=True):
    """Result of a message: the answer to its sender, and the filters that the table gained and lost, by number."""

    answer: FromReceiver | None
    added: tuple[NumberedFilter, ...] = ()
    removed: tuple[NumberedFilter, ...] = ()
    is_new: bool = False
    """True if the stream was unknown before."""


class IncomingStreams:
    """Tables of the streams that a server receives."""

    def __init__(self) -> None:
        self._tables: dict[Stream, _Table] = {}
        self._asked_at: dict[Stream, float] = {}
        self._current: set[Stream] = set()

    def streams(self) -> list[Stream]:
        """Return the streams whose interest is known completely up to some version."""
        return list(self._tables)

    def filters(self, stream: Stream) -> list[NumberedFilter]:
        """Return the table of ``stream``, empty if it is unknown."""
        table = self._tables.get(stream)
        return list(table.filters.values()) if table is not None else []

    def position(self, stream: Stream) -> tuple[int, int] | None:
        """Return the incarnation and the version of the table; None if the stream is unknown."""
        table = self._tables.get(stream)
        return (table.incarnation, table.version) if table is not None else None

    def load(self, stream: Stream, incarnation: int, version: int, filters: Iterable[NumberedFilter]) -> None:
        """Take over a table that was saved."""
        self._tables[stream] = _Table(incarnation, version, {each.number: each for each in filters})

    def is_current(self, stream: Stream) -> bool:
        """Return whether the table was complete up to the sender's position at some time since :meth:`restart`."""
        return stream in self._current

    def restart(self) -> None:
        """Begin a new life with the same tables; none of them is current."""
        self._current.clear()
        self._asked_at.clear()

    def forget(self, stream: Stream) -> None:
        """Remove the table of a server that has left the domain."""
        self._tables.pop(stream, None)
        self._asked_at.pop(stream, None)
        self._current.discard(stream)

    def receive(self, message: FromSender, now: float) -> Taken:
        """Take a message of the stream's sender.

        Raises :class:`RemoteProtocolError` for an invalid filter; the table is then unchanged.
        """
        table = self._tables.get(message.stream)
        if table is not None and message.incarnation < table.incarnation:
            return Taken(InterestRefused(message.stream, table.incarnation, table.version))
        is_same_life = table is not None and message.incarnation == table.incarnation
        if table is not None and is_same_life and message.version <= table.version:
            return Taken(self._confirmed(message.stream, table))
        match message:
            case InterestWhole(filters=filters):
                return self._replace(message, filters)
            case InterestChanged(previous=0, added=added) if not is_same_life:
                return self._replace(message, added)
            case InterestPosition(version=0):
                return self._replace(message, ())
            case InterestChanged() if table is not None and is_same_life and table.follows(message):
                return self._apply(message, table)
        return Taken(self._request(message, now))

    def _replace(self, message: FromSender, filters: Iterable[NumberedFilter]) -> Taken:
        before = self._tables.get(message.stream)
        table = _Table(message.incarnation, message.version, {each.number: each for each in filters})
        for each in table.filters.values():
            each.form()
        self._tables[message.stream] = table
        old = {(each.subject, each.expression): each for each in before.filters.values()} if before is not None else {}
        new = {(each.subject, each.expression): each for each in table.filters.values()}
        return Taken(
            self._confirmed(message.stream, table),
            tuple([each for key, each in new.items() if key not in old]),
            tuple([each for key, each in old.items() if key not in new]),
            before is None,
        )

    def _apply(self, message: InterestChanged, table: _Table) -> Taken:
        for each in message.added:
            each.form()
        removed = tuple([table.filters.pop(number) for number in message.removed])
        table.filters |= {each.number: each for each in message.added}
        table.version = message.version
        return Taken(self._confirmed(message.stream, table), message.added, removed)

    def _confirmed(self, stream: Stream, table: _Table) -> InterestConfirmed:
        self._asked_at.pop(stream, None)
        self._current.add(stream)
        return InterestConfirmed(stream, table.incarnation, table.version)

    def _request(self, message: FromSender, now: float) -> InterestRequested | None:
        asked_at = self._asked_at.get(message.stream)
        if asked_at is not None and now < asked_at + ASK_S:
            return None
        self._asked_at[message.stream] = now
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
