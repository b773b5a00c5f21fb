"""Acceptance of a published event: it is new, in its turn, permitted and valid (SPEC A-13, X25; DESIGN 5.2).

:func:`accept` decides this alone. The sessions that get the event are another decision, which takes an accepted event:
see :mod:`wanderbus.broker.publish.delivery`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.broker.publish.decisions import Conditions, Rejected, Repeated, Source
from wanderbus.broker.state.rows import PublisherRow
from wanderbus.errors import EventError
from wanderbus.event import Event, EventId, check_event
from wanderbus.limits import EVENT_BYTES_MAX
from wanderbus.records import Acceptance

DISK_FULL: Final = "the disk of the broker is full; nothing was stored, try again later"


def accept(
    event: Event,
    encoded: bytes | None,
    source: Source,
    held_up: tuple[int, str] | None,
    publisher: PublisherRow | None,
    next_id: EventId,
    now: Conditions,
) -> Acceptance | Repeated | Rejected:
    """Return the decision about ``event``, which ``source`` identifies; nothing changes.

    ``publisher`` is the row of its publisher, ``held_up`` that outbox's event that was refused temporarily, and the
    bound that it met. ``encoded`` are the bytes of the event if it was checked already. It gets ``next_id`` if its
    record is the next one.
    """
    number = source.number
    if publisher is not None and is_repeated(publisher, source.epoch, number):
        return Repeated(_first_answer(publisher, number, next_id) if publisher.epoch == source.epoch else None)
    if source.is_outbox and not is_in_turn(number, held_up):
        return out_of_turn(held_up)
    if now.is_disk_full:
        return Rejected(DISK_FULL, "disk_full")
    if refusal := now.permissions.refusal(source.user, event.subject):
        return Rejected(refusal)
    try:
        raw = msgspec.Raw(encoded or checked_bytes(event))
    except EventError as error:
        return Rejected(protocol.shortened(error))
    received_us = None if source.received_us == now.at_us else source.received_us
    return Acceptance(next_id, raw, source.user, source.device, source.epoch, number, source.is_outbox, received_us)


def _first_answer(publisher: PublisherRow, number: int, next_id: EventId) -> EventId | None:
    if (own := publisher.recent.get(number)) is not None:
        return EventId(next_id.origin, next_id.incarnation, own)
    return publisher.elsewhere.get(number)


def is_repeated(publisher: PublisherRow, epoch: int, number: int) -> bool:
    """Return whether the publisher has used ``number``, or a higher one, in this epoch."""
    return number <= (publisher.number if publisher.epoch == epoch else publisher.former.get(epoch, 0))


def is_in_turn(number: int, held_up: tuple[int, str] | None) -> bool:
    """Return whether all earlier events of the outbox were accepted.

    A number counts as a repeat once a higher one was accepted, so no event may overtake another (SPEC X25).
    """
    return held_up is None or number <= held_up[0]


def out_of_turn(held_up: tuple[int, str] | None) -> Rejected:
    """Return the refusal of an event of an outbox that is not in its turn."""
    return Rejected("an earlier event of the outbox must be accepted first", held_up[1] if held_up else None)


def checked_bytes(event: Event) -> bytes:
    """Return the bytes of an event; :class:`EventError` for one that may not be published or fits no notification."""
    check_event(event)
    encoded = protocol.encode_event(event)
    if len(encoded) > EVENT_BYTES_MAX:
        raise EventError(f"the event takes {len(encoded)} bytes; the limit is {EVENT_BYTES_MAX} (event_bytes_max)")
    return encoded
