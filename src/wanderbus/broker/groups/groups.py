"""Channel groups that move between the leaders of a domain: both parts of that, and nothing at a single server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wanderbus import protocol
from wanderbus.broker.basics import Basics
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.groups.group_loads import GroupLoads
from wanderbus.broker.groups.group_move import GroupMove
from wanderbus.broker.groups.known_leaders import KnownLeaders
from wanderbus.broker.groups.replaced_leaders import ReplacedLeaders
from wanderbus.broker.history.leader_questions import LeaderQuestions
from wanderbus.broker.interest.publisher_filters import PublisherFilters
from wanderbus.broker.messages import GroupsArrived, LeaderLinkChanged
from wanderbus.broker.publish.publishing import Publishing
from wanderbus.broker.readers import Link
from wanderbus.broker.servers.interest_requests import InterestRequests
from wanderbus.broker.servers.settled_interest import SettledInterest
from wanderbus.errors import Refused
from wanderbus.protocol.domains import GroupLeaders, GroupPrepared, GroupPublishersKnown


class Groups:
    """The parts about moves of channel groups, if there are other servers."""

    def __init__(
        self,
        basics: Basics,
        interest: InterestRequests,
        filters: PublisherFilters,
        engine: EngineEvents,
        settled: SettledInterest,
        publishing: Publishing,
        questions: LeaderQuestions,
        replaced: ReplacedLeaders,
        loads: GroupLoads,
    ) -> None:
        self.loads = loads
        self._state = basics.state
        self._channels = channels = basics.channels
        self._leaders: KnownLeaders | None = None
        if channels is not None:
            self._leaders = KnownLeaders(basics, channels, interest, filters, engine, settled, publishing, replaced)
            self._move = GroupMove(basics, channels, self._leaders, questions, settled, engine)

    def start(self) -> None:
        """Forget what a former life or a former file of the domain has left."""
        if self._leaders is not None:
            self._leaders.start()

    def is_moving(self, subject: str) -> bool:
        """Return whether the channel of ``subject`` is about to have another leader."""
        return self._leaders is not None and self._leaders.is_moving(subject)

    def greet(self, link: Link) -> None:
        """Tell another server on a new link how things are, if groups have moved."""
        if self._leaders is not None and link.is_server and self._state.groups.rows:
            self._leaders.greet(link.link)

    def attached(self, link: Link) -> None:
        """Send again to another server on a new link what it may not have got."""
        if self._leaders is not None and link.is_server and link.session is not None:
            self._move.attached(link)

    def link_changed(self, given: LeaderLinkChanged) -> None:
        """Take a report about the link to a leader."""
        if self._leaders is not None:
            self._leaders.link_changed(given)

    def arrived(self, given: GroupsArrived) -> None:
        """Take a message of a leader."""
        if self._leaders is not None:
            self._leaders.arrived(given)
            if isinstance(given.message, GroupLeaders):
                self._move.leads(given.leader, given.message.led)

    def take(self, link: Link, message: GroupPrepared | GroupPublishersKnown) -> None:
        """Take the answer of another server about a move."""
        if self._leaders is not None:
            self._move.take(link, message)

    def move(self, link: Link, request: protocol.MoveGroup) -> None:
        """Serve a request for a move; raise :class:`Refused` if it cannot begin."""
        if self._leaders is None:
            raise Refused("this server is alone, no other one can lead its channels")
        self._move.ask(link, request)

    def go_on(self) -> None:
        """Go on with what is under way."""
        if self._leaders is not None:
            self._move.go_on()

    def timer_fired(self) -> None:
        """End a stage that takes too long."""
        if self._leaders is not None:
            self._move.timer_fired()

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row for each group that has moved, or is about to."""
        for group, row in sorted(self._state.groups.items()):
            assert self._channels is not None
            leader = self._channels.directory.table.leaders[group]
            yield {
                "group": group,
                "leader": leader.server,
                "epoch": leader.epoch,
                "former": row.former,
                "was_forced": row.was_forced,
                "target": row.target,
            }
