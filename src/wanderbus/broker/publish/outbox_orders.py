"""Orders of outboxes on one link: of devices here or at another server, and of the devices of foreign domains.

A gateway publishes for each device of a foreign domain as an outbox does. But it does not send an event again that was
accepted before, or that is too large, and it may give one up whose log is gone. So these refusals hold back nothing,
epochs are apart, and their number is bounded: another domain chooses them.
"""

from __future__ import annotations

from typing import Final

from wanderbus import protocol
from wanderbus.broker.publish.decisions import Source
from wanderbus.broker.publish.foreign_order import ForeignOrder
from wanderbus.broker.readers import Link
from wanderbus.protocol.outbox_order import OutboxOrder

_FINAL: Final = frozenset((protocol.NUMBER_USED, "event_bytes_max"))
"""Limits of refusals after which a gateway goes on with the next event."""


def awaited(link: Link, source: Source, accepted: int = 0) -> str | None:
    """Return the limit that an earlier event of an outbox has met which has to be accepted first, None if none has to.

    One of a foreign domain up to number ``accepted`` was accepted meanwhile: another gateway has sent it elsewhere.
    """
    if not source.is_outbox:
        return None
    if source.is_foreign:
        foreign, outbox = link.foreign_order, (source.key, source.epoch)
        if foreign is None:
            return None
        foreign.passed(outbox, accepted)
        return foreign.before(outbox, source.number)
    return None if link.outbox_order is None else link.outbox_order.before(source.key, source.number)


def sent_again(link: Link, source: Source) -> None:
    """Let other events of an outbox follow this one."""
    if source.is_foreign and link.foreign_order is not None:
        link.foreign_order.sent_again((source.key, source.epoch), source.number)
    elif source.is_outbox and not source.is_foreign and link.outbox_order is not None:
        link.outbox_order.sent_again(source.key, source.number)


def refused(link: Link, source: Source, limit: str | None) -> None:
    """Let the events of an outbox wait that follow one which was refused for ``limit``, if that is temporary."""
    if not source.is_outbox or limit is None:
        return
    if source.is_foreign:
        refused_foreign(link, (source.key, source.epoch), source.number, limit)
    else:
        link.outbox_order = link.outbox_order or OutboxOrder()
        link.outbox_order.refused(source.key, source.number, limit)


def refused_foreign(link: Link, outbox: tuple[str, int], number: int, limit: str | None) -> None:
    """Do the same for a device of a foreign domain: the key of its row, and the epoch."""
    if holds_back(limit):
        if link.foreign_order is None:
            link.foreign_order = ForeignOrder()
        link.foreign_order.refused(outbox, number, str(limit))


def holds_back(limit: str | None) -> bool:
    """Return whether a gateway sends an event again that was refused for ``limit``, before any later one."""
    return limit is not None and limit not in _FINAL
