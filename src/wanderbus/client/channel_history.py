"""History of an ordered channel by number, requested from the broker in pages (SPEC K-03)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.channel_events import ChannelEvent, NumbersGone
from wanderbus.client.listed_rows import Pages, check_listed, read_rows
from wanderbus.client.requests import Requests
from wanderbus.event import Event, EventId, Number

_EVENTS: Final = 1_000
"""Most events per request."""


class _Row(msgspec.Struct, frozen=True):
    """A row of the listing: an event, or the lowest number that is kept."""

    kept_from: Number = 0
    led_before: str = ""
    number: Number = 0
    epoch: Number = 0
    id: EventId | None = None
    user: str = ""
    at_us: int = 0
    event: Event | None = None


async def history(
    requests: Requests, subject: str, first: int | None, last: int | None, newest: int | None
) -> AsyncIterator[ChannelEvent | NumbersGone]:
    """Yield the events of the channel of ``subject``; see :meth:`wanderbus.Agent.history`."""
    pages = Pages("events")
    while True:
        request = protocol.ListEvents(requests.next_request(), subject, first, last, newest, _EVENTS)
        answer = await requests.begin(request)
        for row in read_rows(_Row, "events", answer.rows):
            for item in _items(row):
                yield item
        if (first := pages.next_number(answer.next)) is None:
            return
        newest = None  # the first answer begins with the oldest of them


def _items(row: _Row) -> Iterator[ChannelEvent | NumbersGone]:
    if row.kept_from:
        yield NumbersGone(row.kept_from, row.led_before)
    if row.event is not None and row.id is not None:
        size = len(protocol.encode_event(row.event))
        event = check_listed(row.event)
        yield ChannelEvent(row.number, row.epoch, row.id, row.user, row.at_us, event, size)
