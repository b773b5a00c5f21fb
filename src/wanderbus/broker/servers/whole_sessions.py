"""Sending of whole sessions: a server reads all subscriptions of its session together, in the order of the numbers.

A device reads each subscription on its own, so that one unread subscription does not hold back the others (SPEC G-25).
A server needs one order, and matches each event again itself: an event that still waits for one of its subscriptions is
sent once, and only numbers under which nothing is left make a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from wanderbus import protocol
from wanderbus.broker.queues.queue import SessionQueue
from wanderbus.broker.queues.queue_items import Hole, Item, Queued
from wanderbus.broker.reader_windows import ReaderWindows
from wanderbus.broker.readers import Link, Reader
from wanderbus.event import Loss

Send = Callable[[Link, protocol.BrokerMessage], None]
LossesOf = Callable[[str, Hole], tuple[Loss, ...]]


class WholeSessions:
    """Sends the items of a session to the server that reads it, a window ahead of its acknowledgements."""

    def __init__(self, windows: ReaderWindows, send: Send, losses_of: LossesOf) -> None:
        self._windows = windows
        self._send = send
        self._losses_of = losses_of

    def deliver(self, queue: SessionQueue, link: Link, newest: int, subscriptions: Iterable[str]) -> None:
        """Send what the window allows; ``subscriptions`` have got the item ``newest``, the last number of the session.

        Without ``subscriptions`` all of them may have something to send.
        """
        whole = link.whole
        assert whole is not None
        is_caught_up = whole.sent == newest - 1
        names = list(subscriptions if is_caught_up else ()) or list(queue.queues)
        while self._windows.has_room(link, whole):
            items = _next_items(queue, names, whole.sent)
            event = min((each for _, each in items if type(each) is Queued), key=_number, default=None)
            holes = [
                (name, each.beyond(whole.sent))
                for name, each in items
                if type(each) is Hole and (event is None or max(each.number, whole.sent + 1) < event.number)
            ]
            if holes:
                self._send_gap(link, whole, holes, event)
            elif event is not None:
                data = event.event
                notify = protocol.NotifyServer(event.number, whole.sent, data.id, data.at_us, msgspec.Raw(data.data))
                self._send(link, notify)
                whole.send(event)
            else:
                return

    def _send_gap(self, link: Link, whole: Reader, holes: list[tuple[str, Hole]], event: Queued | None) -> None:
        first, last = min(hole.number for _, hole in holes), max(hole.last for _, hole in holes)
        if event is not None:
            last = min(last, event.number - 1)
        lost = tuple(loss for name, hole in holes for loss in self._losses_of(name, hole))
        self._send(link, protocol.NotifyGap(first, last, lost))
        whole.send(Hole(first, last, {}))


def _next_items(queue: SessionQueue, names: Iterable[str], sent: int) -> list[tuple[str, Item]]:
    """Return the first unsent item of each of these subscriptions that has one."""
    queues = ((name, queue.queues.get(name)) for name in names)
    return [(name, item) for name, own in queues if own is not None and (item := own.after(sent)) is not None]


def _number(item: Queued) -> int:
    return item.number
