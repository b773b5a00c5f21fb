"""Creates, updates and ends SIP sessions, and answers those of others (SPEC C-05, C-14, C-18, C-19).

INVITE, 200, ACK and the rest are the machine's work (:mod:`wanderbus.mobility.session.session_manager`); here are the
futures, the answers to offers, and the callbacks.
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
from wanderbus.api.sip_mobility.waiting import Settled, Waiting
from wanderbus.errors import (
    AuthenticationError,
    Closed,
    LocalProtocolError,
    SessionRefused,
    Unreachable,
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
from wanderbus.mobility.session.session import SIPSession
from wanderbus.mobility.session.status import RemoteMediaStatus, SIPCommunicationStatus
from wanderbus.sip.message.sdp import MediaDescription

_log = logging.getLogger("wanderbus.sip_mobility")

OfferHandler = Callable[[SIPSession], int | Awaitable[int | None] | None]
"""Decides on a session that another user wants: None takes it, a SIP status from 300 to 699 refuses it."""

CANNOT_SERVE: Final = 488
SERVER_ERROR: Final = 500

_CONNECTED: Final = SIPCommunicationStatus.CONNECTED


class SessionManager:
    """Every session of one SIPMobility. ``media`` gives the local media for where the device is now."""

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
        """Of established sessions what an update can change, as last agreed."""
        self._just_connected: set[str] = set()
        self._waiting = Waiting()
        self._deciding: dict[str, asyncio.Task[None]] = {}
        self._offer_handler: OfferHandler | None = None
        self.sessions: Mapping[str, SIPSession] = MappingProxyType(self._known)
        """Every session by id, as last heard of; a live, read-only view."""

    async def create_session(self, uri: str) -> SIPSession:
        """Invite the user ``uri`` with the local media; return the session when it is established.

        Raises ConfigurationError for what is no URI, SessionRefused with the status if the other side declines,
        AuthenticationError if we are not trusted, and Unreachable if nobody answers. Cancelling it gives up.
        """
        session = self._helper.invite(uri, self._media())
        try:
            return await self._waiting.for_established(session)
        except asyncio.CancelledError:
            self._helper.bye(session)
            raise

    async def update_session(self, session: str) -> SIPSession:
        """Tell the other side of ``session`` anew where and how we are reached; return it when both agree.

        Raises LocalProtocolError for a session that is not established, and as :meth:`create_session` if the update
        fails for good: the session is gone then.
        """
        if session not in self._agreed:
            raise LocalProtocolError(f"there is no established session {session}")
        self._helper.reinvite(session, self._media())
        return await self._waiting.for_updated(session)

    async def terminate_session(self, session: str) -> None:
        """End ``session``, in whatever state it is; return when the other side has confirmed or is out of reach."""
        if session in self._known:
            self._helper.bye(session)
            await self._waiting.for_removed(session)

    def set_media_status(self, session: str, status: RemoteMediaStatus) -> None:
        """Say whether data reaches the other side of ``session``; its SIP status stays as it is (SPEC C-14)."""
        if session not in self._known:
            raise LocalProtocolError(f"there is no session {session}")
        self._helper.set_media_status(session, status)

    def set_offer_handler(self, handler: OfferHandler | None) -> None:
        """Let ``handler`` decide on the sessions of others; without one, all are taken.

        While an asynchronous handler decides, the caller is told that it rings here (180). A session that is taken
        though its media have no counterpart in ours is refused all the same (488).
        """
        self._offer_handler = handler

    def update_all(self) -> Awaitable[None]:
        """Update every session at once (SPEC C-18); what is returned ends when each has taken it or is gone."""
        ours = [session.id for session in self._known.values() if session.created_here or session.id in self._agreed]
        if ours:
            self._helper.change_media(self._media())
        return Settled([self._waiting.for_updated(session) for session in ours])

    def stop(self) -> None:
        """End: nobody waits any longer, and what was not answered in time is forgotten."""
        for deciding in self._deciding.values():
            deciding.cancel()
        self._deciding.clear()
        for session in list(self._known):
            self._removed(session, "terminated here", Closed("SIPMobility was terminated"))
        self._waiting.stop(Closed("SIPMobility was terminated"))

    def report(self, output: Output) -> None:
        """Take what the stack reports about sessions."""
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
            return  # it came and went within one step of the machine: nobody was told of it
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
        """Both sides agreed on media; a re-INVITE of the other side does so without any change of state."""
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
        elif id not in self._deciding:  # a caller that moves meanwhile offers again; one decision serves
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
        """Answer what is offered in session ``id`` with our media, or refuse it with ``status``."""
        try:
            if status is None:
                self._helper.accept(id, self._media())
                return
        except LocalProtocolError:
            status = CANNOT_SERVE  # there are no local media yet
        self._helper.refuse(id, status if 300 <= status <= 699 else SERVER_ERROR)


def _data(session: SIPSession) -> object:
    """What an update can change: where SIP and data are received, on both sides."""
    remote_target = None if session.dialog is None else session.dialog.remote_target
    return session.sip_address, session.local_media, session.remote_media, remote_target


def _failure(status: int | None, reason: str) -> WanderbusError:
    if status is None:
        return Unreachable(f"the other side does not answer: {reason}")
    if status in (401, 403, 407):
        return AuthenticationError(f"the other side does not trust us: {status} {reason}")
    return SessionRefused(f"the session was refused: {status} {reason}", status)
