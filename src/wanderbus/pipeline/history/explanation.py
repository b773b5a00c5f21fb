"""Explanation of one past event for one subscription: the parts of its filter that decided (SPEC U-01)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import pyarrow as pa

from wanderbus import filters
from wanderbus.errors import StorageError
from wanderbus.event import Event
from wanderbus.filters.evaluate import evaluate
from wanderbus.filters.explaining import Deciding, deciding
from wanderbus.filters.work import Sizes, work_of
from wanderbus.pipeline.history.event_columns import encoded_events, table_of
from wanderbus.pipeline.history.queries import QueryMatcher
from wanderbus.pipeline.subject_children import below
from wanderbus.subscription import Subscription, concerns


class EventExplanation(msgspec.Struct, frozen=True):
    """Outcome for the event at ``offset``; ``matches`` is None if the filter leaves it unknown, which is no match.

    ``predicates`` are the parts of the filter that decided; there are none if the subject is another one. ``undecided``
    are the units of work that the filter takes for the event, if it was not evaluated because they are too many.
    """

    offset: int
    subject: str
    is_subject: bool
    matches: bool | None
    predicates: tuple[Deciding, ...] = ()
    undecided: int | None = None


def explanation_of(
    event: Event, subscription: Subscription, offset: int, work_max: int, children: Mapping[str, tuple[str, ...]]
) -> EventExplanation:
    """Return the reason for which the ``event`` at ``offset`` matches ``subscription``, or does not.

    It stays undecided if the filter takes more than ``work_max`` units of work. ``children`` are the subjects below
    others, whose events the subscription gets too.
    """
    if not any(concerns(subject, event.subject) for subject in below(subscription.subject, children)):
        return EventExplanation(offset, event.subject, False, False)
    root = filters.parse(subscription.expression, subscription.language).root
    units = work_of(root).units(Sizes(event.attributes))
    if units > work_max:
        return EventExplanation(offset, event.subject, True, None, undecided=units)
    return EventExplanation(offset, event.subject, True, evaluate(root, event), deciding(root, event))


def no_event(offset: int) -> StorageError:
    """Return the error of an offset that has no event."""
    return StorageError(f"there is no event at offset {offset}; check the offset, and the subject")


def encoded_rows(_: QueryMatcher, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the events of batches, encoded."""
    for batch in batches:
        table = table_of(batch)
        encoded = encoded_events(table, batch.column("subject").to_pylist(), range(len(table)))
        yield pa.RecordBatch.from_arrays([encoded], names=["event"])
