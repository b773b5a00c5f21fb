"""Interest of the users of this server, for the domains that are connected with this one (SPEC M-01; decision 0161)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wanderbus.broker.interest.index_entries import IndexEntry
from wanderbus.broker.messages import DomesticInterestChanged
from wanderbus.broker.state.journal import Journal
from wanderbus.filters import Filter
from wanderbus.subscription import Subscription


class DomesticInterest:
    """Reports the subscriptions of users, each once from its begin, or that of its session's move here, to its end."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._reported: set[str] = set()

    def add(self, subscriptions: Iterable[tuple[Subscription, Sequence[IndexEntry]]]) -> None:
        """Report subscriptions with their entries, except those that are reported already."""
        added: dict[str, tuple[tuple[str, Filter], ...]] = {}
        for subscription, entries in subscriptions:
            if subscription.id not in self._reported:  # else its session was awaited, and is here now
                added[subscription.id] = tuple((each.subject, each.interest.filter) for each in entries)
        if added:
            self._reported.update(added)
            self._journal.emit(DomesticInterestChanged(added))

    def remove(self, subscription: str) -> None:
        """Report the end of a subscription here, once the record of it is durable."""
        if subscription in self._reported:
            self._reported.discard(subscription)
            self._journal.emit(DomesticInterestChanged({}, (subscription,)))
