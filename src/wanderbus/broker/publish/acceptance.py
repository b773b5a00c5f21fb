"""Acceptance of a published event: it is new, in its turn, permitted and valid (SPEC A-13, X25; DESIGN 5.2).

:func:`accept` decides this alone. The sessions that get the event are another decision, which takes an accepted event:
see :mod:`wanderbus.broker.publish.delivery`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.broker.publish.decisions import Accepted, Candidate, Conditions, Rejected, Repeated
from wanderbus.broker.state.rows import PublisherRow
from wanderbus.errors import EventError
from wanderbus.event import Event, EventId, check_event
from wanderbus.limits import EVENT_BYTES_MAX
from wanderbus.records import Acceptance

DISK_FULL: Final = "the disk of the broker is full; nothing was stored, try again later"


def accept(
    candidate: Candidate, publisher: PublisherRow | None, next_id: EventId, now: Conditions
) -> Accepted | Repeated | Rejected:
    """Return the decision about an event of ``publisher``; nothing changes.

    It gets ``next_id`` if it is accepted, and its record is the next one.
    """
    if publisher is not None and is_repeated(publisher, candidate.epoch, candidate.number):
        return Repeated(_first_answer(publisher, candidate.number, next_id))
    if candidate.outbox and not is_in_turn(candidate.number, candidate.held_up):
        return Rejected(
            "an earlier event of the outbox must be accepted first", candidate.held_up[1] if candidate.held_up else None
        )
    if now.is_disk_full:
        return Rejected(DISK_FULL, "disk_full")
    if refusal := now.permissions.refusal(candidate.user, candidate.event.subject):
        return Rejected(refusal)
    try:
        encoded = candidate.encoded or checked_bytes(candidate.event)
    except EventError as error:
        return Rejected(protocol.shortened(error))
    acceptance = Acceptance(
        next_id,
        msgspec.Raw(encoded),
        candidate.user,
        candidate.device,
        candidate.epoch,
        candidate.number,
        candidate.outbox,
        None if now.received_us == now.at_us else now.received_us,
    )
    return Accepted(candidate.event, acceptance, len(encoded))


def _first_answer(publisher: PublisherRow, number: int, next_id: EventId) -> EventId | None:
    if (own := publisher.recent.get(number)) is not None:
        return EventId(next_id.origin, next_id.incarnation, own)
    return publisher.elsewhere.get(number)


def is_repeated(publisher: PublisherRow, epoch: int, number: int) -> bool:
    """Return whether the publisher has used ``number``, or a higher one, in this epoch."""
    return number <= publisher.number and publisher.epoch == epoch


def is_in_turn(number: int, held_up: tuple[int, str] | None) -> bool:
    """Return whether all earlier events of the outbox were accepted.

    A number counts as a repeat once a higher one was accepted, so no event may overtake another (SPEC X25).
    """
    return held_up is None or number <= held_up[0]


def checked_bytes(event: Event) -> bytes:
    """Return the bytes of an event; :class:`EventError` for one that may not be published or fits no notification."""
    check_event(event)
    encoded = protocol.encode_event(event)
    if len(encoded) > EVENT_BYTES_MAX:
        raise EventError(f"the event takes {len(encoded)} bytes; the limit is {EVENT_BYTES_MAX} (event_bytes_max)")
    return encoded
