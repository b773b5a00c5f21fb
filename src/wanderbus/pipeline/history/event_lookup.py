"""One past event, found by Spark at its offset, and its explanation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from wanderbus.event import Event
from wanderbus.parameters.broker import FILTER_WORK_MAX
from wanderbus.pipeline.history.explanation import EventExplanation, encoded_rows, explanation_of, no_event
from wanderbus.pipeline.history.queries import queries_of
from wanderbus.pipeline.history.spark_batches import Events, at_offsets, in_workers
from wanderbus.subscription import Subscription

_event: Final = msgspec.msgpack.Decoder(Event)


def explain(
    events: Events,
    subscription: Subscription,
    offset: int,
    work_max: int = FILTER_WORK_MAX,
    children: Mapping[str, tuple[str, ...]] = {},
) -> EventExplanation:
    """Return the reason for which the event at ``offset`` matches ``subscription``, or does not.

    It stays undecided if the filter takes more than ``work_max`` units of work. :class:`StorageError` if ``events`` has
    none there. ``children`` are the subjects below others, whose events the subscription gets too.
    """
    return explanation_of(event_at(events, offset), subscription, offset, work_max, children)


def event_at(events: Events, offset: int) -> Event:
    """Return the event at ``offset``; :class:`StorageError` if there is none."""
    any_attribute = queries_of([])._replace(asked=None)
    rows = in_workers(at_offsets(events, [offset]), any_attribute, encoded_rows, "event binary")
    found = rows.take(1)
    if not found:
        raise no_event(offset)
    return _event.decode(found[0].event)
