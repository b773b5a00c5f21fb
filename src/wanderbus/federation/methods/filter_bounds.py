"""Bounds on the filters that a foreign domain may send, checked before a message is applied (SPEC M-01)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from wanderbus.channels.interest.incoming_streams import IncomingStreams, Route
from wanderbus.channels.interest.messages import FromSender, InterestChanged, InterestWhole, NumberedFilter
from wanderbus.errors import RemoteProtocolError

FILTERS_MAX: Final = 1_000
"""Filters that a domain may send of each type; all types that it may not ask for count as one."""

TYPES_MAX: Final = 1_000
"""Types that a domain may name in one message."""

DOMAINS_MAX: Final = 200
"""Domains of a federation, and so the streams that a rendezvous may spread to one domain."""


def check_filters(
    tables: IncomingStreams,
    route: Route,
    message: FromSender,
    types: Collection[str],
    filters_max: int = FILTERS_MAX,
) -> None:
    """Check what the table of ``route`` will have after ``message``, if that applies.

    Raises :class:`RemoteProtocolError` for a filter of every subject, for a number or a filter that is there twice, and
    for more than ``filters_max`` filters of one type.
    """
    several = _filters_after(tables, route, message)
    if any(each.subject is None for each in several):
        raise RemoteProtocolError("a filter between domains has no type", None)
    if len({each.number for each in several}) < len(several):
        raise RemoteProtocolError("two filters of a domain have one number", None)
    if len({(each.subject, each.expression) for each in several}) < len(several):
        raise RemoteProtocolError("a domain has sent one filter twice", None)
    counts = Counter(each.subject if each.subject in types else None for each in several)
    for subject, count in counts.items():
        if count > filters_max:
            of = "types that are not sent to it" if subject is None else subject
            raise RemoteProtocolError(f"{count} filters of {of} (expected at most {filters_max})", None)


def _filters_after(tables: IncomingStreams, route: Route, message: FromSender) -> list[NumberedFilter]:
    match message:
        case InterestWhole(filters=filters):
            return list(filters)
        case InterestChanged(previous=previous, added=added, removed=removed):
            is_next = tables.position(route) == (message.incarnation, previous)
            gone = set(removed)
            kept = [each for each in tables.filters(route) if each.number not in gone] if is_next and added else []
            return [*kept, *added]
    return []
