"""Sending of whole sessions: a server reads all subscriptions of its session together, in the order of the numbers.

A device reads each subscription on its own, so that one unread subscription does not hold back the others (SPEC G-25).
A server needs one order, and matches each event again itself: an event that still waits for one of its subscriptions is
sent once, and only numbers under which nothing is left make a gap.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter

import msgspec

from wanderbus import protocol
from wanderbus.broker.queues.queue import SessionQueue
from wanderbus.broker.queues.queue_items import Queued, QueuedGap
from wanderbus.broker.reader_windows import ReaderWindows
from wanderbus.broker.readers import Link, OpenReader
from wanderbus.broker.servers.session_head import SessionHead
from wanderbus.event import Loss

Send = Callable[[Link, protocol.BrokerMessage], None]
LossesOf = Callable[[str, QueuedGap], tuple[Loss, ...]]


class ServerReaders:
    """Sends the items of a session to the server that reads it, a window ahead of its acknowledgements."""

    def __init__(self, windows: ReaderWindows, send: Send, losses_of: LossesOf) -> None:
        self._windows = windows
        self._send = send
        self._losses_of = losses_of

    def deliver(self, queue: SessionQueue, link: Link, newest: int) -> None:
        """Send what the window allows; ``newest`` is the last number of the session."""
        whole = link.whole
        assert whole is not None
        while whole.sent < newest and self._windows.has_room(link, whole):
            if (event := queue.waiting(whole.sent + 1)) is None:
                # A number is missing: its event was dropped, or waits for no subscription any more.
                self._send_items(queue, link, whole)
                return
            self._send_event(link, whole, event)

    def _send_items(self, queue: SessionQueue, link: Link, whole: OpenReader) -> None:
        """Send gaps, and the events between them."""
        heads = _heads(queue, whole.sent)
        while heads and self._windows.has_room(link, whole):
            gaps: list[SessionHead] = []
            while heads and heads[0].is_hole:
                gaps.append(heappop(heads))
            event = heads[0].item if heads else None
            assert type(event) is not QueuedGap
            if gaps:
                # A gap may end before the others: what is left of them is looked up again.
                self._send_gap(link, whole, sorted(gaps, key=_place), event)
                for each in gaps:
                    heappush(heads, each)
            elif event is not None:
                self._send_event(link, whole, event)
            _pass(queue, heads, whole.sent)

    def _send_event(self, link: Link, whole: OpenReader, event: Queued) -> None:
        data = event.event
        self._send(link, protocol.NotifyServer(event.number, whole.sent, data.id, data.at_us, msgspec.Raw(data.data)))
        whole.send(event)

    def _send_gap(self, link: Link, whole: OpenReader, heads: list[SessionHead], event: Queued | None) -> None:
        gaps = [(each.subscription, each.item.beyond(whole.sent)) for each in heads if type(each.item) is QueuedGap]
        first, last = min(gap.number for _, gap in gaps), max(gap.last for _, gap in gaps)
        if event is not None:
            last = min(last, event.number - 1)
        lost = tuple(loss for name, gap in gaps for loss in self._losses_of(name, gap))
        self._send(link, protocol.NotifyGap(first, last, lost))
        whole.send(QueuedGap(first, last, {}))


_place = attrgetter("place")


def _heads(queue: SessionQueue, sent: int) -> list[SessionHead]:
    """Return a heap of the first unsent item of each subscription that has one."""
    found = [_head(queue, place, name, sent) for place, name in enumerate(queue.queues)]
    heads = [each for each in found if each is not None]
    heapify(heads)
    return heads


def _head(queue: SessionQueue, place: int, name: str, sent: int) -> SessionHead | None:
    item = queue.after(name, sent)
    return None if item is None else SessionHead(max(item.number, sent + 1), type(item) is QueuedGap, place, name, item)


def _pass(queue: SessionQueue, heads: list[SessionHead], sent: int) -> None:
    """Replace the heads that were sent, with all up to number ``sent``, by the next items of their subscriptions."""
    while heads and (first := heads[0]).number <= sent:
        following = _head(queue, first.place, first.subscription, sent)
        if following is None:
            heappop(heads)
        else:
            heapreplace(heads, following)
