"""Handover of a whole session to another server, and from another (SPEC L-01; DESIGN 5.3).

The source fences a session in the epoch of its next owner: from that record on it sends nothing for the session and
lets no device attach, and it keeps the export until the next owner has it. Each step may be repeated after a crash.
"""

from __future__ import annotations

from wanderbus import protocol, records
from wanderbus.broker.backlog import MessageQueue
from wanderbus.broker.basics import Basics
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.engine.matched_delivery import MatchedDelivery
from wanderbus.broker.messages import (
    DropExport,
    FenceSession,
    ImportSession,
    LinkDropped,
    SessionExported,
    SessionMoveRefused,
    SessionOwned,
)
from wanderbus.broker.sessions.presence import Presence
from wanderbus.broker.state.exported_session import decode_export
from wanderbus.broker.state.rows import SessionRow, session_key
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.errors import RemoteProtocolError


def moved(session: SessionRow) -> protocol.RequestRefused:
    """Return the refusal of a device of a fenced session."""
    reason = f"the session {session.name!r} has moved to another server (owner epoch {session.owner_epoch}); call again"
    return protocol.RequestRefused(0, reason)


class Handover:
    """Fences, exports and imports sessions."""

    def __init__(
        self,
        basics: Basics,
        presence: Presence,
        subscriptions: Subscriptions,
        backlog: MessageQueue,
        engine_events: EngineEvents,
        matched: MatchedDelivery,
    ) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._presence = presence
        self._subscriptions = subscriptions
        self._backlog = backlog
        self._engine_events = engine_events
        self._matched = matched
        self._leaving: dict[str, tuple[int, FenceSession]] = {}
        """Sessions to be fenced once the matching engine has matched all its events below an offset."""

    def fence(self, given: FenceSession) -> None:
        """Give up a session and export it."""
        key = session_key(given.user, given.session)
        session = self._state.sessions.get(key)
        if session is None:
            self._refuse(given.user, given.session, "there is no such session")
            return
        if not session.is_fenced and given.owner_epoch > session.owner_epoch:
            if self._has_to_wait(session, given):
                return
            self._turn_away(session, given.owner_epoch)
            self._subscriptions.release(session)
            self._links.release(session)
            fenced = records.SessionFenced(
                at_us=self._state.wall_us, user=given.user, session=given.session, owner_epoch=given.owner_epoch
            )
            self._journal.write(fenced, urgent=True)
            session = self._state.sessions[key]
        export = self._state.exports.get(key)
        if session.owner_epoch != given.owner_epoch or export is None:
            self._refuse(given.user, given.session, f"its owner epoch is {session.owner_epoch}")
            return
        self._journal.emit(SessionExported(given.user, given.session, given.owner_epoch, export.export))

    def go_on(self) -> None:
        """Fence the sessions that waited for the matching engine, as far as it has matched their events."""
        for key, (offset, given) in list(self._leaving.items()):
            if self._engine_events.has_matched(offset):
                self.fence(given)
                del self._leaving[key]
                self._matched.leaving.pop(key, None)

    def is_leaving(self, session: SessionRow) -> bool:
        """Return whether the session is fenced as soon as its events are matched."""
        return session.key in self._leaving

    def _has_to_wait(self, session: SessionRow, given: FenceSession) -> bool:
        """Return whether the matching engine has events for the session, which has to take them along.

        From then on it gets no later events, and its devices are turned away. A crash forgets this, and the fence is
        repeated.
        """
        offset, _ = self._leaving.get(session.key, (self._state.offset, given))
        if self._engine_events.has_matched(offset) or not (session.subscriptions or session.ended):
            return False
        self._leaving[session.key] = offset, given
        self._matched.leaving[session.key] = offset
        self._turn_away(session, given.owner_epoch)
        self._subscriptions.release(session)
        return True

    def drop_export(self, given: DropExport) -> None:
        """Forget what the next owner has."""
        if session_key(given.user, given.session) in self._state.exports:
            dropped = records.ExportDropped(at_us=self._state.wall_us, user=given.user, session=given.session)
            self._journal.write(dropped, urgent=False)

    def import_session(self, given: ImportSession) -> None:
        """Become the owner of an exported session."""
        try:
            exported = decode_export(given.export).session
        except RemoteProtocolError as error:
            self._refuse("", "", str(error))
            return
        user, name, owner_epoch = exported.user, exported.name, exported.owner_epoch
        session = self._state.sessions.get(exported.key)
        if session is not None and (not session.is_fenced or session.owner_epoch >= owner_epoch):
            if session.is_fenced or session.owner_epoch != owner_epoch:
                self._refuse(user, name, f"the session is here, with the owner epoch {session.owner_epoch}")
                return
        else:
            imported = records.SessionImported(
                at_us=self._state.wall_us, user=user, session=name, owner_epoch=owner_epoch, export=given.export
            )
            self._journal.write(imported, urgent=True)
            session = self._state.sessions[exported.key]
            self._subscriptions.take_over(session)
            self._links.take_over(session)
            self._presence.take_over(session)
        kept = [self._state.subscriptions[each].subscription for each in session.subscriptions]
        owned = SessionOwned(user, name, owner_epoch)
        self._subscriptions.when_used(kept, lambda: self._journal.emit(owned))

    def _turn_away(self, session: SessionRow, owner_epoch: int) -> None:
        """Close the links of a session, after their waiting acknowledgements; its devices find the next owner."""
        for link in list(self._links.of_session(session.key)):
            self._backlog.closes(link)
        for link in list(self._links.of_session(session.key)):
            refusal = moved(SessionRow(session.user, session.name, session.epoch, owner_epoch))
            self._links.send(link, refusal)
            self._presence.closed(link, "moved to another server")
            self._journal.emit(LinkDropped(link.link, refusal.reason))

    def _refuse(self, user: str, session: str, reason: str) -> None:
        self._journal.emit(SessionMoveRefused(user, session, reason))
