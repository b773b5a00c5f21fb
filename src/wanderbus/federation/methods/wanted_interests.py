"""Interests whose events are to be sent to each domain: the union of what all routes say (SPEC M-01)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.covering_set import InterestChange
from wanderbus.channels.interest.incoming_streams import IncomingStreams, Route, StreamResult, interests_of
from wanderbus.channels.interest.messages import FromSender, InterestChanged, NumberedFilter

May = Callable[[str], bool]
"""Function: whether events of a type may be sent to the domain."""


class WantedInterests:
    """Interests by domain, each with the number of filters that say so; one that two methods carry is there once."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[Interest, int]] = {}
        self._changed: dict[str, dict[Interest, bool]] = {}
        self._routes: dict[Hashable, dict[int, tuple[Interest, ...]]] = {}
        """Interests of each filter of a route, by its number."""
        self._held: dict[tuple[str, str], list[Interest]] = {}
        """Interests that stay though no route may say so, by domain and type."""
        self._news: dict[str, None] = {}

    def of(self, domain: str) -> list[Interest]:
        """Return the interests of a domain."""
        return list(self._counts.get(domain, ()))

    def apply(
        self,
        way: str,
        domain: str,
        tables: IncomingStreams,
        route: Route,
        message: FromSender,
        result: StreamResult,
        may: May,
    ) -> None:
        """Apply what a message on ``route`` has changed; its filters are those of ``domain``."""
        if result.answer is not None:
            self._news[domain] = None
        key = way, domain, route
        if isinstance(message, InterestChanged) and message.previous and key in self._routes:
            removed = [each.number for each in result.removed]
            self._change(key, domain, removed, result.added, may)
        else:
            # The whole may have the same filters under other numbers: those of a later life.
            self._change(key, domain, list(self._routes.get(key, ())), tables.filters(route), may)

    def drop(self, way: str, domain: str, route: Route) -> None:
        """Remove what a route says."""
        key = way, domain, route
        self._change(key, domain, list(self._routes.get(key, ())), (), lambda type: False)
        self._routes.pop(key, None)

    def hold(self, domain: str, type: str) -> None:
        """Keep the present interests of a domain in a type, whatever routes say, until :meth:`release`."""
        if (domain, type) not in self._held:
            held = [each for each in self.of(domain) if each.subject == type]
            self._held[domain, type] = held
            for interest in held:
                self._count(domain, interest, +1)

    def release(self, domain: str, type: str) -> None:
        """End :meth:`hold`."""
        for interest in self._held.pop((domain, type), ()):
            self._count(domain, interest, -1)

    def note_news(self, domain: str) -> None:
        """Note that more is known of what a domain wants."""
        self._news[domain] = None

    def take_news(self) -> list[str]:
        """Return the domains about which something has arrived since the last call."""
        news, self._news = self._news, {}
        return list(news)

    def take_changes(self) -> dict[str, InterestChange]:
        """Return how the interests of each domain have changed since the last call."""
        changes: dict[str, InterestChange] = {}
        for domain, changed in self._changed.items():
            added = tuple([each for each, is_added in changed.items() if is_added])
            removed = tuple([each for each, is_added in changed.items() if not is_added])
            if added or removed:
                changes[domain] = InterestChange(added, removed)
        self._changed = {}
        return changes

    def _change(
        self, key: Hashable, domain: str, removed: Iterable[int], added: Iterable[NumberedFilter], may: May
    ) -> None:
        filters = self._routes.setdefault(key, {})
        gone = [each for number in removed for each in filters.pop(number, ())]
        new: list[Interest] = []
        for each in added:
            if each.subject is not None and may(each.subject):
                filters[each.number] = tuple(interests_of((each,)))
                new += filters[each.number]
        for interest in new:
            self._count(domain, interest, +1)
        for interest in gone:
            self._count(domain, interest, -1)

    def _count(self, domain: str, interest: Interest, by: int) -> None:
        counts = self._counts.setdefault(domain, {})
        before = counts.get(interest, 0)
        counts[interest] = before + by
        if not counts[interest]:
            del counts[interest]
        is_there = interest in counts
        if is_there is not bool(before):
            changed = self._changed.setdefault(domain, {})
            # An interest that comes and goes within one step is not in its change.
            if changed.pop(interest, is_there) is is_there:
                changed[interest] = is_there
