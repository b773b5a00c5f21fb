"""Leaders of channel groups as a server knows them, and groups that are about to have another (SPEC J-08).

This is the part of every server in a move: it wants the events of the group at the present and at the next leader,
durably, before it says so; and it adopts the next leader once that is certain. The part of the leader that gives the
group away is :mod:`wanderbus.broker.groups.group_move`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from wanderbus import protocol, records
from wanderbus.broker.basics import Basics
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.groups.moving_group import Preparation, Report
from wanderbus.broker.interest.index_entries import subjects_of
from wanderbus.broker.interest.publisher_filters import PublisherFilters
from wanderbus.broker.messages import GroupsArrived, LeaderLinkChanged, SendToLeader
from wanderbus.broker.publish.acceptance import DISK_FULL
from wanderbus.broker.publish.publishing import Publishing
from wanderbus.broker.servers.interest_requests import InterestRequests
from wanderbus.broker.servers.settled_interest import SettledInterest
from wanderbus.broker.state.exported_session import decode_publishers
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.directory import Leader
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.errors import RemoteProtocolError
from wanderbus.protocol.domains import (
    GroupLeaders,
    GroupPrepared,
    GroupPublishers,
    GroupPublishersKnown,
    LedGroup,
    MovingGroup,
)
from wanderbus.subscription import Subscription

_NO_ATTEMPT: Final = 0

PUBLISHERS_MAX: Final = 200_000
"""Largest number of publishers that move with a group: events wait meanwhile."""


def use_leaders(state: BrokerState, channels: OwnChannels | None) -> None:
    """Let the channels have the leaders in the state, except those that do not fit the domain's file."""
    if channels is None:
        return
    fitting = {group: row for group, row in state.groups.items() if fits(channels, group, row.servers)}
    moved = {group: Leader(row.leader, row.epoch) for group, row in fitting.items() if row.leader}
    channels.take_over(moved, {group: row.target for group, row in fitting.items() if row.target})


def fits(channels: OwnChannels, group: int, servers: tuple[str, ...]) -> bool:
    """Return whether a group that moved among ``servers`` is one of the domain's file: the same servers may lead."""
    return group < channels.directory.groups.count and servers in ((), channels.directory.table.servers)


class KnownLeaders:
    """Prepares moves of groups, and adopts their leaders.

    :param channels: the channels of the domain
    """

    def __init__(
        self,
        basics: Basics,
        channels: OwnChannels,
        interest: InterestRequests,
        filters: PublisherFilters,
        engine: EngineEvents,
        settled: SettledInterest,
        publishing: Publishing,
    ) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._conditions = basics.conditions
        self._servers = basics.servers
        self._channels = channels
        self._interest = interest
        self._filters = filters
        self._engine = engine
        self._settled = settled
        self._publishing = publishing
        self._preparing: dict[int, Preparation] = {}
        self._taken: dict[int, int] = {}
        """Publishers that the leader of a group has sent."""
        self._moving: tuple[MovingGroup, ...] = ()
        """Groups that this leader is about to give away."""
        self._await(channels.server)

    def _await(self, here: str) -> None:
        """Let the events of groups wait that this server is about to lead."""
        self._settled.paused |= {group for group, row in self._state.groups.items() if row.target == here}

    def start(self) -> None:
        """Forget the moves that this leader had begun, and leaders that do not fit the domain's file any more."""
        channels = self._channels
        for group, row in self._state.groups.items():
            if not fits(channels, group, row.servers):
                self._write(records.GroupStays(at_us=self._state.wall_us, group=group, is_reset=True))
                self._settled.paused.discard(group)
            elif row.target and channels.directory.table.leaders[group].server == channels.server:
                self.stay(group)

    def is_moving(self, subject: str) -> bool:
        """Return whether the channel of ``subject`` is about to have another leader."""
        return any(self._channels.is_in(subject, group) for group, row in self._state.groups.items() if row.target)

    # Other servers ----------------------------------------------------------------------------------------------

    def begin(self, *moving: MovingGroup) -> None:
        """Tell all other servers which groups this leader is about to give away: these, and no others."""
        self._moving = moving
        self.announce()

    def announce(self) -> None:
        """Tell all other servers which groups have moved, and which are about to."""
        for user in sorted(self._servers.users):
            for link in self._links.of_user(user):
                if link.session is not None:
                    self.greet(link.link)

    def greet(self, link: int) -> None:
        """Tell the server on a link which groups have moved, and which are about to."""
        if (found := self._links.get(link)) is not None:
            led = tuple(
                LedGroup(group, row.leader, row.epoch, row.former)
                for group, row in self._state.groups.items()
                if row.leader
            )
            self._links.send(found, GroupLeaders(led, self._moving))

    def link_changed(self, given: LeaderLinkChanged) -> None:
        """Ask a leader on a new link what has become of the moves that it had begun; it may have forgotten them."""
        leaders, link = self._channels.directory.table.leaders, given.link
        for group, row in self._state.groups.items():
            if link is not None and row.target and leaders[group].server == given.leader:
                self._journal.emit(SendToLeader(given.leader, link, GroupPrepared(group, _NO_ATTEMPT)))

    def arrived(self, given: GroupsArrived) -> None:
        """Take a message of a leader: adopt leaders first, then give up and begin preparations."""
        match given.message:
            case GroupLeaders(led=led, moving=moving):
                for each in led:
                    self._adopt_if_true(given.leader, each)
                self._follow(given, moving)
            case GroupPublishers():
                self._take_publishers(given, given.message)

    def _adopt_if_true(self, sender: str, led: LedGroup) -> None:
        """Adopt a leader if the present one says so, or the new one itself."""
        table = self._channels.directory.table
        if not 0 <= led.group < len(table.leaders) or led.server not in table.servers:
            return
        present = table.leaders[led.group]
        if led.epoch > present.epoch and sender in (present.server, led.server):
            self.adopt(led)

    def _follow(self, given: GroupsArrived, moving: Iterable[MovingGroup]) -> None:
        """Prepare the moves that a leader has begun, and no others of its groups."""
        leaders, begun = self._channels.directory.table.leaders, {each.group: each for each in moving}
        for group, row in self._state.groups.items():
            if row.target and leaders[group].server == given.leader and group not in begun:
                self.stay(group)
        for group, each in begun.items():
            if 0 <= group < len(leaders) and leaders[group] == Leader(given.leader, each.epoch - 1):
                report = partial(self._reply, given.leader, given.link, each)
                self.prepare(each, report)

    def _reply(self, leader: str, link: int, moving: MovingGroup, reason: str) -> None:
        message = GroupPrepared(moving.group, moving.attempt, protocol.shortened(reason))
        self._journal.emit(SendToLeader(leader, link, message))

    def _take_publishers(self, given: GroupsArrived, message: GroupPublishers) -> None:
        """Store what the present leader knows of publishers, before this server leads the group."""
        group, present = message.group, self._channels.directory.table.leaders
        if self._state.groups.row(group).target != self._channels.server or present[group].server != given.leader:
            return
        try:
            count = len(decode_publishers(message.publishers))
        except RemoteProtocolError:
            return  # the leader gives up
        self._taken[group] = count + (self._taken.get(group, 0) if message.part else 0)
        if self._taken[group] > PUBLISHERS_MAX:
            return
        taken = records.GroupPublishersTaken(
            at_us=self._state.wall_us, group=group, publishers=message.publishers, is_first=message.part == 0
        )
        self._write(taken)
        known = GroupPublishersKnown(group, message.attempt, message.part)
        self._journal.emit(SendToLeader(given.leader, given.link, known))

    # Preparation ------------------------------------------------------------------------------------------------

    def prepare(self, moving: MovingGroup, report: Report) -> None:
        """Want the events of a group at its next leader too; ``report`` is called when they are effective there."""
        group, target = moving.group, moving.target
        if reason := self._obstacle(group):
            report(reason)
            return
        self._preparing.pop(group, None)
        if self._state.groups.row(group).target != target:
            prepared = records.GroupPrepared(at_us=self._state.wall_us, group=group, target=target, epoch=moving.epoch)
            self._write(prepared)
            self._await(self._channels.server)
            self._interest.leaders_changed(self._wanted(group))
        wanted = [each.id for each in self._wanted(group)]
        preparation = self._preparing[group] = Preparation(report, set(wanted))
        for identity in wanted:
            self._interest.when_effective(identity, None, partial(preparation.waiting.discard, identity))

        def published() -> None:
            preparation.is_published = True

        self._filters.give_up(lambda subject: self._channels.is_in(subject, group), published)

    def go_on(self) -> None:
        """Report what is prepared by now."""
        for group, each in list(self._preparing.items()):
            if not each.waiting and each.is_published and not self._reads_past(group):
                del self._preparing[group]
                each.report("")

    def _obstacle(self, group: int) -> str:
        """Return why a group cannot move while this server runs as it does, "" if it can."""
        if self._conditions.is_disk_full:
            return DISK_FULL
        if self._settled.missing:
            return f"{self._settled.missing[0]} has not reported yet which events it wants; try again later"
        if self._engine.subjects:
            return "its matching engine delays events behind those of other leaders; match without it"
        return ""

    def _reads_past(self, group: int) -> bool:
        """Return whether a subscription still reads the past of a group in the log of its present leader."""
        rows = self._state.subscriptions.values()
        return any(row.history and self._concerns(row.subscription, group) for row in rows)

    def _wanted(self, group: int) -> list[Subscription]:
        """Return the subscriptions of users here, and of sessions that are about to move here, to a group."""
        state, users = self._state, self._servers.users
        here = [row.subscription for row in state.subscriptions.values() if row.subscription.owner not in users]
        awaited = [each for row in state.awaited.values() for each in row.subscriptions]
        return [each for each in (*here, *awaited) if self._concerns(each, group)]

    def _concerns(self, subscription: Subscription, group: int) -> bool:
        return any(self._channels.is_in(subject, group) for subject in subjects_of(subscription))

    # Changes ----------------------------------------------------------------------------------------------------

    def stay(self, group: int) -> None:
        """Give up a move: the group keeps its leader."""
        self._preparing.pop(group, None)
        if self._state.groups.row(group).target:
            self._write(records.GroupStays(at_us=self._state.wall_us, group=group))
            self._interest.leaders_changed(self._wanted(group))
        self._go_on_with(group)

    def adopt(self, led: LedGroup) -> None:
        """Let a server lead a group from now on: publish there, and want its events there alone."""
        group = led.group
        self._preparing.pop(group, None)
        moved = records.GroupMoved(
            at_us=self._state.wall_us,
            group=group,
            server=led.server,
            epoch=led.epoch,
            former=led.former,
            servers=self._channels.directory.table.servers,
        )
        self._write(moved)
        self._interest.leaders_changed(self._wanted(group))
        self._publishing.leader_changed(group)
        self._go_on_with(group)
        if self._channels.server in (led.server, led.former):
            self.announce()

    def _go_on_with(self, group: int) -> None:
        """Process the events of a group that have waited here."""
        if group in self._settled.paused:
            self._settled.paused.discard(group)
            self._publishing.resume()

    def _write(self, record: records.OfGroups) -> None:
        self._journal.write(record, urgent=True)
        use_leaders(self._state, self._channels)
