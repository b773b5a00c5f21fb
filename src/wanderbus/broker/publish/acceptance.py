"""Acceptance of a published event: it is new, in its turn, permitted and valid (SPEC A-13, X25; DESIGN 5.2).

:func:`accept` decides this alone. The sessions that get the event are another decision, which takes an accepted event:
see :mod:`wanderbus.broker.publish.delivery`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from zlib import crc32

import msgspec

from wanderbus import protocol
from wanderbus.broker.publish.decisions import Conditions, Offered, Rejected, Repeated, Source
from wanderbus.broker.state.rows import PublisherRow
from wanderbus.errors import EventError, LimitExceeded, RemoteProtocolError
from wanderbus.event import Event, EventId, check_event, too_large
from wanderbus.limits import EVENT_BYTES_MAX, ORIGIN_BYTES_MAX, PAST_BYTES_MAX
from wanderbus.protocol.outbox_order import OUT_OF_TURN
from wanderbus.records import Acceptance
from wanderbus.subscription import check_event_subject

NUMBER_USED: Final = Rejected(
    "its number was another event's: the publisher was restored from a copy, or is in use twice", protocol.NUMBER_USED
)
ANSWER_UNKNOWN: Final = Rejected(
    "its number was used, and the answer is not remembered: publish it in another epoch", protocol.NUMBER_USED
)
DISK_FULL: Final = "the disk of the broker is full; nothing was stored, try again later"


def accept(
    offered: Offered,
    source: Source,
    awaited: str | None,
    publisher: PublisherRow | None,
    next_id: EventId,
    now: Conditions,
    identity: Callable[[int], EventId],
) -> Acceptance | Repeated | Rejected:
    """Return the decision about an event, which ``source`` identifies; nothing changes.

    ``publisher`` is the row of its publisher, ``awaited`` the bound that an earlier event of its outbox has met, which
    has to be accepted before. The event gets ``next_id`` if its record is the next one. ``identity`` returns the id of
    an event that this server has accepted, by its number.
    """
    number = source.number
    if publisher is not None and (is_repeated(publisher, source.epoch, number) or _came_along(publisher, source)):
        return _answer_again(offered, source, publisher, identity)
    if awaited is not None:
        return Rejected(OUT_OF_TURN, awaited)
    if now.is_disk_full:
        return Rejected(DISK_FULL, "disk_full")
    if refusal := permission_refusal(source, offered, now):
        return refusal
    if offered.rejected is not None:
        return offered.rejected
    raw = msgspec.Raw(offered.encoded)
    received_us = None if source.received_us == now.at_us else source.received_us
    return Acceptance(next_id, raw, source.user, source.device, source.epoch, number, source.is_outbox, received_us)


def permission_refusal(source: Source, offered: Offered, now: Conditions) -> Rejected | None:
    """Return the refusal of an event that its user may not publish.

    What is received from a foreign domain is decided where it comes in.
    """
    refusal = None if source.is_foreign else now.permissions.refusal(source.user, offered.event.subject)
    return Rejected(refusal) if refusal else None


def accepted_as(
    offered: Offered, source: Source, publisher: PublisherRow | None, identity: Callable[[int], EventId]
) -> EventId | None:
    """Return the id that an event has got here, or with a session that has moved here; None if it is not known."""
    if publisher is None or publisher.epoch != source.epoch:
        return None
    answer = _first_answer(publisher, source.number, identity)
    return answer if answer is not None and _is_same(offered, source.number, publisher) else None


def _answer_again(
    offered: Offered, source: Source, publisher: PublisherRow, identity: Callable[[int], EventId]
) -> Repeated | Rejected:
    """Return the first answer if the event is the one that had the number then; refuse another event.

    A publisher that was restored from a copy, or copied while it ran, uses numbers again for other events. An outbox
    waits for its answers with fewer numbers than are remembered, and begins an epoch when it waits for none: without an
    answer, an event of it was another one, or was refused, so that it can be published in another epoch. One of a
    foreign domain was accepted before: its gateways send nothing behind an event that was refused.
    """
    number = source.number
    is_earlier = publisher.epoch != source.epoch
    if is_earlier and source.is_forwarded and not source.is_foreign:
        return Repeated(None)
    answer = None if is_earlier else _first_answer(publisher, number, identity)
    if answer is None:
        return ANSWER_UNKNOWN if source.is_outbox else Repeated(None)
    return Repeated(answer) if _is_same(offered, number, publisher) else NUMBER_USED


def _is_same(offered: Offered, number: int, publisher: PublisherRow) -> bool:
    """Return whether the event is the one that had ``number``, as far as that is remembered."""
    return publisher.digests.get(number) in (None, crc32(offered.encoded))


def _first_answer(publisher: PublisherRow, number: int, identity: Callable[[int], EventId]) -> EventId | None:
    if (own := publisher.recent.get(number)) is not None:
        return identity(own)
    return publisher.elsewhere.get(number)


def is_repeated(publisher: PublisherRow, epoch: int, number: int) -> bool:
    """Return whether the publisher has used ``number``, or a higher one, in this epoch."""
    return number <= (publisher.number if publisher.epoch == epoch else publisher.former.get(epoch, 0))


def _came_along(publisher: PublisherRow, source: Source) -> bool:
    """Return whether another server has answered this publish, and said so with the session of its device."""
    return source.number in publisher.elsewhere and publisher.epoch == source.epoch


def offered(event: Event | msgspec.Raw, bytes_max: int) -> Offered:
    """Return an event with its bytes: those of another server as they are, encoded here if it comes from an agent.

    An agent's own bytes may differ from those of any encoder, and hold what no reader of the log would expect. Only
    what gateways publish has an origin, and a past.
    """
    encoded = b""
    try:
        if isinstance(event, msgspec.Raw):
            encoded = bytes(event)
            event = protocol.decode_event(encoded)
        elif event.origin or event.past:
            event = msgspec.structs.replace(event, origin=msgspec.UNSET, past=msgspec.UNSET)
        check_published(event)
        encoded = encoded or protocol.encode_event(event)
        check_size(
            encoded, bytes_max + (ORIGIN_BYTES_MAX if event.origin else 0) + (PAST_BYTES_MAX if event.past else 0)
        )
    except (EventError, LimitExceeded, RemoteProtocolError) as error:
        limit = error.limit if isinstance(error, LimitExceeded) else None
        named = event if isinstance(event, Event) else Event("", {})
        return Offered(named, encoded, Rejected(protocol.shortened(error), limit))
    return Offered(event, encoded)


def checked_bytes(event: Event, bytes_max: int = EVENT_BYTES_MAX) -> bytes:
    """Return the bytes of an event.

    Raise :class:`EventError` for one that may not be published, :class:`LimitExceeded` for one above ``bytes_max``.
    """
    check_published(event)
    encoded = protocol.encode_event(event)
    check_size(encoded, bytes_max)
    return encoded


def check_published(event: Event) -> None:
    """Raise :class:`EventError` for an event that may not be published, whatever its size."""
    check_event(event)
    check_event_subject(event.subject)


def check_size(encoded: bytes, bytes_max: int) -> None:
    """Raise :class:`LimitExceeded` for an event with more than ``bytes_max`` bytes."""
    if len(encoded) > bytes_max:
        raise too_large(len(encoded), bytes_max)
