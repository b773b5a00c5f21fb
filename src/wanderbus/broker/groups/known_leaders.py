"""Leaders of channel groups as a server knows them, and groups that are about to have another (SPEC J-08).

This is the part of every server in a move: it wants the events of the group at the present and at the next leader,
durably, before it says so; and it adopts the next leader once that is certain. The part of the leader that gives the
group away is :mod:`wanderbus.broker.groups.group_move`.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final

from wanderbus import protocol, records
from wanderbus.broker.basics import Basics
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.groups.leader_table import fits, use_leaders
from wanderbus.broker.groups.moving_group import Preparation, Report, head_for, taken_by
from wanderbus.broker.groups.replaced_leaders import ReplacedLeaders
from wanderbus.broker.interest.index_entries import subjects_of
from wanderbus.broker.interest.publisher_filters import PublisherFilters
from wanderbus.broker.messages import GroupsArrived, LeaderLinkChanged, SendToLeader
from wanderbus.broker.publish.acceptance import DISK_FULL
from wanderbus.broker.publish.publishing import Publishing
from wanderbus.broker.servers.interest_requests import InterestRequests
from wanderbus.broker.servers.server_users import server_user
from wanderbus.broker.servers.settled_interest import SettledInterest
from wanderbus.broker.state.exported_session import decode_publishers
from wanderbus.broker.state.replays import leader_span
from wanderbus.broker.state.rows import GroupRow
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.epochs import EARLIER_MAX
from wanderbus.errors import RemoteProtocolError
from wanderbus.machine import SetTimer
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

_FORCED_EPOCHS: Final = 2
"""Epochs by which a group advances whose leader is gone: that may have written a fence of which nobody knows."""

_ENGINE_S: Final = 20.0
"""Longest time for which a server waits for its matching engine; the leader waits longer, so it gets the reason."""

PUBLISHERS_MAX: Final = 200_000
"""Largest number of publishers that move with a group: events wait meanwhile."""


def epochs_of(forced: bool) -> int:
    """Return the number of epochs by which a group advances that moves."""
    return _FORCED_EPOCHS if forced else 1


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
        replaced: ReplacedLeaders,
    ) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._conditions = basics.conditions
        self._domain = basics.config.domain
        self._servers = basics.servers
        self._channels = channels
        self._interest = interest
        self._filters = filters
        self._engine = engine
        self._settled = settled
        self._publishing = publishing
        self._replaced = replaced
        self._linked: set[str] = set()
        """Leaders to which this server has a link."""
        self._joining: dict[int, tuple[LedGroup, int | None]] = {}
        """Leaders that have replaced this one while it was gone, and the last number to pass over, once it is known."""
        self._preparing: dict[int, Preparation] = {}
        self._taken: dict[int, int] = {}
        """Publishers that the leader of a group has sent."""
        self._unmatched: dict[int, int] = {}
        """End of this log for each server, by its link, that was greeted while events below waited for the engine."""
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
            elif self._decides(group, row) == channels.server:
                self.stay(group)

    def _decides(self, group: int, row: GroupRow) -> str:
        """Return the server that says whether a group goes on moving, "" if the group does not move."""
        if not row.target:
            return ""
        return row.target if row.is_forced else self._channels.directory.table.leaders[group].server

    def reaches(self, server: str) -> bool:
        """Return whether there is a link with another server, opened by either."""
        opened = self._links.of_user(server_user(server, self._domain))
        return server in self._linked or any(each.session for each in opened)

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
                LedGroup(group, row.leader, row.epoch, row.former, row.was_forced, row.earlier)
                for group, row in self._state.groups.items()
                if row.leader
            )
            head = None
            if self._engine.has_matched(self._state.offset):
                head = head_for(self._state, found.user)
            elif any(each.forced for each in led):
                self._unmatched[link] = self._state.offset
            self._links.send(found, GroupLeaders(led, self._moving, head))

    def link_changed(self, given: LeaderLinkChanged) -> None:
        """Ask a leader on a new link what has become of the moves that it had begun; it may have forgotten them."""
        if (link := given.link) is None:
            self._linked.discard(given.leader)
            return
        self._linked.add(given.leader)
        for group, row in self._state.groups.items():
            if self._decides(group, row) == given.leader:
                self._journal.emit(SendToLeader(given.leader, link, GroupPrepared(group, _NO_ATTEMPT)))

    def arrived(self, given: GroupsArrived) -> None:
        """Take a message of a leader: adopt leaders first, then give up and begin preparations."""
        match given.message:
            case GroupLeaders():
                for each in {each.group: each for each in given.message.led}.values():
                    self._adopt_if_true(given, each, given.message.head)
                self._follow(given, given.message)
            case GroupPublishers():
                self._take_publishers(given, given.message)

    def _adopt_if_true(self, given: GroupsArrived, led: LedGroup, head: int | None) -> None:
        """Adopt a leader if the present one says so, or the new one itself; if the present one was gone, anyone may."""
        table = self._channels.directory.table
        if not 0 <= led.group < len(table.leaders) or led.server not in table.servers:
            return
        if led.former not in (self._channels.server, *self._channels.others, *self._channels.left):
            return
        present = table.leaders[led.group]
        if led.epoch <= present.epoch:
            return
        if led.forced and led.former == self._channels.server:
            self._join(given, led, head)
        elif led.forced or given.leader in (present.server, led.server):
            self.adopt(led)

    def _follow(self, given: GroupsArrived, message: GroupLeaders) -> None:
        """Prepare the moves that a leader has begun, and no others of its groups."""
        leaders, begun = self._channels.directory.table.leaders, {each.group: each for each in message.moving}
        led = {each.group: each.epoch for each in message.led}
        for group, row in self._state.groups.items():
            is_given_up = group not in begun and led.get(group, 0) <= leaders[group].epoch
            if is_given_up and self._decides(group, row) == given.leader:
                self.stay(group)
        for group, each in begun.items():
            if not 0 <= group < len(leaders) or each.target not in self._channels.directory.table.servers:
                continue
            decides = each.target if each.forced else leaders[group].server
            report = partial(self._reply, given.leader, given.link, each)
            joining = self._joining.get(group) if each.forced else None
            if joining is not None and not self.reaches(joining[0].server):
                self.adopt(joining[0])  # it is gone, too: nobody can say what it has accepted
                leaders = self._channels.directory.table.leaders
            if decides == given.leader and leaders[group].epoch == each.epoch - epochs_of(each.forced):
                self.prepare(each, report)
            elif each.forced:
                report("it knows another leader of the group; try again later")

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
        if reason := self._obstacle(moving):
            report(reason)
            return
        self._preparing.pop(group, None)
        row = self._state.groups.row(group)
        if (row.target, row.is_forced) != (target, moving.forced):
            self._begin_to_want(moving)
            self._await(self._channels.server)
        wanted: Collection[str] = [each.id for each in self._wanted(group)]
        if moving.forced:
            is_here = target == self._channels.server
            wanted = () if is_here else self._interest.prepare(group, target, self._wanted(group))
        deadline = self._links.now + _ENGINE_S
        self._journal.emit_now(SetTimer(("prepare", group), deadline))
        preparation = Preparation(report, set(wanted), self._state.offset, deadline)
        self._await_interest(group, preparation)

        def published() -> None:
            preparation.is_published = True

        self._filters.give_up(lambda subject: self._channels.is_in(subject, group), published)

    def _begin_to_want(self, moving: MovingGroup) -> None:
        """Want the events of a group at its next leader, durably; the caller asks one that is forced for them."""
        prepared = records.GroupPrepared(
            at_us=self._state.wall_us,
            group=moving.group,
            target=moving.target,
            epoch=moving.epoch,
            forced=moving.forced,
            leader=self._channels.directory.table.leaders[moving.group].server,
        )
        self._write(prepared)
        self._interest.leaders_changed(moving.group, () if moving.forced else self._wanted(moving.group))

    def _await_interest(self, group: int, preparation: Preparation) -> None:
        self._preparing[group] = preparation
        for identity in list(preparation.waiting):
            self._interest.when_effective(identity, None, partial(preparation.waiting.discard, identity))

    def go_on(self) -> None:
        """Report what is prepared by now, and adopt leaders behind what this server passes over."""
        for group, (led, head) in list(self._joining.items()):
            taken = self._state.leaders.get(led.server)
            is_taken = head is not None and (0 if taken is None else taken.number) >= head
            if is_taken and not self._reads_past(group):
                self.adopt(led)
        for group, each in list(self._preparing.items()):
            lag = self._engine.lag(each.offset)
            is_late = lag and (self._engine.away_reason or self._links.now >= each.deadline)
            if is_late or (not lag and self._is_prepared(group, each)):
                del self._preparing[group]
                each.report(lag)
        for link, offset in list(self._unmatched.items()):
            if self._engine.has_matched(offset):
                del self._unmatched[link]
                self.greet(link)

    def _is_prepared(self, group: int, preparation: Preparation) -> bool:
        """Return whether everything is prepared here, once the matching engine has come so far."""
        if preparation.heads is None:
            is_target = self._state.groups.row(group).target == self._channels.server
            preparation.heads = self._late_heads(group) if is_target else {}
        is_taken = all(taken_by(self._state, user) >= head for user, head in preparation.heads.items())
        return not preparation.waiting and preparation.is_published and is_taken and not self._reads_past(group)

    def _obstacle(self, moving: MovingGroup) -> str:
        """Return why a group cannot move while this server runs as it does, "" if it can."""
        leader = self._channels.directory.table.leaders[moving.group].server
        row = self._state.groups.row(moving.group)
        if row.is_forced and (row.target, True) != (moving.target, moving.forced):
            return f"{row.target} is about to lead the group instead of a leader that is gone; try again later"
        if moving.forced and self.reaches(leader):
            return f"it has a link with {leader}, which leads the group; move the group without force"
        user = server_user(leader, self._domain)
        late = self._late_heads(moving.group) if moving.forced and moving.target == self._channels.server else {}
        if late and (lag := self._engine.lag(self._state.offset)):
            return lag  # what still waits for the leader is not known
        if taken_by(self._state, user) < late.get(user, 0):
            return f"events that it accepted as an earlier leader still wait for {leader}; let another server lead"
        if self._conditions.is_disk_full:
            return DISK_FULL
        if self._settled.missing:
            return f"{self._settled.missing[0]} has not reported yet which events it wants; try again later"
        return ""

    def _late_heads(self, group: int) -> dict[str, int]:
        """Return what each other server has to take before this one leads a group again that it has lost by force.

        Until then they take its events of the group for late ones.
        """
        if not self._state.groups.row(group).forced_epoch:
            return {}
        return {user: head_for(self._state, user) for user in sorted(self._servers.users)}

    def _reads_past(self, group: int) -> bool:
        """Return whether a subscription still reads the past of a group, and would not find the next leader.

        One that reads the leaders one after the other would. If the leader is gone, nobody waits for what only its log
        has.
        """
        rows = [each for each in self._state.subscriptions.values() if self._concerns(each.subscription, group)]
        rows = [row for row in rows if row.history and not row.history[0].epoch]
        is_forced = self._state.groups.row(group).is_forced
        return any(not (is_forced and leader_span(row, self._channels.server)) for row in rows)

    def _wanted(self, group: int) -> list[Subscription]:
        """Return the subscriptions of users here, and of sessions that are about to move here, to a group."""
        state, users = self._state, self._servers.all
        here = [row.subscription for row in state.subscriptions.values() if row.subscription.owner not in users]
        awaited = [each for row in state.awaited.values() for each in row.subscriptions]
        return [each for each in (*here, *awaited) if self._concerns(each, group)]

    def _concerns(self, subscription: Subscription, group: int) -> bool:
        return any(self._channels.is_in(subject, group) for subject in subjects_of(subscription))

    # Return of a leader that was replaced ---------------------------------------------------------------------------

    def _join(self, given: GroupsArrived, led: LedGroup, head: int | None) -> None:
        """Lead a group no longer; adopt the next leader behind what that has accepted before it knew this interest.

        Until then its events are passed over, and events of devices here wait. One gap stands for all of this.
        """
        group, row = led.group, self._state.groups.row(led.group)
        if (row.target, row.is_forced) != (led.server, True):
            self._preparing.pop(group, None)
            self._begin_to_want(MovingGroup(group, led.server, led.epoch, _NO_ATTEMPT, forced=True))
            self._settled.paused.add(group)
        self._joining.setdefault(group, (led, None))
        if given.leader != led.server:
            return  # it says so itself on its link
        names = self._interest.prepare(group, led.server, self._wanted(group))
        waiting = self._interest.waiting
        if all(each not in waiting for each in names):
            self._joining[group] = led, head
            return
        question = SendToLeader(given.leader, given.link, GroupPrepared(group, _NO_ATTEMPT))
        self._await_interest(
            group, Preparation(lambda reason: self._journal.emit(question), set(names), is_published=True)
        )

    # Changes ----------------------------------------------------------------------------------------------------

    def stay(self, group: int) -> None:
        """Give up a move: the group keeps its leader."""
        self._preparing.pop(group, None)
        if self._state.groups.row(group).target:
            self._write(records.GroupStays(at_us=self._state.wall_us, group=group))
            self._interest.leaders_changed(group, self._wanted(group))
        self._go_on_with(group)

    def adopt(self, led: LedGroup, paused_us: int | None = None, publishers: int = 0) -> None:
        """Let a server lead a group from now on: publish there, and want its events there alone.

        The former leader says since when its events have waited, and how many publishers the next one knows from it.
        """
        group, here = led.group, self._channels.server
        self._preparing.pop(group, None)
        self._joining.pop(group, None)
        if led.forced:
            self._replaced.replace(led)
        moved = records.GroupMoved(
            at_us=self._state.wall_us,
            group=group,
            server=led.server,
            epoch=led.epoch,
            former=led.former,
            servers=self._channels.founders,
            forced=led.forced,
            earlier=led.earlier[-EARLIER_MAX:],
            paused_us=paused_us,
            waited=0 if paused_us is None else self._publishing.waiting,
            publishers=publishers,
        )
        self._write(moved)
        self._interest.leaders_changed(group, self._wanted(group))
        if here in (led.server, led.former):
            self.announce()  # before an event of the group
        self._publishing.leader_changed(group)
        self._go_on_with(group)

    def _go_on_with(self, group: int) -> None:
        """Process the events of a group that have waited here."""
        if group in self._settled.paused:
            self._settled.paused.discard(group)
            self._publishing.resume()

    def _write(self, record: records.OfGroups) -> None:
        self._journal.write(record, urgent=True)
        use_leaders(self._state, self._channels)
