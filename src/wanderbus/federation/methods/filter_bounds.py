"""Bounds on the filters that a foreign domain may send, checked before a message is applied (SPEC M-01)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from wanderbus.channels.interest.messages import FromSender, InterestChanged, InterestWhole, NumberedFilter
from wanderbus.errors import RemoteProtocolError

FILTERS_MAX: Final = 1_000
"""Filters that a domain may send of each type; all types that it may not ask for count as one."""


def check_filters(
    table: Iterable[NumberedFilter], message: FromSender, types: Collection[str], filters_max: int = FILTERS_MAX
) -> None:
    """Check what a table will have after ``message``, if it applies.

    Raises :class:`RemoteProtocolError` for a filter of every subject, for a number or a filter that is there twice, and
    for more than ``filters_max`` filters of one type.
    """
    match message:
        case InterestWhole(filters=filters):
            kept: list[NumberedFilter] = []
            added = filters
        case InterestChanged(previous=previous, added=added, removed=removed):
            kept = [each for each in table if previous and each.number not in removed]
        case _:
            return
    if not added:
        return
    if any(each.subject is None for each in added):
        raise RemoteProtocolError("a filter between domains has no type", None)
    several = [*kept, *added]
    if len({each.number for each in several}) < len(several):
        raise RemoteProtocolError("two filters of a domain have one number", None)
    if len({(each.subject, each.expression) for each in several}) < len(several):
        raise RemoteProtocolError("a domain has sent one filter twice", None)
    counts = Counter(each.subject if each.subject in types else None for each in several)
    for subject, count in counts.items():
        if count > filters_max:
            of = "types that are not sent to it" if subject is None else subject
            raise RemoteProtocolError(f"{count} filters of {of} (expected at most {filters_max})", None)
