"""First unsent item of one subscription of a session that is sent whole."""

from __future__ import annotations

from typing import NamedTuple

from wanderbus.broker.queues.queue_items import Item


class SessionHead(NamedTuple):
    """First unsent item of a subscription; heads are in the order of sending."""

    number: int
    """First unsent number of the item."""
    is_hole: bool
    """True for a gap; it follows an event of the same number."""
    place: int
    """Place of the subscription among the others; no two are equal."""
    subscription: str
    item: Item
