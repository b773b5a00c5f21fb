"""Orders of outboxes on links: of devices here or at another server, and of the devices of foreign domains.

A gateway publishes for each device of a foreign domain as an outbox does. But it does not send an event again that was
accepted before, or that is too large, and it may give one up whose log is gone. So these refusals hold back nothing,
epochs are apart, and their number is bounded: another domain chooses them.
"""

from __future__ import annotations

from typing import Final

from wanderbus import protocol
from wanderbus.broker.links import Links
from wanderbus.broker.publish.decisions import Source
from wanderbus.broker.readers import Link
from wanderbus.protocol.outbox_order import OutboxOrder, is_temporary

FOREIGN_ORDERS_MAX: Final = 1_024
"""Devices of foreign domains, each in one of its epochs, with refused events on a link."""

_FINAL: Final = frozenset((protocol.NUMBER_USED, "event_bytes_max"))
"""Limits of refusals after which a gateway goes on with the next event."""


class OutboxOrders:
    """The orders that a server keeps of what is published on its links.

    A device may publish at another server meanwhile, and a gateway may be replaced. So an event that is accepted on one
    link releases what follows it on all links.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        self._shared: set[int] = set()
        """Links of servers and foreign domains with refused events."""

    def awaited(self, link: Link, source: Source, accepted: int = 0) -> str | None:
        """Return the limit that an earlier event of an outbox has met which has to be accepted first, None without one.

        One of a foreign domain up to number ``accepted`` was accepted meanwhile, here or where its channel was led.
        """
        if not source.is_outbox:
            return None
        if source.is_foreign:
            foreign, outbox = link.foreign_order, (source.key, source.epoch)
            if foreign is None:
                return None
            foreign.passed(outbox, accepted)
            return foreign.before(outbox, source.number)
        order = link.outbox_order
        return None if order is None else order.before(source.key, source.number, epoch=source.epoch)

    def sent_again(self, link: Link, source: Source) -> None:
        """Let other events of an outbox follow this one."""
        if not source.is_outbox:
            return
        if source.is_foreign:
            if link.foreign_order is not None:
                link.foreign_order.sent_again((source.key, source.epoch), source.number)
        elif link.outbox_order is not None:
            link.outbox_order.sent_again(source.key, source.number, epoch=source.epoch)

    def accepted(self, link: Link, source: Source) -> None:
        """Let later events of an outbox follow this one, on whichever link they come."""
        if source.is_outbox:
            _passed(link, source)
            for number in [*self._shared]:
                other = self._links.get(number)
                if other is None or not _passed(other, source):
                    self._shared.discard(number)

    def refused(self, link: Link, source: Source, limit: str | None) -> None:
        """Let the events of an outbox wait that follow one which was refused for ``limit``, if that is temporary."""
        if source.is_outbox and holds_back(limit, is_foreign=source.is_foreign):
            hold_back(link, (source.key, source.epoch), source.number, str(limit), is_foreign=source.is_foreign)
            if link.reads_whole:
                self._shared.add(link.link)


def holds_back(limit: str | None, *, is_foreign: bool) -> bool:
    """Return whether an event that was refused for ``limit`` is sent again, before any later one of its outbox."""
    return limit is not None and limit not in _FINAL if is_foreign else is_temporary(limit)


def hold_back(link: Link, outbox: tuple[str, int], number: int, limit: str, *, is_foreign: bool) -> None:
    """Let what follows event ``number`` of an outbox wait on a link: the key of its row, and the epoch."""
    if is_foreign:
        if link.foreign_order is None:
            link.foreign_order = OutboxOrder(outboxes_max=FOREIGN_ORDERS_MAX)
        link.foreign_order.refused(outbox, number, limit)
    else:
        key, epoch = outbox
        link.outbox_order = link.outbox_order or OutboxOrder()
        link.outbox_order.refused(key, number, limit, epoch=epoch)


def _passed(link: Link, source: Source) -> bool:
    """Forget the refused events of an outbox on a link up to the accepted one; return whether there are others."""
    if source.is_foreign and link.foreign_order is not None:
        link.foreign_order.passed((source.key, source.epoch), source.number)
    elif not source.is_foreign and link.outbox_order is not None:
        link.outbox_order.passed(source.key, source.number, epoch=source.epoch)
    return bool(link.outbox_order or link.foreign_order)
