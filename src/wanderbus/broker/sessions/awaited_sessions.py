"""Sessions that move here from another server: awaited first, then imported (SPEC L-02 to L-04; decision 0142).

While a session is awaited, this server gets the events for its subscriptions as if it had them; they stay in the log.
When the session is here, each subscription reads them there, without those that it has from the source, and becomes
live as one that began in the past (:mod:`wanderbus.broker.history.catch_up`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from wanderbus import records
from wanderbus.broker.basics import Basics
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.interest.publisher_filters import PublisherFilters
from wanderbus.broker.patterns.pattern_admission import has_its_events
from wanderbus.broker.servers.interest_requests import InterestRequests, with_entries
from wanderbus.broker.sessions.handover_messages import (
    AwaitedEffective,
    AwaitSession,
    ContinueQueue,
    ForgetAwaited,
    ImportSession,
    QueueReached,
    SessionMoveRefused,
    SessionOwned,
)
from wanderbus.broker.sessions.presence import Presence
from wanderbus.broker.sessions.turned_away import TurnedAway
from wanderbus.broker.state.exported_session import ExportedSession, decode_export, decode_piece
from wanderbus.broker.state.rows import SessionRow, session_key
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.errors import RemoteProtocolError
from wanderbus.subscription import Subscription

AfterPast = Callable[[ExportedSession, Callable[[], None]], None]
"""Calls a function once everything is delivered here that a session may have seen at its source."""


class AwaitedSessions:
    """Awaits and imports sessions."""

    def __init__(
        self,
        basics: Basics,
        presence: Presence,
        subscriptions: Subscriptions,
        interest: InterestRequests,
        filters: PublisherFilters,
        turned_away: TurnedAway,
        engine: EngineEvents,
        after_past: AfterPast,
    ) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._queue_limits = basics.queue_limits
        self._presence = presence
        self._subscriptions = subscriptions
        self._interest = interest
        self._filters = filters
        self._turned_away = turned_away
        self._engine = engine
        self._after_past = after_past
        self._routes: dict[str, list[str]] = {}
        """Names of what publishing agents have to know of each subscription, by its id."""
        self._importing: set[str] = set()
        """Sessions that wait for the causal past of their source."""
        self._add([one for row in basics.state.awaited.values() for one in row.subscriptions])

    def wait_for(self, given: AwaitSession) -> None:
        """Get the events of a session that is about to move here."""
        key, state = session_key(given.user, given.session), self._state
        reason = self._obstacle(key, given.owner_epoch) or self._obstacle_to_patterns(given.subscriptions)
        if reason is not None:
            self._journal.emit(SessionMoveRefused(given.user, given.session, reason))
            return
        before = state.awaited.get(key)
        known = {each.id for each in before.subscriptions} if before is not None else set[str]()
        if before is None or (before.owner_epoch, before.source, before.subscriptions) != (
            given.owner_epoch,
            given.source,
            given.subscriptions,
        ):
            awaited = records.SessionAwaited(
                at_us=state.wall_us,
                user=given.user,
                session=given.session,
                owner_epoch=given.owner_epoch,
                source=given.source,
                subscriptions=given.subscriptions,
            )
            self._journal.write(awaited, urgent=True)
            wanted_ids = {each.id for each in given.subscriptions}
            self._remove([each for each in before.subscriptions if each.id not in wanted_ids] if before else [])
            self._add([each for each in given.subscriptions if each.id not in known])
        self._report_when_effective(given)

    def forget(self, given: ForgetAwaited) -> None:
        """Take no events for a session any more, which stays where it is."""
        key = session_key(given.user, given.session)
        if (row := self._state.awaited.get(key)) is not None and key not in self._importing:
            stays = records.SessionNotAwaited(at_us=self._state.wall_us, user=given.user, session=given.session)
            self._journal.write(stays, urgent=True)
            self._remove(row.subscriptions)

    def import_session(self, given: ImportSession) -> None:
        """Become the owner of an exported session."""
        try:
            exported = decode_export(given.export)
        except RemoteProtocolError as error:
            self._journal.emit(SessionMoveRefused("", "", str(error)))
            return
        moving = exported.session
        session = self._state.sessions.get(moving.key)
        if session is not None and not session.is_fenced and session.owner_epoch == moving.owner_epoch:
            self._report_owned(exported)
        elif (reason := self._obstacle(moving.key, moving.owner_epoch)) is not None:
            self._journal.emit(SessionMoveRefused(moving.user, moving.name, reason))
        elif moving.key not in self._importing:
            self._importing.add(moving.key)
            try:
                self._after_past(exported, partial(self._import, exported, given.export))
            except RemoteProtocolError as error:
                self._importing.discard(moving.key)
                self._journal.emit(SessionMoveRefused(moving.user, moving.name, str(error)))

    def _import(self, exported: ExportedSession, export: bytes) -> None:
        moving, state = exported.session, self._state
        self._importing.discard(moving.key)
        if (reason := self._obstacle(moving.key, moving.owner_epoch)) is not None:
            self._journal.emit(SessionMoveRefused(moving.user, moving.name, reason))
            return
        row = state.awaited.get(moving.key)
        awaited = () if row is None else row.subscriptions
        session = self.take_in(exported, export)
        self._queue_limits.keep(session)
        self._forget_routes(awaited)
        for each in awaited:
            if each.id not in state.subscriptions:
                self._interest.remove(each.id)
        self._subscriptions.end_patterns_without_events(session.subscriptions)
        self._presence.take_over(session)
        self._report_owned(exported)

    def continue_queue(self, given: ContinueQueue) -> None:
        """Add the next piece to the queue of an imported session, unless it is here already."""
        state = self._state
        session = state.sessions.get(session_key(given.user, given.session))
        if session is None or session.is_fenced or session.owner_epoch != given.owner_epoch:
            return
        piece = decode_piece(given.piece)
        if session.source and piece.after == session.arrived and (piece.is_last or piece.through > piece.after):
            continued = records.QueueContinued(
                at_us=state.wall_us,
                user=given.user,
                session=given.session,
                owner_epoch=given.owner_epoch,
                export=given.piece,
            )
            self._journal.write(continued, urgent=True)
            self._queue_limits.keep(session)
            self._links.notify(session, state.queued_for(session))
            if not session.source:
                self._subscriptions.read_log(session)
        self._report(session)

    def _report(self, session: SessionRow) -> None:
        """Report how much of a session is here, once that is durable."""
        owner = session.user, session.name, session.owner_epoch
        self._journal.emit(QueueReached(*owner, session.arrived) if session.source else SessionOwned(*owner))

    def take_in(self, exported: ExportedSession, export: bytes) -> SessionRow:
        """Record an exported session, which nothing opposes, and match its subscriptions; return its row.

        The devices of the empty session in whose place it comes join again.
        """
        moving, state = exported.session, self._state
        if (before := state.sessions.get(moving.key)) is not None and not before.is_fenced:
            self._turned_away.close(before)
        imported = records.SessionImported(
            at_us=state.wall_us, user=moving.user, session=moving.name, owner_epoch=moving.owner_epoch, export=export
        )
        self._journal.write(imported, urgent=True)
        session = state.sessions[moving.key]
        self._subscriptions.take_over(session)
        self._links.take_over(session)
        return session

    def _report_owned(self, exported: ExportedSession) -> None:
        moving, state = exported.session, self._state
        session = state.sessions[moving.key]
        kept = [state.subscriptions[each].subscription for each in session.subscriptions]
        self._subscriptions.when_used(kept, lambda: self._report(session))

    def _obstacle(self, key: str, owner_epoch: int) -> str | None:
        """Return why a session cannot move here, None if it can: in place of one in which nothing is."""
        session = self._state.sessions.get(key)
        if session is None or (session.owner_epoch < owner_epoch and (session.is_fenced or session.is_empty)):
            return None
        return f"the session is here, with the owner epoch {session.owner_epoch}"

    def _obstacle_to_patterns(self, subscriptions: Sequence[Subscription]) -> str | None:
        lacking = next((each.id for each in subscriptions if not has_its_events(each, self._engine)), None)
        return lacking and f"{lacking} is a pattern, and the matching engine of {self._state.server} has its events"

    def _add(self, subscriptions: Sequence[Subscription]) -> None:
        """Tell the other servers, and publishing agents, what is wanted."""
        readable = with_entries(subscriptions)
        self._interest.add(readable)
        for subscription, entries in readable:
            names = self._routes[subscription.id] = [f"{subscription.id} {place}" for place in range(len(entries))]
            for name, entry in zip(names, entries, strict=True):
                self._filters.add_route(name, entry.subject, entry.interest.filter)

    def _remove(self, subscriptions: Sequence[Subscription]) -> None:
        for each in subscriptions:
            self._interest.remove(each.id)
        self._forget_routes(subscriptions)

    def _forget_routes(self, subscriptions: Sequence[Subscription]) -> None:
        for each in subscriptions:
            for name in self._routes.pop(each.id, ()):
                self._filters.remove_route(name)

    def _report_when_effective(self, given: AwaitSession) -> None:
        """Report once every subscription is effective at all other servers, and no agent holds its events back."""
        report = AwaitedEffective(given.user, given.session, given.owner_epoch)
        waiting = {each.id for each in given.subscriptions}

        def effective(identity: str = "") -> None:
            waiting.discard(identity)
            if not waiting:
                self._filters.when_used(given.subscriptions, lambda: self._journal.emit(report))

        if not waiting:
            effective()
        for each in given.subscriptions:
            self._interest.when_effective(each.id, None, partial(effective, each.id))
