"""Check of the restrictions on notifications of past events."""

from __future__ import annotations

from collections.abc import Sequence

from wanderbus import protocol
from wanderbus.broker.links import Links
from wanderbus.broker.messages import PastEvent
from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.restrictions.restriction_check import blocked_by
from wanderbus.subscription import Restriction


def past_blocked_by(
    restrictions: Sequence[Restriction],
    owner: str,
    event: PastEvent,
    last_us: int | None,
    links: Links,
    kinds: CustomRestrictions,
) -> int | None:
    """Return the place of the first restriction that forbids a notification of ``owner``, None if none does.

    The times are those at which the event was accepted, and ``last_us`` that of the last notification. The User Status
    is the present one.
    """
    if not restrictions:
        return None
    return blocked_by(
        restrictions,
        now_us=event.at_us,
        received_us=event.received_us,
        last_us=last_us,
        away=links.status(owner) == "DISCONNECTED",
        event=protocol.decode_event(event.event),
        kinds=kinds,
    )
