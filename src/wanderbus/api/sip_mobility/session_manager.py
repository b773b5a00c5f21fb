"""Creates, updates and ends SIP sessions, and answers incoming ones (SPEC C-05, C-14, C-18, C-19).

The machine handles INVITE, 200, ACK and the rest (:mod:`wanderbus.mobility.session.session_manager`); this module has
the futures, the replies to offers, and the callbacks.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from wanderbus.api.sip_mobility.helper import SIPHelper
from wanderbus.api.sip_mobility.listener import SIPMobilityListenerManager
from wanderbus.api.sip_mobility.waiting import SessionFutures, Settled
from wanderbus.errors import (
    AuthenticationError,
    Closed,
    LocalProtocolError,
    NoResponse,
    SessionRefused,
    WanderbusError,
)
from wanderbus.machine import Output
from wanderbus.mobility.messages import (
    OfferWanted,
    SessionEstablished,
    SessionFailed,
    SessionOffered,
    SessionRemoved,
    SessionStateChanged,
    UpdateFailed,
)
from wanderbus.mobility.session.session import RemoteMediaStatus, SIPCommunicationStatus, SIPSession
from wanderbus.sip.message.sdp import MediaDescription

_log = logging.getLogger("wanderbus.sip_mobility")

OfferHandler = Callable[[SIPSession], int | Awaitable[int | None] | None]
"""Decides on an incoming session: None accepts it, a SIP status from 300 to 699 refuses it."""

CANNOT_SERVE: Final = 488
SERVER_ERROR: Final = 500

_CONNECTED: Final = SIPCommunicationStatus.CONNECTED


class SessionManager:
    """Every session of one SIPMobility. ``media`` returns the local media for the device's present address."""

    def __init__(
        self,
        helper: SIPHelper,
        listeners: SIPMobilityListenerManager,
        media: Callable[[], MediaDescription],
    ) -> None:
        self._helper = helper
        self._listeners = listeners
        self._media = media
        self._known: dict[str, SIPSession] = {}
        self._agreed: dict[str, object] = {}
        """The changeable parts of established sessions, as last agreed."""
        self._just_connected: set[str] = set()
        self._waiting = SessionFutures()
        self._deciding: dict[str, asyncio.Task[None]] = {}
        self._offer_handler: OfferHandler | None = None
        self.sessions: Mapping[str, SIPSession] = MappingProxyType(self._known)
        """Every session by id, as last reported; a live, read-only view."""

    async def create_session(self, uri: str) -> SIPSession:
        """Invite the user ``uri`` with the local media; return the session when it is established.

        Raises ConfigurationError for an invalid URI, SessionRefused with the status if the peer declines,
        AuthenticationError if we are not trusted, and NoResponse on a timeout. Cancelling the call cancels the INVITE.
        """
        session = self._helper.invite(uri, self._media())
        try:
            return await self._waiting.for_established(session)
        except asyncio.CancelledError:
            self._helper.bye(session)
            raise

    async def update_session(self, session: str) -> SIPSession:
        """Send our address and media to the peer of ``session`` again; return it when both sides agree.

        Raises LocalProtocolError for a session that is not established, and the errors of :meth:`create_session` if the
        update fails permanently: the session has then ended.
        """
        if session not in self._agreed:
            raise LocalProtocolError(f"there is no established session {session}")
        self._helper.reinvite(session, self._media())
        return await self._waiting.for_updated(session)

    async def terminate_session(self, session: str) -> None:
        """End ``session``, in any state; return when the peer has responded or is unreachable."""
        if session in self._known:
            self._helper.bye(session)
            await self._waiting.for_removed(session)

    def set_media_status(self, session: str, status: RemoteMediaStatus) -> None:
        """Set whether data reach the peer of ``session``; its SIP status is unchanged (SPEC C-14)."""
        if session not in self._known:
            raise LocalProtocolError(f"there is no session {session}")
        self._helper.set_media_status(session, status)

    def set_offer_handler(self, handler: OfferHandler | None) -> None:
        """Let ``handler`` decide on incoming sessions; without one, all are accepted.

        While an asynchronous handler decides, the caller gets a 180. An accepted session is still refused (488) if its
        media have no counterpart in ours.
        """
        self._offer_handler = handler

    def update_all(self) -> Awaitable[None]:
        """Update every session at once (SPEC C-18); the result completes when each has the update or has ended."""
        ours = [session.id for session in self._known.values() if session.created_here or session.id in self._agreed]
        if ours:
            self._helper.change_media(self._media())
        return Settled([self._waiting.for_updated(session) for session in ours])

    def stop(self) -> None:
        """Stop: fail all pending requests, and drop unanswered offers."""
        for deciding in self._deciding.values():
            deciding.cancel()
        self._deciding.clear()
        for session in list(self._known):
            self._removed(session, "terminated here", Closed("SIPMobility was terminated"))
        self._waiting.stop(Closed("SIPMobility was terminated"))

    def report(self, output: Output) -> None:
        """Handle a report of the stack on sessions."""
        match output:
            case SessionStateChanged(id=id, communication=communication, media=media):
                self._state_changed(id, communication, media)
            case SessionOffered(id=id, update=update):
                self._offered(id, update)
            case OfferWanted(id=id):
                self._offered(id, update=False)
            case SessionEstablished(id=id, update=update):
                self._both_agreed(id, update)
            case SessionFailed(id=id, status=status, reason=reason) | UpdateFailed(id=id, status=status, reason=reason):
                self._removed(id, reason, _failure(status, reason))
            case SessionRemoved(id=id, reason=reason):
                self._removed(id, reason, Closed(f"the session ended: {reason}"))

    # States ----------------------------------------------------------------------------------------------------------

    def _state_changed(self, id: str, communication: SIPCommunicationStatus, media: RemoteMediaStatus) -> None:
        before = self._known.get(id)
        latest = self._helper.sessions.get(id) or before
        if latest is None:
            return  # it began and ended within one step of the machine: no listener knows it
        after = msgspec.structs.replace(latest, communication=communication, media_status=media)
        self._known[id] = after
        if before is None:
            self._listeners.notify(lambda listener: listener.session_created(after))
        elif before.communication is not communication:
            self._communication_changed(after)
        if before is not None and before.media_status is not media:
            connected = media is RemoteMediaStatus.CONNECTED
            self._listeners.notify(
                lambda listener: (
                    listener.remote_media_connected(after) if connected else listener.remote_media_disconnected(after)
                )
            )

    def _communication_changed(self, session: SIPSession) -> None:
        if session.communication is SIPCommunicationStatus.DISCONNECTED:
            self._listeners.notify(lambda listener: listener.session_disconnected(session))
        elif session.communication is _CONNECTED:
            self._just_connected.add(session.id)
            self._connected(session)

    def _connected(self, session: SIPSession) -> None:
        again = session.id in self._agreed
        self._agreed.setdefault(session.id, None)
        self._listeners.notify(
            lambda listener: listener.session_reconnected(session) if again else listener.session_connected(session)
        )

    def _both_agreed(self, id: str, update: bool) -> None:
        """Handle an agreement on media; a re-INVITE of the peer causes one without any change of state."""
        session = self._helper.sessions.get(id)
        before = self._agreed.get(id)
        if session is None:
            return
        self._known[id] = session
        if id not in self._just_connected:
            self._connected(session)
        self._just_connected.discard(id)
        self._agreed[id] = _data(session)
        if update and before != self._agreed[id]:
            self._listeners.notify(lambda listener: listener.session_changed(session))
        self._waiting.agreed(session)

    def _removed(self, id: str, reason: str, error: WanderbusError) -> None:
        session = self._known.pop(id, None)
        self._agreed.pop(id, None)
        self._just_connected.discard(id)
        if (deciding := self._deciding.pop(id, None)) is not None:
            deciding.cancel()
        if session is not None:
            self._listeners.notify(lambda listener: listener.session_removed(session, reason))
        self._waiting.removed(id, error)

    # Offers ----------------------------------------------------------------------------------------------------------

    def _offered(self, id: str, update: bool) -> None:
        session = self._known.get(id)
        if session is None:
            return
        if update or self._offer_handler is None:
            self._settle(id, None)
        elif id not in self._deciding:  # a caller that moves meanwhile offers again; one decision is enough
            self._decide(session, self._offer_handler)

    def _decide(self, session: SIPSession, handler: OfferHandler) -> None:
        try:
            decision = handler(session)
        except Exception:
            _log.exception("the handler of offers failed in session %s", session.id)
            decision = SERVER_ERROR
        if inspect.isawaitable(decision):
            self._helper.ring(session.id)
            self._deciding[session.id] = asyncio.create_task(self._decide_later(session.id, decision))
        else:
            self._settle(session.id, decision)

    async def _decide_later(self, id: str, decision: Awaitable[int | None]) -> None:
        try:
            status = await decision
        except Exception:
            _log.exception("the handler of offers failed in session %s", id)
            status = SERVER_ERROR
        self._deciding.pop(id, None)
        self._settle(id, status)

    def _settle(self, id: str, status: int | None) -> None:
        """Accept the offer in session ``id`` with our media, or refuse it with ``status``."""
        try:
            if status is None:
                self._helper.accept(id, self._media())
                return
        except LocalProtocolError:
            status = CANNOT_SERVE  # there are no local media yet
        self._helper.refuse(id, status if 300 <= status <= 699 else SERVER_ERROR)


def _data(session: SIPSession) -> object:
    """The parts of a session that an update can change: addresses of SIP and data, on both sides."""
    remote_target = None if session.dialog is None else session.dialog.remote_target
    return session.sip_address, session.local_media, session.remote_media, remote_target


def _failure(status: int | None, reason: str) -> WanderbusError:
    if status is None:
        return NoResponse(f"the other side does not respond: {reason}")
    if status in (401, 403, 407):
        return AuthenticationError(f"the other side does not trust us: {status} {reason}")
    return SessionRefused(f"the session was refused: {status} {reason}", status)
