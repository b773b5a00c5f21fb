"""Filters of the own domain at others, for the subscriptions of a session that comes from one of them (SPEC L-05)."""

from __future__ import annotations

from collections.abc import Iterable

from wanderbus.broker.servers.interest_requests import with_entries
from wanderbus.channels.interest.messages import NumberedFilter
from wanderbus.peers.far_servers import FarDomains
from wanderbus.peers.handover.messages import WantedOf
from wanderbus.subscription import EVERY_SUBJECT, Subscription


def wanted_of(domains: FarDomains, subscriptions: Iterable[Subscription]) -> tuple[WantedOf, ...]:
    """Return the filters that the gateways here ask each foreign domain for, because of these subscriptions."""
    entries = [entry for _, several in with_entries(subscriptions) for entry in several]
    found: list[WantedOf] = []
    for name, domain in sorted(domains.foreign.items()):
        filters = [
            NumberedFilter(place, each, str(entry.interest.filter))
            for place, entry in enumerate(entries)
            for each in sorted(domain.receives)
            if entry.subject in (EVERY_SUBJECT, *domains.lineage(each))
        ]
        if filters:
            found.append(WantedOf(name, tuple(filters)))
    return tuple(found)
