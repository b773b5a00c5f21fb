"""Rows that list what other servers want of decentralised channels, and what devices advertise (SPEC K-05, K-07)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from wanderbus.broker.state.rows import AdvertisementRow
from wanderbus.channels.interest.incoming_streams import IncomingStreams
from wanderbus.subscription import EVERY_SUBJECT


def route_rows(routes: IncomingStreams) -> Iterator[Mapping[str, Any]]:
    """Yield each filter of another server once, whichever leaders have spread it."""
    found = {
        (stream.origin, EVERY_SUBJECT if each.subject is None else each.subject, each.expression)
        for leader, stream in routes.routes()
        for each in routes.filters((leader, stream))
    }
    for server, subject, expression in sorted(found):
        yield {"server": server, "subject": subject, "expression": expression}


def advertisement_rows(advertisements: Iterable[AdvertisementRow]) -> Iterator[Mapping[str, Any]]:
    """Yield the advertisements in the order in which they were made."""
    for row in advertisements:
        yield {
            "advertisement": row.id,
            "user": row.user,
            "device": row.device,
            "subject": row.subject,
            "expression": row.expression,
            "language": row.language,
            "counts": row.counts,
        }
