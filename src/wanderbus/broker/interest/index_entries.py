"""Entries of the matching index: one for a subscription with a filter, one for each step of a pattern (SPEC T-07)."""

from __future__ import annotations

from typing import NamedTuple

from wanderbus.broker.interest.measured_filter import MeasuredFilter, measured, read_filter
from wanderbus.broker.state.pattern_states import compiled
from wanderbus.errors import FilterError
from wanderbus.subscription import PATTERN, Subscription


class IndexEntry(NamedTuple):
    """A subject and a filter of a subscription; ``step`` is that of a pattern, else None."""

    subject: str
    interest: MeasuredFilter
    step: int | None = None


def entries_of(subscription: Subscription) -> tuple[IndexEntry, ...]:
    """Return the entries of a subscription; :class:`FilterError` if its expression cannot be read."""
    if subscription.language != PATTERN:
        return (IndexEntry(subscription.subject, read_filter(subscription.expression, subscription.language)),)
    leaves = enumerate(compiled(subscription.expression).leaves)
    return tuple(IndexEntry(leaf.subject, measured(leaf.filter), step) for step, leaf in leaves)


def subjects_of(subscription: Subscription) -> tuple[str, ...]:
    """Return the subjects of the events that a subscription can match, none if its expression cannot be read."""
    if subscription.language != PATTERN:
        return (subscription.subject,)
    try:
        return tuple(leaf.subject for leaf in compiled(subscription.expression).leaves)
    except FilterError:
        return ()
