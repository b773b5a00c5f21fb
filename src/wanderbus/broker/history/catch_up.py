"""Subscriptions that read the past: their turns, the pieces of the log they read, and the seam to live (SPEC T-05).

A subscription that is behind has a cursor in the log, which is part of the durable state. Matches of new events are
not queued for it: the log has them. The log is that of the server that leads the channel. One piece is read at a time
in each log, and users take turns. A piece is requested only when the queue has room, so that reading the past drops
nothing. A pattern in a session that has moved here reads as well; the steps that an event matches are in the record.

**The seam.** A piece that reaches the end of the log ends at the offset of the next record, H. From then on the matches
of new events are held in memory until the piece is read. One record takes the events of the piece, the held ones and
the switch to live, so every event below H comes from the log, every later one from memory, and the cursor and the
notifications are durable together. If anything prevents the switch (a crash, a lack of room, too many held events),
the cursor is at H or before, and the held events are read from the log like all others.

**The seam to a leader.** A piece of another server's log is requested once the subscription counts there, so the leader
sends every later match. H is the end of what is durable there when it reads the piece, which its answer says. Arrivals
are held from the request on, and those below H are discarded. H stays in the row: events below it may also arrive after
the switch. A leader that cannot be reached is asked again after a pause. If the channel has had several leaders, the
subscription reads them one after the other (:mod:`wanderbus.broker.history.seams`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Final

import msgspec

from wanderbus import records
from wanderbus.broker.basics import Basics
from wanderbus.broker.history.asked_piece import AskedPiece, TakenEvents, session_of
from wanderbus.broker.history.leader_pieces import RETRY_S, LeaderPieces
from wanderbus.broker.history.room import QueueRoom
from wanderbus.broker.history.seams import Seams
from wanderbus.broker.history.turns import Turns
from wanderbus.broker.interest.filter_accounts import Undecided
from wanderbus.broker.interest.index_entries import subjects_of
from wanderbus.broker.messages import HistoryFailed, HistoryRead, HistoryWanted, PastEvent, PastReader
from wanderbus.broker.restrictions.past_check import past_blocked_by
from wanderbus.broker.state.replays import are_far, is_read, is_read_elsewhere, leader_span, notified_of
from wanderbus.broker.state.rows import SessionRow, SubscriptionRow
from wanderbus.machine import SetTimer
from wanderbus.protocol import decode_event
from wanderbus.subscription import PATTERN, Subscription

PIECE_RECORDS_MAX: Final = 4_096
"""Records of one piece."""

PIECE_EVENTS_MAX: Final = 256
PIECE_BYTES_MAX: Final = 256 * 2**10
"""Matching events of one piece, and their bytes: they are written as one record."""

SHARED_MAX: Final = 16
"""Subscriptions in sessions that moved here and read one piece together, if they are of several sessions."""

PIECE_EVENTS_BESIDE: Final = 16
"""Matching events of one piece while others are active, who wait meanwhile."""

CURSOR_RECORDS_MIN: Final = 65_536
"""Records after which a cursor is written although no event matched. If each piece wrote its own, the records of many
subscriptions would keep the end of the log away from all of them."""

HELD_MAX: Final = 256
"""Events that are held while the last piece is read."""

_HERE: Final = ""
"""Place of the logs that this server reads; other places are the names of leaders."""

_UNKNOWN_END: Final = 2**62
"""End of a piece that a leader reads: the leader knows the end of its log."""


class CatchUp:
    """Every live subscription that is behind, and the piece of one of them that is being read."""

    def __init__(
        self,
        basics: Basics,
        matched_below: Callable[[], int],
        below: Callable[[str], tuple[str, ...]],
        leader_pieces: LeaderPieces,
        is_effective: Callable[[Subscription], bool],
        seams: Seams,
    ) -> None:
        """Create it.

        :param matched_below: returns the offset below which the matching engine has matched its events
        :param below: returns a subject and all subjects below it
        :param leader_pieces: reads in the logs of leaders
        :param is_effective: returns whether a subscription is effective at all leaders of its subjects
        :param seams: knows the leader that follows another one
        """
        self._conditions = basics.conditions
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._queue_limits = basics.queue_limits
        self._room = QueueRoom(basics.state, basics.queue_limits, basics.config)
        self._filter_work_max = basics.config.filter_work_max
        self._pattern_events_max = basics.config.user_pattern_events_max
        self._kinds = basics.kinds
        self._matched_below = matched_below
        self._below = below
        self._leader_pieces = leader_pieces
        self._is_effective = is_effective
        self._seams = seams
        self._pieces = 0
        self._asked: dict[str, AskedPiece] = {}
        """The piece that is being read at each place."""
        self._reached: dict[str, int] = {}
        """Offsets up to which nothing matched since the cursor was written."""
        self._turns: dict[str, Turns] = {_HERE: Turns()}
        """Those that may read, by the place of their log."""
        self._ineffective: list[str] = []
        """Those that are not effective at their leader yet."""
        self._apart: set[str] = set()
        """Those that read with no other session, because a piece that several shared could not be read."""
        self._paced: list[tuple[float, str]] = []
        """Those that have to wait until a monotonic second."""
        self._full: dict[str, list[str]] = {}
        """Those whose queue has no room, by session."""

    def add(self, identity: str) -> None:
        """Let a new, revived, stored or imported subscription read the log, if it is behind."""
        row = self._state.subscriptions[identity]
        if not row.history:
            return
        self._reached.pop(identity, None)
        asked = next((each for each in self._asked.values() if identity in each.wanted.identities), None)
        if asked is not None:
            asked.held = None  # what came while it was not live was not held
            return
        here = self._asked.get(_HERE)
        if here is not None and session_of(row.subscription) in here.sessions:
            here.held = None  # those that read after a handover become live together
        if not self._is_known(row.subscription.owner, identity):
            self._let_read(identity)

    def _is_known(self, user: str, identity: str) -> bool:
        waiting = [*self._full.values(), [each for _, each in self._paced], self._ineffective]
        has_turn = any(several.has(user, identity) for several in self._turns.values())
        return has_turn or any(identity in several for several in waiting)

    def go_on(self) -> None:
        """Request the next pieces, each once the records that it ends with are durable."""
        if not self._conditions.is_disk_full:
            if self._paced or self._full:
                self._wake()
            for place, turns in list(self._turns.items()):
                if turns and place not in self._asked:
                    self._choose(turns)
        asked = self._asked.get(_HERE)
        if asked is not None and not asked.is_sent and asked.wanted.end <= self._journal.durable:
            asked.is_sent = True
            self._journal.emit_now(asked.wanted)

    def look(self) -> None:
        """Let every subscription look for room again; others may have left some to it."""
        full, self._full = self._full, {}
        for identities in full.values():
            self._read_again(identities)

    def _let_read(self, identity: str) -> None:
        """Give a subscription its turn, if it is behind."""
        row = self._state.subscriptions.get(identity)
        if row is None or not row.history:
            self._reached.pop(identity, None)
            self._apart.discard(identity)
        else:
            span = leader_span(row, self._state.server)
            turns = self._turns.setdefault(_HERE if span is None else span.server, Turns())
            turns.add(row.subscription.owner, identity)

    def became_effective(self) -> None:
        """Let subscriptions read that may be effective at their leaders now."""
        ineffective, self._ineffective = self._ineffective, []
        self._read_again(ineffective)

    def lost(self, leader: str) -> None:
        """Take a report that new events of ``leader`` are lost: its log, or a source of what that lacks, has them."""
        if leader in self._asked:
            self._asked[leader].held = None

    def hold(self, behind: Sequence[str], event: PastEvent, *, is_undecided: bool) -> None:
        """Hold an accepted event that matches the subscriptions ``behind``, if one of them waits for its last piece.

        The matching engine also names events of that piece, which are read.
        """
        for asked in self._asked.values():
            if own := tuple(each for each in asked.wanted.identities if each in behind):
                held = msgspec.structs.replace(event, subscriptions=own)
                asked.hold(held, 0 if is_undecided else HELD_MAX)

    def read(self, given: HistoryRead) -> Subscription | None:
        """Use a piece that was read; return a subscription whose history cannot be read, so that it has to end."""
        asked = next((each for each in self._asked.values() if each.wanted.piece == given.piece), None)
        if asked is None:
            return None
        del self._asked[asked.leader]
        sessions = asked.sessions
        if given.failed and len(sessions) > 1:
            self._apart.update(asked.wanted.identities)
            self._read_again(asked.wanted.identities)
            return None
        if asked.leader and not given.failed:
            asked.end_at(given)
        unreadable = None
        for identities in sessions.values():
            if rows := self._next_of(asked.wanted, identities):
                unreadable = self._read(rows, asked, given)
            else:
                self._read_again(identities)
        return unreadable

    def _read(self, rows: Sequence[SubscriptionRow], asked: AskedPiece, given: HistoryRead) -> Subscription | None:
        """Use a piece for the subscriptions of a session; return one whose history cannot be read."""
        if given.retry_s and not self._seams.gives_up(rows[0]):
            for row in rows:
                self._let_read_at(row.subscription.id, self._links.now + given.retry_s)
        elif given.failed and self._seams.goes_on(rows[0], given):
            self._pass_over(rows[0], given)
        elif given.failed:
            wanted = asked.wanted
            self._read_again([each.subscription.id for each in wanted.others])
            self._journal.emit(HistoryFailed(wanted.subscription.id, given.failed))
            return wanted.subscription
        else:
            self._use(rows, asked, given)
        return None

    def _read_again(self, identities: Sequence[str]) -> None:
        for identity in identities:
            self._let_read(identity)

    def _next_of(self, wanted: HistoryWanted, identities: Sequence[str]) -> list[SubscriptionRow]:
        """Return the subscriptions of a session that read a piece if it is the next one of each, else none."""
        found = [self._state.subscriptions.get(identity) for identity in identities]
        rows = [row for row in found if row is not None and row.history and self._is_next(row, wanted)]
        return rows if len(rows) == len(found) else []

    def _wake(self) -> None:
        """Give those their turns whose pause is over, or whose queue may have room."""
        now = self._links.now
        while self._paced and self._paced[0][0] <= now:
            self._let_read(heappop(self._paced)[1])
        for key in self._state.take_relieved():
            self._read_again(self._full.pop(key, ()))

    def _choose(self, turns: Turns) -> None:
        """Request the piece of the next subscription with room in its queue."""
        while turns:
            identity = turns.take()
            row = self._state.subscriptions.get(identity)
            if row is None or not row.history:
                self._reached.pop(identity, None)
                self._seams.answered(identity)
                continue
            session = self._session(row)
            if session.source:
                continue  # what it reads comes behind the rest of the queue
            if not row.history[0].is_handover and not self._room.is_due(session, row):
                self._wait_for_room(session, row)
                continue
            span = leader_span(row, self._state.server)
            if (span is not None or row.history[0].epoch) and not self._is_effective(row.subscription):
                self._ineffective.append(identity)
                continue
            if span is None:
                self._ask(session, row)
            else:
                self._ask_leader(session, row, span.server)
            return

    def _ask_leader(self, session: SessionRow, row: SubscriptionRow, leader: str) -> None:
        wanted = self._wanted(session, row, _UNKNOWN_END)
        self._asked[leader] = AskedPiece(wanted, [], is_sent=True, leader=leader)
        self._leader_pieces.read(wanted)

    def _ask(self, session: SessionRow, row: SubscriptionRow) -> None:
        together = self._together(session, row)
        row = min(together, key=self._next)
        span = row.history[0]
        first = self._next(row)
        known_end = self._seams.end_here(row) if span.end is None else span.end
        log_end = self._state.offset if known_end is None else known_end
        end = min(log_end, first + PIECE_RECORDS_MAX)
        is_last = known_end is None and end == log_end
        if is_last:
            self._journal.hurry()  # the piece is read once its last record is durable
        wanted = self._wanted(session, row, end)
        is_here = (span.server, span.incarnation) == (self._state.server, self._state.incarnation)
        others = [each.subscription for each in together if each is not row]
        beside = tuple([self._reader(each) for each in others])
        wanted = msgspec.structs.replace(wanted, others=beside)
        self._asked[_HERE] = AskedPiece(wanted, [] if is_last else None, is_sent=not is_here)
        if not is_here:
            self._journal.emit_now(wanted)

    def _together(self, session: SessionRow, row: SubscriptionRow) -> list[SubscriptionRow]:
        """Return the subscriptions that read with this one: all of a session that moved here, each from its own place.

        Together they get each event once, and in the order of the log, as if they were live. Other sessions that moved
        here read the same piece: one after the other, each would wait for all pieces before its own.
        """
        if not row.history[0].is_handover:
            return [row]
        found, sessions = self._moved(session), {session.key}
        for identity in () if row.subscription.id in self._apart else self._turns[_HERE]:
            other = self._state.subscriptions.get(identity)
            if other is None or identity in self._apart or (key := session_of(other.subscription)) in sessions:
                continue
            sessions.add(key)
            beside = [] if self._state.sessions[key].source else self._moved(self._state.sessions[key])
            if len(found) + len(beside) > SHARED_MAX:
                break
            found += beside
        return found

    def _moved(self, session: SessionRow) -> list[SubscriptionRow]:
        """Return the subscriptions of a session that read what came here while it moved."""
        found = (self._state.subscriptions[each] for each in session.subscriptions)
        return [each for each in found if each.history and each.history[0].is_handover]

    def _wanted(self, session: SessionRow, row: SubscriptionRow, end: int) -> HistoryWanted:
        span = row.history[0]
        events, size = self._left(session, row)
        is_alone = span.is_handover or not self._links.is_contested(row.subscription.owner)
        reader = self._reader(row.subscription)
        most = PIECE_EVENTS_MAX if is_alone else min(PIECE_EVENTS_BESIDE, PIECE_EVENTS_MAX)
        self._pieces += 1
        return HistoryWanted(
            self._pieces,
            row.subscription,
            span.server,
            span.incarnation,
            self._next(row),
            end,
            min(most, events),
            min(PIECE_BYTES_MAX, size),
            self._filter_work_max,
            reader.subjects,
            steps=reader.steps,
            leader_epoch=span.epoch,
        )

    def _reader(self, subscription: Subscription) -> PastReader:
        if subscription.language == PATTERN:
            return PastReader(subscription, steps=tuple([self._below(each) for each in subjects_of(subscription)]))
        return PastReader(subscription, self._below(subscription.subject))

    def _use(self, rows: Sequence[SubscriptionRow], asked: AskedPiece, given: HistoryRead) -> None:
        session = self._session(rows[0])
        last_us = {row.subscription.id: row.last_us for row in rows}
        taken = TakenEvents(last_us, dict.fromkeys(last_us, 0))
        # What came here for a session that moves is no past of it, although it is read from the log.
        cursor = self._take(session, rows, taken, given.events, is_history=not rows[0].history[0].is_handover)
        if cursor is not None:
            self._write(session, rows, taken, cursor, given)
        elif self._seams.is_over(rows[0], given) or self._seams.is_former(rows[0]):
            self._end_epoch(session, rows[0], taken, given)
        else:
            self._use_last(session, rows, taken, asked, given)

    def _use_last(
        self,
        session: SessionRow,
        rows: Sequence[SubscriptionRow],
        taken: TakenEvents,
        asked: AskedPiece,
        given: HistoryRead,
    ) -> None:
        """Become live behind a piece of the present leader, if that is the last one and all held events find room."""
        if asked.held is not None and given.end == asked.wanted.end:
            before = taken.copy()
            if self._take(session, rows, taken, asked.held, is_history=False) is None:
                self._write(session, rows, taken, None, given)
                return
            taken = before
        self._write(session, rows, taken, given.end, given)

    def _end_epoch(self, session: SessionRow, row: SubscriptionRow, taken: TakenEvents, given: HistoryRead) -> None:
        """Read on at a former leader, or at the next one where that is over."""
        is_over = self._seams.is_over(row, given)
        onward = self._seams.following(row) if is_over else None
        if onward is not None or taken.events or not (is_over or given.is_at_end):
            self._seams.answered(row.subscription.id)
            self._write(session, [row], taken, given.end, given, onward)
        elif self._seams.gives_up(row):
            self._pass_over(row, given)
        else:  # the leader, or this server, does not know yet who is the next one
            self._let_read_at(row.subscription.id, self._links.now + RETRY_S)

    def _pass_over(self, row: SubscriptionRow, given: HistoryRead) -> None:
        """Go on behind a gap in place of what cannot be read: at the first record that is kept, or the next leader."""
        session, identity = self._session(row), row.subscription.id
        reason = given.failed or f"{row.history[0].server} does not know that it leads the channel no longer"
        self._seams.lose(session, row, reason)
        nothing = TakenEvents({identity: row.last_us}, {identity: 0})
        kept = max(self._next(row), min(given.kept_from, self._seams.end_here(row) or given.kept_from))
        onward = None if kept > self._next(row) else self._seams.following(row)
        self._write(session, [row], nothing, kept, given, onward)

    def _take(
        self,
        session: SessionRow,
        rows: Sequence[SubscriptionRow],
        taken: TakenEvents,
        events: Sequence[PastEvent],
        *,
        is_history: bool,
    ) -> int | None:
        """Add events that restrictions allow to ``taken``; return the offset of the first without room, else None."""
        row = rows[0]
        most, size = self._left(session, row)
        is_empty = self._room.is_empty(session, row)
        for event in events:
            matching = [each for each in rows if _gets(each, event)]
            steps = _steps_of(matching, event)
            if steps and self._state.patterns.kept_of(session.user) + len(taken.stepped) >= self._pattern_events_max:
                unsure = (*event.unsure, *steps)
                event, steps = msgspec.structs.replace(event, undecided="user_pattern_events_max", unsure=unsure), {}
            notified = [each for each in matching if each.subscription.id not in steps]
            allowed = [each.subscription.id for each in notified if self._is_allowed(each, event, taken)]
            fits = taken.count < most and taken.bytes + len(event.event) <= size
            if (allowed or steps) and not fits and (taken.count or not is_empty):
                return event.offset
            taken.add(event, notified, allowed, is_history=is_history)
            taken.add_steps(event, steps)
        return None

    def _is_allowed(self, row: SubscriptionRow, event: PastEvent, taken: TakenEvents) -> bool:
        wanted, last_us = row.subscription, taken.last_us[row.subscription.id]
        return past_blocked_by(wanted.restrictions, wanted.owner, event, last_us, self._links, self._kinds) is None

    def _left(self, session: SessionRow, row: SubscriptionRow) -> tuple[int, int]:
        """Return how many events and bytes may be added: all that a session which moved here was due, as if live."""
        if row.history[0].is_handover:
            return PIECE_EVENTS_MAX, PIECE_BYTES_MAX
        return self._room.left(session, row)

    def _write(
        self,
        session: SessionRow,
        rows: Sequence[SubscriptionRow],
        taken: TakenEvents,
        cursor: int | None,
        given: HistoryRead,
        onward: records.LogPlace | None = None,
    ) -> None:
        """Write cursors and notifications as one record, and send what the windows allow.

        Without a ``cursor`` the subscriptions are live, and ``given`` is the end of their history. They read ``onward``
        at the next leader.
        """
        row, first = rows[0], session.next
        is_empty = not taken.count and not any(taken.restricted.values())
        if cursor is not None and onward is None and is_empty and self._is_early(row, cursor):
            for each in rows:
                self._postpone(session, each, cursor)
            return
        by_identity = {each.subscription.id: each for each in rows}
        self._apart.difference_update(by_identity)
        for identity in by_identity:
            self._reached.pop(identity, None)
        one, *others = taken.restricted.items()
        events = [
            records.ReplayedEvent(event.id, event.at_us, msgspec.Raw(event.event), past, several if others else ())
            for event, several, past in zip(taken.events, taken.subscriptions, taken.is_history, strict=True)
        ]
        span = leader_span(row, self._state.server)
        live_from = read_below = read_epoch = 0
        if cursor is None:
            live_from = max(0 if span else given.end, self._matched_below())
            read_below, read_epoch = (0, 0) if span is None else (given.end, given.epoch)
        replayed = records.Replayed(
            at_us=self._state.wall_us,
            user=session.user,
            session=session.name,
            subscription=one[0],
            first=first,
            events=tuple(events),
            restricted=one[1],
            next=cursor,
            live_from=live_from,
            log=None if span is None else (span.server, span.incarnation or given.incarnation),
            read_below=read_below,
            read_epoch=read_epoch,
            others=tuple(others),
            stepped=tuple(taken.stepped),
            onward=onward,
        )
        added = []
        for number, (event, several) in enumerate(zip(taken.events, taken.subscriptions, strict=True), first):
            unsure = (event.unsure or several) if event.undecided else ()
            undecided = {each: Undecided(event.undecided, 0) for each in several if each in unsure}
            added.append((session, notified_of([by_identity[each] for each in several], number), undecided))
        self._journal.write_delivery(replayed, lambda: self._queue_limits.bound(added), urgent=bool(events))
        if events:
            self._links.notify(session, by_identity)
        if row.history:
            self._pace(rows, taken.count)

    def _is_early(self, row: SubscriptionRow, cursor: int) -> bool:
        """Return whether a cursor does not have to be written yet."""
        span = row.history[0]
        return span.incarnation > 0 and cursor != span.end and cursor - span.next < CURSOR_RECORDS_MIN

    def _postpone(self, session: SessionRow, row: SubscriptionRow, cursor: int) -> None:
        """Read on from ``cursor``, after waiting for room if the piece had an event that found none."""
        if not row.history[0].is_handover and cursor == self._next(row) and not self._room.is_empty(session, row):
            self._wait_for_room(session, row)
            return
        self._reached[row.subscription.id] = max(cursor, self._next(row))
        self._let_read(row.subscription.id)

    def _next(self, row: SubscriptionRow) -> int:
        """Return the offset of the next record to read."""
        return max(row.history[0].next, self._reached.get(row.subscription.id, 0))

    def _is_next(self, row: SubscriptionRow, wanted: HistoryWanted) -> bool:
        span, place = row.history[0], self._next(row)
        is_at_place = place >= wanted.first if span.is_handover else place == wanted.first
        return is_at_place and (span.server, span.incarnation) == (wanted.server, wanted.incarnation)

    def _pace(self, rows: Sequence[SubscriptionRow], events: int) -> None:
        """Let subscriptions of a user read on at the pace of a backlog."""
        pause_s = self._links.pause_s(rows[0].subscription.owner, events)
        for row in rows:
            if pause_s:
                self._let_read_at(row.subscription.id, self._links.now + pause_s)
            else:
                self._let_read(row.subscription.id)

    def _let_read_at(self, identity: str, at: float) -> None:
        """Give a subscription its turn at monotonic second ``at``."""
        heappush(self._paced, (at, identity))
        self._journal.emit_now(SetTimer(("history", identity), at))

    def _wait_for_room(self, session: SessionRow, row: SubscriptionRow) -> None:
        self._full.setdefault(session.key, []).append(row.subscription.id)
        self._state.wanting_room.add(session.key)

    def _session(self, row: SubscriptionRow) -> SessionRow:
        return self._state.sessions[session_of(row.subscription)]


def _steps_of(rows: Sequence[SubscriptionRow], event: PastEvent) -> dict[str, int]:
    """Return the steps that an event matches, of each of these subscriptions that is one to a pattern."""
    steps = dict(event.steps)
    return {row.subscription.id: steps[row.subscription.id] for row in rows if row.subscription.id in steps}


def _gets(row: SubscriptionRow, event: PastEvent) -> bool:
    """Return whether an event of a piece is for a subscription, which may not have got it at a former owner."""
    span = row.history[0]
    if span.is_handover and event.offset < span.next:
        return False
    passed = row.read_below if span.is_handover else ()
    is_own = not event.subscriptions or row.subscription.id in event.subscriptions
    if are_far(passed):
        content = decode_event(event.event)
        return is_own and not is_read_elsewhere(event.id, content, passed, decentralised=event.is_decentralised)
    return is_own and not is_read(event.id, passed, decentralised=event.is_decentralised)
