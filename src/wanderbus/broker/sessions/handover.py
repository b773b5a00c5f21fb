"""Handover of a whole session to another server (SPEC L-01 to L-04; decision 0142).

The source fences a session in the epoch of its next owner: from that record on it sends nothing for the session and
lets no device attach, and it keeps the export until the next owner has it. Each step may be repeated after a crash.

In a domain, the target gets the events for the session before that, too. The fence has the *cut*: for each server, the
first event of its log that the session has not got here. The target passes over what lies before the cut. So the source
fences only when it has everything that other servers had sent before the target was ready: their *heads*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final

from wanderbus import records
from wanderbus.broker.basics import Basics
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.engine.matched_delivery import MatchedDelivery
from wanderbus.broker.publish.origins import Origins
from wanderbus.broker.servers.server_users import server_user
from wanderbus.broker.sessions.handover_messages import (
    DropExport,
    FenceSession,
    Head,
    HeadFound,
    HeadWanted,
    KeepSession,
    SessionExported,
    SessionMoveRefused,
    UserUnowned,
)
from wanderbus.broker.sessions.turned_away import TurnedAway
from wanderbus.broker.state.exported_session import answers_to, decode_publishers, encode_publishers
from wanderbus.broker.state.replays import is_arriving
from wanderbus.broker.state.rows import PublisherRow, SessionRow, session_key
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.event import EventId
from wanderbus.limits import NUMBER_MAX
from wanderbus.records import Cut
from wanderbus.subscription import PATTERN

HEADS_MAX: Final = 1_024
"""Largest number of requests of a server for the head that wait for the matching engine. The oldest gets no answer: the
session for which it was asked stays, and is tried again."""


class _Leaving:
    """A session that is about to leave: for what, and from which offset on no event here is for it."""

    def __init__(self, given: FenceSession) -> None:
        self.given = given
        self.end: int | None = None
        """End of the log when everything below the heads was here, None until then."""
        self.offset: int | None = None
        """None until the matching engine has come to that end."""
        self.cuts: tuple[Cut, ...] = ()


class Handover:
    """Fences and exports sessions."""

    def __init__(
        self,
        basics: Basics,
        subscriptions: Subscriptions,
        turned_away: TurnedAway,
        engine_events: EngineEvents,
        matched: MatchedDelivery,
        origins: Origins,
    ) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._domain = basics.config.domain
        self._subscriptions = subscriptions
        self._turned_away = turned_away
        self._engine_events = engine_events
        self._matched = matched
        self._origins = origins
        self._leaving: dict[str, _Leaving] = {}
        """Sessions to be fenced, in memory: after a crash the fence is requested again."""
        self._heads: dict[str, dict[int, tuple[EventId, HeadWanted]]] = {}
        """End of the log for each request for the head without an answer, by server; the earliest ends are first."""

    def head(self, given: HeadWanted) -> None:
        """Tell another server how far this log goes, and what it was sent until there, once that is matched."""
        heads = self._heads.setdefault(given.server, {})
        heads.pop(given.request, None)
        heads[given.request] = self._state.next_id, given
        if len(heads) > HEADS_MAX:
            del heads[next(iter(heads))]
        self._give_heads()

    def _give_heads(self) -> None:
        """Answer the requests for the head below which no event waits for the matching engine."""
        for server, heads in self._heads.items():
            for end, given in list(takewhile(self._can_be_answered, heads.values())):
                del heads[given.request]
                self._journal.emit(HeadFound(server, given.request, self._head(end, given)))

    def _can_be_answered(self, waiting: tuple[EventId, HeadWanted]) -> bool:
        """Return whether the engine has matched all below the end that a request waits for."""
        return self._engine_events.has_matched(waiting[0].number)

    def _head(self, end: EventId, given: HeadWanted) -> Head:
        state, server = self._state, given.server
        epoch = number = incarnation = direct = 0
        for session in state.sessions_of(server_user(server, self._domain)):
            epoch, number = session.epoch, session.next - 1
        own = state.servers[state.server]
        if server in own.servers:
            causal = state.decentralised.causal
            incarnation, direct = causal.origin[1], causal.outgoing.link(own.servers.index(server)).before
        answers = answers_to(state, given.user, given.devices) if given.devices else {}
        encoded = encode_publishers(answers) if answers else b""
        return Head(end, epoch, number, incarnation, direct, self._engine_events.is_mixed, encoded)

    def fence(self, given: FenceSession) -> None:
        """Give up a session and export it, as soon as everything for it is here."""
        key = session_key(given.user, given.session)
        session = self._state.sessions.get(key)
        if session is None:
            self._refuse(given.user, given.session, "there is no such session")
        elif session.is_fenced or given.owner_epoch <= session.owner_epoch:
            self._give_export(session, given)
        elif given.target and (more := self._unknown_to_target(session, given)):
            self._refuse(given.user, given.session, f"the session has {more} further subscriptions", has_more=True)
        elif given.target and (reason := self._obstacle(session, given)):
            self._refuse(given.user, given.session, reason)
        else:
            leaving = self._leaving.get(key)
            if leaving is None or leaving.offset is None:
                self._leaving[key] = _Leaving(given)
            self._go_on(key)

    def keep(self, given: KeepSession) -> None:
        """Let a session stay, if it is not about to be fenced."""
        key = session_key(given.user, given.session)
        session, leaving = self._state.sessions.get(key), self._leaving.get(key)
        if leaving is not None and leaving.offset is None:
            del self._leaving[key]
            leaving = None
        if leaving is None and (session is None or not session.is_fenced):
            self._refuse(given.user, given.session, self._lateness())

    def _lateness(self) -> str:
        """Return why a session could not be fenced in time."""
        if lag := self._engine_events.lag(self._state.offset):
            return f"{self._state.server}: {lag}"
        return "events that other servers sent for it did not come in time"

    def go_on(self) -> None:
        """Give the heads that are known now, and fence the sessions for which everything is here."""
        self._give_heads()
        for key in list(self._leaving):
            self._go_on(key)

    def is_leaving(self, session: SessionRow) -> bool:
        """Return whether the session is fenced as soon as its events are matched."""
        leaving = self._leaving.get(session.key)
        return leaving is not None and leaving.offset is not None

    def drop_export(self, given: DropExport) -> None:
        """Forget what the next owner has."""
        key, at_us = session_key(given.user, given.session), self._state.wall_us
        if self._state.left_for(key) is None:
            return
        dropped: records.OfMoves = records.ExportDropped(at_us=at_us, user=given.user, session=given.session)
        if given.through is not None:
            dropped = records.ExportTaken(at_us=at_us, user=given.user, session=given.session, through=given.through)
        self._journal.write(dropped, urgent=False)

    def unowned(self, given: UserUnowned) -> None:
        """Forget the sessions of a user that have moved from here and are over, so that they can begin again."""
        state = self._state
        left = (each for each in state.sessions_of(given.user) if each.is_fenced and state.left_for(each.key) is None)
        if over := tuple((each.user, each.name) for each in left if given.session in ("", each.name)):
            self._journal.write(records.Forgotten(at_us=state.wall_us, sessions=over), urgent=True)

    def _unknown_to_target(self, session: SessionRow, given: FenceSession) -> int:
        return len(set(session.subscriptions) - set(given.subscriptions))

    def _obstacle(self, session: SessionRow, given: FenceSession) -> str:
        """Return why a session has to stay, "" if it may leave."""
        mixed = [each.end.origin for each in given.heads if each.is_mixed]
        if session.is_visit:
            return f"the requests of the session {session.name!r} are about this server"
        if mixed:
            return f"the matching engine of {mixed[0]} has some subjects only, so events of {mixed[0]} change places"
        return "" if given.far_heads is None else self._obstacle_to_domains(session)

    def _obstacle_to_domains(self, session: SessionRow) -> str:
        """Return why a session has to stay in this domain, "" if it may leave."""
        for identity in session.subscriptions:
            row = self._state.subscriptions[identity]
            if row.subscription.language == PATTERN:
                return f"{identity} is a pattern, and patterns stay in their domain"
            if any(not each.is_handover for each in row.history):
                return f"{identity} reads the past, which is in the logs of this domain; try again later"
        return ""

    def _go_on(self, key: str) -> None:
        """Fence a session if everything for it is here, and matched.

        It may stay until the matching engine has come to the end of what was here then. While the engine has the few
        later events, devices are turned away already: what comes from now on is not for the session here.
        """
        leaving, session = self._leaving[key], self._state.sessions.get(key)
        if session is None:
            del self._leaving[key]
            return
        given = leaving.given
        if leaving.offset is None:
            if given.target and (self._unknown_to_target(session, given) or not self._has_all(session, given.heads)):
                self._look_again(key, session, given)
                return
            if leaving.end is None:
                leaving.end = self._state.offset
            if given.target and not self._is_matched(session, leaving.end):
                return
            leaving.offset, leaving.cuts = self._state.offset, self._cuts_for(given)
            if not self._is_matched(session, leaving.offset):
                self._matched.leaving[key] = leaving.offset
                self._turned_away.close(session)
                self._subscriptions.release(session)
        if self._is_matched(session, leaving.offset):
            self._fence(session, leaving)

    def _look_again(self, key: str, session: SessionRow, given: FenceSession) -> None:
        """Refuse the move if a subscription has been added since it was requested."""
        if more := self._unknown_to_target(session, given):
            del self._leaving[key]
            self._refuse(given.user, given.session, f"the session has {more} further subscriptions", has_more=True)

    def _is_matched(self, session: SessionRow, offset: int) -> bool:
        return self._engine_events.has_matched(offset) or not (session.subscriptions or session.ended)

    def _fence(self, session: SessionRow, leaving: _Leaving) -> None:
        key, given = session.key, leaving.given
        del self._leaving[key]
        if self._matched.leaving.pop(key, None) is None:
            self._subscriptions.release(session)
        self._turned_away.close(session)
        self._links.release(session)
        fenced = records.SessionFenced(
            at_us=self._state.wall_us,
            user=given.user,
            session=given.session,
            owner_epoch=given.owner_epoch,
            target=given.target,
            cuts=leaving.cuts,
            cause=given.cause,
            subscriptions=tuple(session.subscriptions),
            queue_bytes=given.queue_bytes,
            answers=None if given.far_heads is None else _answers([each.answers for each in given.heads]),
        )
        left = [self._state.subscriptions[identity].subscription for identity in session.subscriptions]
        self._journal.write(fenced, urgent=True)
        self._subscriptions.left(left)
        self._give_export(self._state.sessions[key], given)

    def _give_export(self, session: SessionRow, given: FenceSession) -> None:
        export = self._state.exports.get(session.key)
        if session.owner_epoch != given.owner_epoch or export is None:
            self._refuse(given.user, given.session, f"its owner epoch is {session.owner_epoch}")
            return
        self._journal.emit(SessionExported(given.user, given.session, given.owner_epoch, export.export))

    def _has_all(self, session: SessionRow, heads: Sequence[Head]) -> bool:
        """Return whether everything below the ``heads`` is here, and in the queues of the session."""
        state = self._state
        for head in heads:
            origin = head.end.origin
            row = state.leaders.get(origin)
            if head.number and (row is None or row.epoch < head.epoch or row.number < head.number):
                return False
            if head.direct:
                number = state.servers[state.server].servers.index(origin)
                if state.decentralised.causal.delivered.get((number, head.incarnation), 0) < head.direct:
                    return False
        return not is_arriving(state, session)

    def _cuts_for(self, given: FenceSession) -> tuple[Cut, ...]:
        """Return the cuts for the next owner."""
        if given.far_heads is not None:
            return self._far_cuts([*given.heads, *given.far_heads])
        return self._cuts(given.heads)

    def _cuts(self, heads: Sequence[Head]) -> tuple[Cut, ...]:
        """Return for each log what the session has got."""
        if not heads:
            return ()
        state = self._state
        cuts = [Cut(state.next_id, state.next_id)]
        for head in heads:
            ordered, decentralised = (state.leaders.get(head.end.origin), state.decentralised.seen.get(head.end.origin))
            cuts.append(
                Cut(
                    _behind(head.end, None if ordered is None else ordered.last),
                    _behind(head.end, None if decentralised is None else decentralised.id),
                )
            )
        return tuple(cuts)

    def _far_cuts(self, heads: Sequence[Head]) -> tuple[Cut, ...]:
        """Return what the session has got, by server, and by subject where that is more.

        Another domain knows no models of channels here, but events of one server and subject come in order in both.
        """
        ends = [self._state.next_id, *(each.end for each in heads)]
        below = {end.origin: end for end in ends}
        behind = (
            (EventId(last.origin, last.incarnation, min(last.number + 1, NUMBER_MAX)), subject)
            for subject, last in self._origins
        )
        further = [
            Cut(end, end, subject) for end, subject in behind if end.origin not in below or end > below[end.origin]
        ]
        return (*(Cut(end, end) for end in ends), *further)

    def _refuse(self, user: str, session: str, reason: str, *, has_more: bool = False) -> None:
        self._journal.emit(SessionMoveRefused(user, session, reason, has_more))


def _behind(end: EventId, last: EventId | None) -> EventId:
    """Return the first event that has not come: all below ``end`` has, and so has ``last``."""
    if last is None:
        return end
    return max(end, EventId(last.origin, last.incarnation, min(last.number + 1, NUMBER_MAX)))


def _answers(several: Iterable[bytes]) -> bytes:
    """Return the answers of all servers together, encoded."""
    found: dict[str, PublisherRow] = {}
    for each in several:
        for key, row in (decode_publishers(each) if each else {}).items():
            found[key] = found[key].merged(row) if key in found else row
    return encode_publishers(found)
