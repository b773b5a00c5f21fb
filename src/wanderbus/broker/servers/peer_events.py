"""Events between this server and the others of its domain: forwarded to leaders, arriving from them, sent directly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from wanderbus.broker.basics import Basics
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.history.catch_up import CatchUp
from wanderbus.broker.interest.publisher_filters import PublisherFilters
from wanderbus.broker.messages import EventArrived, LeaderEventsLost, PublishAnswered
from wanderbus.broker.publish.delivery import Delivery
from wanderbus.broker.queues.return_pace import SERVERS
from wanderbus.broker.rollback.messages import ArrivalsRewound, InterestLost
from wanderbus.broker.rollback.rollback import Rollback
from wanderbus.broker.servers.arrivals import Arrivals
from wanderbus.broker.servers.decentralised_events import DecentralisedEvents
from wanderbus.broker.servers.foreign_messages import DomainEventsLost, OrderedDomains
from wanderbus.broker.servers.forwarding import Forwarding
from wanderbus.broker.servers.leader_messages import LeaderTrouble
from wanderbus.broker.servers.route_index import RouteIndex
from wanderbus.broker.signals import OfPeers
from wanderbus.broker.state.decentralised_state import decode_past
from wanderbus.broker.state.exported_session import ExportedSession
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.machine import TimerFired
from wanderbus.matching import Kernel

ARRIVALS_MAX: Final = 1_024
"""Events of other servers that are matched in one batch; this batch size costs least for each event."""


class PeerEvents:
    """The parts about events of other servers, and their inputs."""

    def __init__(
        self,
        basics: Basics,
        kernel: Kernel | None,
        subscriptions: Subscriptions,
        delivery: Delivery,
        catch_up: CatchUp,
        engine: EngineEvents,
        filters: PublisherFilters,
        rollback: Rollback,
    ) -> None:
        self.forwarding = Forwarding(basics)
        self.decentralised: DecentralisedEvents | None = None
        """The part for decentralised channels, None if there are none."""
        state, channels = basics.state, basics.channels
        if channels is not None and (own := channels.decentralised) is not None:
            routes = state.decentralised.routes
            index = RouteIndex(
                routes,
                own,
                kernel,
                basics.config,
                lambda: state.wall_us,
                filters,
                lambda: state.servers[state.server].newcomers,
            )
            self.decentralised = DecentralisedEvents(basics, subscriptions, delivery, own, index, filters, rollback)
        self._arrivals = Arrivals(basics, subscriptions, delivery, catch_up, engine)
        self._links = basics.links
        self._rollback = rollback

    def start(self) -> None:
        """Begin, once the log has an incarnation."""
        if self.decentralised is not None:
            self.decentralised.start()

    def knows(self, subject: str) -> bool:
        """Return whether the interest of all servers in ``subject`` is known here, if that is sent directly."""
        return self.decentralised is None or self.decentralised.knows(subject)

    def untaken(self) -> Mapping[str, int]:
        """Return the number of events that were sent directly to each other server and are not delivered there yet."""
        return {} if self.decentralised is None else self.decentralised.untaken()

    def after_past(self, exported: ExportedSession, done: Callable[[], None]) -> None:
        """Call ``done`` once everything is delivered here that an exported session may have seen at its source."""
        if self.decentralised is None or not exported.past:
            done()
        else:
            self.decentralised.after_past(exported.source, decode_past(exported.past), done)

    def use(self, kernel: Kernel) -> None:
        """Match the interest of other servers by ``kernel``."""
        if self.decentralised is not None:
            self.decentralised.index.use(kernel)

    def disk_freed(self) -> None:
        """Ask for what was not taken while the disk had no room."""
        self._arrivals.disk_freed()
        if self.decentralised is not None:
            self.decentralised.disk_freed()

    def arrived(self, several: list[EventArrived]) -> None:
        """Deliver events of leaders."""
        self._links.pace.note(SERVERS)
        for at in range(0, len(several), ARRIVALS_MAX):
            self._arrivals.take(several[at : at + ARRIVALS_MAX])

    def leader_replaced(self, group: int, server: str) -> None:
        """Record that events of a channel group may be missing, those of ``server``: one of its leaders was gone."""
        self._arrivals.leader_replaced(group, server)

    def timer_fired(self, key: object) -> None:
        """Take a timer of the causal order."""
        if self.decentralised is not None:
            self.decentralised.on_input(TimerFired(key))

    def on_input(self, given: OfPeers) -> None:
        """Take an input about other servers."""
        match given:
            case PublishAnswered() | LeaderTrouble():
                self.forwarding.take(given)
            case LeaderEventsLost():
                self._arrivals.lose(given)
            case DomainEventsLost():
                self._arrivals.lose_of_domain(given)
            case OrderedDomains():
                if self.decentralised is not None:
                    self.decentralised.domain_order.use(given)
            case InterestLost(leader=leader):
                self._arrivals.missed(leader)
            case ArrivalsRewound():
                self._arrivals.rewind(given)
                if given.is_own:
                    self._rollback.found_by(given.leader)
            case _:
                self._links.pace.note(SERVERS)
                if self.decentralised is not None:
                    self.decentralised.on_input(given)
