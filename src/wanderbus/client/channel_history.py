"""History of an ordered channel by number, requested from the broker in pages (SPEC K-03).

If the channel has had several leaders, each has the events of its epochs. The cursor of an answer leads to the next.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.channel_events import ChannelEvent, NumbersGone, Place
from wanderbus.client.listed_rows import Pages, check_listed, read_rows
from wanderbus.client.requests import Requests
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import Event, EventId, Number, Position

_EVENTS: Final = 1_000
"""Most events per request."""

_DIGITS_MAX: Final = 19
"""Most digits of a number."""


class _Row(msgspec.Struct, frozen=True):
    """A row of the listing: an event, the lowest number that is kept, or why those of a former leader are left out."""

    kept_from: Number = 0
    led_before: str = ""
    epoch_before: Number = 0
    left_out: str = ""
    number: Number = 0
    epoch: Number = 0
    id: EventId | None = None
    user: str = ""
    at_us: int = 0
    event: Event | None = None


class _Reading:
    """The events of a channel that one leader has, page by page.

    When all of them are read, ``epoch_after`` is that of the next leader, and ``epoch_before`` that of the one before
    if this one has too few; 0 if there is none.
    """

    def __init__(self, requests: Requests, subject: str) -> None:
        self._requests = requests
        self._subject = subject
        self._pages = Pages("events")
        self.epoch_after = self.epoch_before = 0

    async def items(
        self, epoch: int, first: int | None, last: int | None, newest: int | None
    ) -> AsyncIterator[ChannelEvent | NumbersGone]:
        """Yield the events of the leader under ``epoch``."""
        self.epoch_after = self.epoch_before = 0
        searches = newest is not None
        while True:
            request = self._requests.next_request()
            answer = await self._requests.begin(
                protocol.ListEvents(request, self._subject, first, last, newest, _EVENTS, epoch=epoch)
            )
            for row in read_rows(_Row, "events", answer.rows):
                self.epoch_before = row.epoch_before or self.epoch_before
                if row.left_out or not (searches and row.epoch_before):
                    for item in _items(row):
                        yield item
            if (following := self._pages.next(answer.next)) is None:
                return
            following_epoch, first = _cursor(following)
            if first is None:
                self.epoch_after = following_epoch
                return
            epoch, newest = following_epoch or epoch, None  # the first answer begins with the oldest of them


async def history(
    requests: Requests, subject: str, first: Place, last: Place, newest: int | None
) -> AsyncIterator[ChannelEvent | NumbersGone]:
    """Yield the events of the channel of ``subject``; see :meth:`wanderbus.Agent.history`."""
    begin, end = _position(first), _position(last)
    reading = _Reading(requests, subject)
    if newest is not None:
        for item in await _newest(reading, begin, end, newest):
            yield item
        return
    epoch, number = (0, None) if begin is None else (begin.epoch, begin.number)
    while True:
        at_most = end.number if end is not None and end.epoch == epoch else None
        async for item in reading.items(epoch, number, at_most, None):
            if _is_within(item, begin, end):
                yield item
        epoch, number = reading.epoch_after, None
        if not epoch or (end is not None and epoch > end.epoch):
            return


async def _newest(
    reading: _Reading, begin: Position | None, end: Position | None, newest: int
) -> Sequence[ChannelEvent | NumbersGone]:
    """Return the newest events, which are searched from leader to leader backwards."""
    found: list[ChannelEvent | NumbersGone] = []
    epoch = 0 if end is None else end.epoch
    while newest > 0:
        at_least = begin.number if begin is not None and begin.epoch == epoch else None
        at_most = end.number if end is not None and end.epoch == epoch else None
        items = [each async for each in reading.items(epoch, at_least, at_most, newest)]
        found = [*items, *found]
        newest -= sum(isinstance(each, ChannelEvent) for each in items)
        epoch = reading.epoch_before
        if not epoch or (begin is not None and (not begin.epoch or epoch < begin.epoch)):
            break
    return [each for each in found if _is_within(each, begin, end)]


def _position(number: Place) -> Position | None:
    """Return a number as a position; without an epoch it is one of the present leader."""
    return Position(0, number) if isinstance(number, int) else number


def _is_within(item: ChannelEvent | NumbersGone, begin: Position | None, end: Position | None) -> bool:
    """Return whether an event is not before ``begin`` nor behind ``end``; the leader has compared numbers alone."""
    if not isinstance(item, ChannelEvent):
        return True
    place = Position(item.epoch, item.number)
    is_early = begin is not None and begin.epoch > 0 and place < begin
    is_late = end is not None and end.epoch > 0 and place > end
    return not (is_early or is_late)


def _cursor(text: str) -> tuple[int, int | None]:
    """Return the epoch in a cursor, 0 if it has none, and the number in it, None if another leader follows."""
    epoch, _, number = text.rpartition(":")
    if not all(
        each.isascii() and each.isdigit() and len(each) <= _DIGITS_MAX for each in (epoch or "0", number or "0")
    ):
        raise RemoteProtocolError("the broker's listing of events has a cursor that is no number", None)
    return int(epoch or "0"), int(number) if number else None


def _items(row: _Row) -> Iterator[ChannelEvent | NumbersGone]:
    if row.kept_from or row.led_before:
        yield NumbersGone(row.kept_from, row.led_before, row.left_out)
    if row.event is not None and row.id is not None:
        # Its past is for servers.
        event = check_listed(msgspec.structs.replace(row.event, past=msgspec.UNSET))
        size = len(protocol.encode_event(event))
        yield ChannelEvent(row.number, row.epoch, row.id, row.user, row.at_us, event, size)
