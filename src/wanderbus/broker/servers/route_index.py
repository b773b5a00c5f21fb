"""Index of what the other servers want: finds the servers that an event is sent to (SPEC K-05)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from wanderbus.broker.interest.filter_work import FilterWork
from wanderbus.broker.interest.index_entries import IndexEntry
from wanderbus.broker.interest.matcher import Matcher
from wanderbus.broker.interest.measured_filter import read_filter
from wanderbus.broker.interest.publisher_filters import PublisherFilters
from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.interest.incoming_streams import IncomingStreams, Route, StreamResult
from wanderbus.channels.interest.messages import NumberedFilter
from wanderbus.event import Event
from wanderbus.matching import Kernel
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.subscription import EVERY_SUBJECT, Subscription

_OWNER: Final = "servers"


class RouteIndex:
    """Filters of the other servers in decentralised channels, by server.

    A filter that would take too much work for an event counts as satisfied: its server matches the event again.

    :param newcomers: returns servers that have joined: nothing that they want counts before it is known here
    """

    def __init__(
        self,
        routes: IncomingStreams,
        channels: DecentralisedChannels,
        kernel: Kernel | None,
        config: BrokerConfig,
        wall_us: Callable[[], int],
        publisher_filters: PublisherFilters,
        newcomers: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._newcomers = newcomers
        self._routes = routes
        self._publisher_filters = publisher_filters
        self._channels = channels
        self._matcher = Matcher(kernel, FilterWork(config, wall_us, {_OWNER}), channels.lineage)
        self._is_complete: set[str] = set()
        """Subjects of which the interest of all servers is known."""

    def start(self) -> None:
        """Add what is known from earlier lives."""
        for route in self._routes.routes():
            self._add(route, self._routes.filters(route))

    def missing(self, subject: str) -> str | None:
        """Return a server whose interest in ``subject`` is unknown; None if that of all others is known."""
        if subject in self._is_complete:
            return None
        (leader,) = self._channels.leaders_of(subject)
        streams, newcomers = self._channels.streams_to(subject), self._newcomers()
        unknown = [each.origin for each in streams if not self._routes.knows((leader, each))]
        if not unknown:
            self._is_complete.add(subject)
        return next((origin for origin in unknown if origin not in newcomers), None)

    def change(self, route: Route, taken: StreamResult) -> None:
        """Take over how a route has changed."""
        for each in taken.removed:
            self._matcher.remove(_name(route, each))
            self._publisher_filters.remove_route(_name(route, each))
        self._add(route, taken.added)

    def forget(self, route: Route) -> None:
        """Remove a route whose interest is unknown from now on."""
        self.change(route, StreamResult(None, removed=tuple(self._routes.filters(route))))
        self._is_complete.clear()

    def destinations(self, event: Event) -> frozenset[int]:
        """Return the numbers of the servers that want ``event``."""
        servers = self._channels.servers
        found = {name.split("\n", 1)[0] for name in self._matcher.matching(event)}
        return frozenset(number for number, server in enumerate(servers) if server in found)

    def wanted_kernel(self) -> Kernel | None:
        """Return the kernel to request now; each kernel is returned once."""
        return self._matcher.wanted_kernel()

    def use(self, kernel: Kernel) -> None:
        """Match by ``kernel`` from now on."""
        self._matcher.use(kernel)

    def _add(self, route: Route, several: list[NumberedFilter] | tuple[NumberedFilter, ...]) -> None:
        _, stream = route
        if stream.origin not in self._channels.others:
            return
        for each in several:
            subject = EVERY_SUBJECT if each.subject is None else each.subject
            subscription = Subscription(_name(route, each), _OWNER, "", subject, each.expression)
            entry = IndexEntry(subject, read_filter(each.expression, "eci"))
            self._matcher.add(subscription, [entry])
            self._publisher_filters.add_route(subscription.id, subject, entry.interest.filter)


def _name(route: Route, wanted: NumberedFilter) -> str:
    """Return the name of a filter, which begins with its server; numbers of filters change with an incarnation."""
    leader, stream = route
    return "\n".join([stream.origin, leader, str(stream.group), wanted.subject or "", wanted.expression])
