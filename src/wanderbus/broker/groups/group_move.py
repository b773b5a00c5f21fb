"""Move of a channel group from its leader to another: the part of the leader, which decides (SPEC J-08; decision 0143).

::

    reaching ──all have a link──▶ preparing ──all want the events at the next leader──▶ pausing
                                         pausing ──all have taken what there is──▶ sending ──▶ fenced

Before the fence everything rolls back by itself: which moves have begun is not stored, and every other server gives up
what it has prepared once the leader names the move no longer. The fence is one record, after which the next leader has
to lead. If the leader is gone, the next one does all this in its place, without pause and rows (decision 0152).
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.broker.basics import Basics
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.groups.known_leaders import PUBLISHERS_MAX, KnownLeaders, epochs_of
from wanderbus.broker.groups.moving_group import GivenGroup, Stage, head_for, taken_by
from wanderbus.broker.history.leader_questions import LeaderQuestions, is_last
from wanderbus.broker.readers import Link
from wanderbus.broker.servers.server_users import server_of, server_user
from wanderbus.broker.servers.settled_interest import SettledInterest
from wanderbus.broker.state.exported_session import encode_publishers
from wanderbus.channels.directory import Leader
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.epochs import Leadership
from wanderbus.errors import Refused
from wanderbus.machine import SetTimer
from wanderbus.protocol.domains import GroupPrepared, GroupPublishers, GroupPublishersKnown, LedGroup, MovingGroup
from wanderbus.subscription import EVERY_SUBJECT

TIMER: Final = ("group move",)
"""Key of the timer that ends a stage."""

REACH_S: Final = 5.0
"""Longest wait for a link with every other server, which may just be starting."""

PREPARE_S: Final = 30.0
"""Longest time until all servers are prepared; events are accepted meanwhile."""

PAUSE_S: Final = 1.0
"""Longest time for which events of a group wait until all servers have taken what was accepted before."""

SEND_S: Final = 5.0
"""Longest time until the next leader knows the publishers, and, behind the fence, until the answer is given."""

PART_ROWS: Final = 1_000
"""Publishers in one part."""


class GroupMove:
    """Moves one group at a time to another leader, if this server leads it; passes other requests to the leader."""

    def __init__(
        self,
        basics: Basics,
        channels: OwnChannels,
        leaders: KnownLeaders,
        questions: LeaderQuestions,
        settled: SettledInterest,
        engine: EngineEvents,
    ) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._domain = basics.config.domain
        self._channels = channels
        self._leaders = leaders
        self._questions = questions
        self._settled = settled
        self._engine = engine
        self._move: GivenGroup | None = None
        self._last_attempt = 0

    # Requests ---------------------------------------------------------------------------------------------------

    def ask(self, link: Link, request: protocol.MoveGroup) -> None:
        """Begin a move, or let the leader of the group begin it; it is answered when the next one leads.

        If the leader is gone, the next one begins it.
        """
        table, here = self._channels.directory.table, self._channels.server
        group = self._group_of(request.group)
        present = table.leaders[group]
        if present.server == request.server == here:
            self._answer(link, request.request, group, present.server, present.epoch)
            return
        table.relocated(group, request.server, epoch=present.epoch)
        decides = request.server if request.force else present.server
        if decides == here:
            self._begin(link, request, group, present)
        elif link.is_server:
            raise Refused(f"{present.server} leads channel group {group}; try again later")
        elif not request.force and not self._leaders.reaches(present.server):
            raise Refused(
                f"{present.server}, which leads channel group {group}, cannot be reached; wait for it, or move the "
                "group by force, with a gap for every subscription"
            )
        else:
            passed = msgspec.structs.replace(request, group=group)
            self._questions.ask(decides, passed, partial(self._pass_answer, link, request.request))

    def _group_of(self, asked: int | str) -> int:
        """Return the group that is meant; raise :class:`Refused` if it has no ordered channel."""
        groups, decentralised = self._channels.directory.groups, self._channels.decentralised
        if asked == EVERY_SUBJECT:
            raise Refused("'*' is every subject; name one, or the number of a channel group")
        if isinstance(asked, str) and decentralised is not None and decentralised.has(asked):
            raise Refused(f"the channel of {asked!r} is decentralised: no server leads it")
        if decentralised is not None and not decentralised.has_ordered:
            raise Refused("all channels of this domain are decentralised: no server leads them")
        group = groups.group_of(asked) if isinstance(asked, str) else asked
        if not 0 <= group < groups.count:
            raise Refused(f"there is no channel group {group} (expected 0 to {groups.count - 1})")
        return group

    def _pass_answer(self, link: Link, number: int, answer: protocol.Listing | protocol.RequestRefused) -> None:
        if self._links.is_open(link) and is_last(answer):
            self._links.send(link, msgspec.structs.replace(answer, request=number))

    def _begin(self, link: Link, request: protocol.MoveGroup, group: int, present: Leader) -> None:
        if self._move is not None:
            raise Refused(f"channel group {self._move.moving.group} is on its way already; try again later")
        if (row := self._state.groups.row(group)).is_forced:
            raise Refused(f"{row.target} is about to lead channel group {group} by force; try again later")
        self._last_attempt = attempt = max(self._last_attempt + 1, self._state.wall_us)
        epoch = present.epoch + epochs_of(request.force)
        moving = MovingGroup(group, request.server, epoch, attempt, request.force)
        gone = {present.server} if request.force else set()
        everyone = {self._channels.server, *self._channels.others} - gone
        self._move = move = GivenGroup(moving, link, request.request, everyone)
        self._wait(move, "reaching", REACH_S)
        self._prepare(move)

    def _prepare(self, move: GivenGroup) -> None:
        """Let all servers prepare the move once they can be reached: every one has to know the next leader."""
        if self._unreached(move):
            return
        moving = move.moving
        self._wait(move, "preparing", PREPARE_S)
        self._leaders.begin(moving)
        self._leaders.prepare(moving, partial(self._prepared_by, self._channels.server, moving.attempt))

    def _unreached(self, move: GivenGroup) -> list[str]:
        """Return the other servers that have to prepare the move and have no link here."""
        reached = {self._channels.server, *filter(self._has_link, self._channels.others)}
        return sorted(move.unprepared - reached)

    def _has_link(self, server: str) -> bool:
        return any(each.session for each in self._links.of_user(self._user(server)))

    # Answers of other servers -----------------------------------------------------------------------------------

    def attached(self, link: Link) -> None:
        """Send again to the next leader, on a new link, what it may not have got."""
        if (move := self._at("sending")) is not None and link.user == self._user(move.moving.target):
            self._send_part(move)

    def take(self, link: Link, message: GroupPrepared | GroupPublishersKnown) -> None:
        """Take the answer of another server about a move."""
        server = server_of(link.user, self._domain) or ""
        if isinstance(message, GroupPrepared):
            if self._at("preparing", message.attempt) is None:
                self._leaders.greet(link.link)
            self._prepared_by(server, message.attempt, message.reason)
            return
        move = self._at("sending", message.attempt)
        if move is not None and (server, message.part) == (move.moving.target, move.part):
            move.part += 1
            self._send_part(move)

    def leads(self, server: str, led: tuple[LedGroup, ...]) -> None:
        """Take the report of a server about the groups that have moved: the next leader leads."""
        move = self._at("fenced")
        if move is not None and server == move.moving.target:
            moving = move.moving
            if any((each.group, each.server, each.epoch) == (moving.group, server, moving.epoch) for each in led):
                self._move = None
                self._answer(move.link, move.request, moving.group, moving.target, moving.epoch)

    def _prepared_by(self, server: str, attempt: int, reason: str) -> None:
        if (move := self._at("preparing", attempt)) is None:
            return
        if reason:
            self._stay(move, f"{server}: {reason}")
            return
        move.unprepared.discard(server)
        if not move.unprepared and move.moving.forced:
            self._fence(move)
        elif not move.unprepared:
            self._settled.paused.add(move.moving.group)
            move.offset, move.paused_us = self._state.offset, self._state.wall_us
            self._wait(move, "pausing", PAUSE_S)

    def _at(self, stage: str, attempt: int | None = None) -> GivenGroup | None:
        """Return the move if it is at a stage, and if it is the one that is meant."""
        move = self._move
        is_it = move is not None and move.stage == stage and attempt in (None, move.moving.attempt)
        return move if is_it else None

    # Stages -----------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Go on once all other servers have taken what was accepted before the pause."""
        self._leaders.go_on()
        if (move := self._at("reaching")) is not None:
            self._prepare(move)
        if (move := self._at("preparing")) is not None and move.moving.forced:
            leader = self._channels.directory.table.leaders[move.moving.group].server
            if self._leaders.reaches(leader):
                self._stay(move, f"{leader} can be reached again; move the group without force")
        if (move := self._at("pausing")) is None or self._awaited(move):
            return
        publishers = self._state.groups.publishers_of(self._state, move.moving.group)
        if len(publishers) > PUBLISHERS_MAX:
            self._stay(move, f"it has more than {PUBLISHERS_MAX} publishers")
            return
        rows, move.publishers = list(publishers.items()), len(publishers)
        move.parts = [
            encode_publishers(dict(rows[at : at + PART_ROWS])) for at in range(0, max(1, len(rows)), PART_ROWS)
        ]
        self._wait(move, "sending", SEND_S)
        self._send_part(move)

    def timer_fired(self) -> None:
        """Give up a stage that takes too long; behind the fence only the answer."""
        if (move := self._move) is None or self._links.now < move.deadline:
            return
        moving = move.moving
        match move.stage:
            case "reaching":
                names = " and ".join(self._unreached(move))
                self._move = None
                reason = f"{names} cannot be reached, and every server has to know the next leader; try again later"
                self._refuse(move, reason)
            case "preparing":
                names = " and ".join(sorted(move.unprepared))
                self._stay(move, f"{names} cannot have its interest at {moving.target} within {PREPARE_S:g} s")
            case "pausing":
                self._stay(move, self._awaited(move))
            case "sending":
                self._stay(move, f"{moving.target} does not take what is known of the publishers within {SEND_S:g} s")
            case "fenced":
                self._move = None
                reason = f"{moving.target} leads channel group {moving.group} as soon as it can be reached again"
                self._refuse(move, reason)

    def _awaited(self, move: GivenGroup) -> str:
        """Return what the fence waits for, "" if for nothing."""
        if lag := self._engine.lag(move.offset):
            return f"{self._channels.server}: {lag}; events have waited for {PAUSE_S:g} s"
        if not move.heads:
            move.heads = {each: head_for(self._state, self._user(each)) for each in self._channels.others}
        for server, head in move.heads.items():
            if taken_by(self._state, self._user(server)) < head:
                return f"{server} has not taken the events before it within {PAUSE_S:g} s"
        return self._refused_outbox()

    def _user(self, server: str) -> str:
        return server_user(server, self._domain)

    def _refused_outbox(self) -> str:
        """Return at which server an outbox has to repeat an event here, "" if at none: it may be one of the group."""
        for server in self._channels.others:
            for link in self._links.of_user(self._user(server)):
                if link.outbox_order:
                    return f"an outbox at {server} has to send an event again that was refused"
        return ""

    def _send_part(self, move: GivenGroup) -> None:
        """Send the next part of the publishers, or write the fence if all are known there."""
        moving = move.moving
        if move.part == len(move.parts):
            if reason := self._refused_outbox():
                self._stay(move, reason)
                return
            self._wait(move, "fenced", SEND_S)
            self._fence(move)
            return
        message = GroupPublishers(moving.group, moving.attempt, move.part, move.parts[move.part])
        for link in self._links.of_user(self._user(moving.target)):
            if link.session is not None:
                self._links.send(link, message)

    def _fence(self, move: GivenGroup) -> None:
        """Let the next leader lead: from this record on at its former leader, or here if that was gone."""
        moving = move.moving
        former = self._channels.directory.table.leaders[moving.group]
        ended = Leadership(former.epoch, former.server, self._state.wall_us)
        earlier = (*self._state.groups.row(moving.group).earlier, ended)
        led = LedGroup(moving.group, moving.target, moving.epoch, former.server, moving.forced, earlier)
        self._leaders.adopt(led, move.paused_us, move.publishers)
        self._leaders.begin()
        if moving.forced:
            self._move = None
            self._answer(move.link, move.request, moving.group, moving.target, moving.epoch)

    def _stay(self, move: GivenGroup, reason: str) -> None:
        """Give up a move before its fence."""
        self._move = None
        self._leaders.stay(move.moving.group)
        self._leaders.begin()
        leader = self._channels.directory.table.leaders[move.moving.group].server
        self._refuse(move, f"channel group {move.moving.group} stays at {leader}: {reason}")

    def _wait(self, move: GivenGroup, stage: Stage, seconds: float) -> None:
        move.stage, move.deadline = stage, self._links.now + seconds
        self._journal.emit_now(SetTimer(TIMER, move.deadline))

    def _answer(self, link: Link, request: int, group: int, server: str, epoch: int) -> None:
        if self._links.is_open(link):
            row = {"group": group, "server": server, "epoch": epoch}
            self._links.send(link, protocol.Listing(request, (row,)))

    def _refuse(self, move: GivenGroup, reason: str) -> None:
        if self._links.is_open(move.link):
            self._links.send(move.link, protocol.RequestRefused(move.request, protocol.shortened(reason)))
