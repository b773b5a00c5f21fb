"""Explanation of one past event for one subscription: the parts of its filter that decided (SPEC U-01)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa

from wanderbus import filters
from wanderbus.errors import StorageError
from wanderbus.event import Event
from wanderbus.filters.evaluate import evaluate
from wanderbus.filters.explaining import Deciding, deciding
from wanderbus.pipeline.history.event_columns import encoded_events, table_of
from wanderbus.pipeline.history.queries import Events, Matcher, at_offsets, in_workers, queries_of
from wanderbus.subscription import Subscription, concerns

_event: Final = msgspec.msgpack.Decoder(Event)


class Explanation(msgspec.Struct, frozen=True):
    """Outcome for the event at ``offset``; ``matches`` is None if the filter leaves it unknown, which is no match.

    ``predicates`` are the parts of the filter that decided; there are none if the subject is another one.
    """

    offset: int
    subject: str
    is_subject: bool
    matches: bool | None
    predicates: tuple[Deciding, ...] = ()


def explain(events: Events, subscription: Subscription, offset: int) -> Explanation:
    """Return the reason for which the event at ``offset`` matches ``subscription``, or does not.

    :class:`StorageError` if ``events`` has none there.
    """
    event = event_at(events, offset)
    if not concerns(subscription.subject, event.subject):
        return Explanation(offset, event.subject, False, False)
    root = filters.parse(subscription.expression, subscription.language).root
    return Explanation(offset, event.subject, True, evaluate(root, event), deciding(root, event))


def event_at(events: Events, offset: int) -> Event:
    """Return the event at ``offset``; :class:`StorageError` if there is none."""
    any_attribute = queries_of([])._replace(asked=None)
    rows = in_workers(at_offsets(events, [offset]), any_attribute, _encoded, "event binary")
    found = rows.take(1)
    if not found:
        raise StorageError(f"there is no event at offset {offset}; check the offset, and the subject")
    return _event.decode(found[0].event)


def _encoded(_: Matcher, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        table = table_of(batch)
        encoded = encoded_events(table, batch.column("subject").to_pylist(), range(len(table)))
        yield pa.RecordBatch.from_arrays([encoded], names=["event"])
