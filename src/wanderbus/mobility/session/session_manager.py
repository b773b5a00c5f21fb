"""Establishes, updates and ends sessions; one per Call-ID (SPEC C-05, C-18, C-19, D-06, D-08; RFC 3261 13 to 15).

The two sides of INVITE are in :mod:`.uac_invite` and :mod:`.uas_invite`, BYE in :mod:`.bye`, session timers in
:mod:`.session_refresh`. This module handles the owner's requests, and passes each message to its part.
"""

from __future__ import annotations

from collections.abc import Mapping

from wanderbus.errors import LocalProtocolError, SIPParseError
from wanderbus.machine import Address, RandomSource
from wanderbus.mobility.composer import Composer
from wanderbus.mobility.messages import (
    AcceptOffer,
    ChangeMedia,
    CreateSession,
    Effect,
    OwnerRequest,
    Refuse,
    Ring,
    SetMediaStatus,
    TerminateSession,
    UpdateSession,
)
from wanderbus.mobility.session import calls
from wanderbus.mobility.session.ack_wait import AckWait
from wanderbus.mobility.session.bye import BYE_KIND, ByeExchange
from wanderbus.mobility.session.call import Call
from wanderbus.mobility.session.calls import Calls
from wanderbus.mobility.session.forking import FORK_KIND, Forking
from wanderbus.mobility.session.offer_answer import relocated
from wanderbus.mobility.session.session import SIPSession
from wanderbus.mobility.session.session_refresh import REFRESH_KIND, SessionRefresher
from wanderbus.mobility.session.uac_invite import INVITE_KIND, UacInvites
from wanderbus.mobility.session.uas_invite import UasInvites
from wanderbus.sip.authentication.digest_client import Challenges
from wanderbus.sip.message.message import Request, Response
from wanderbus.sip.message.sdp import MediaDescription
from wanderbus.sip.message.uri import canonical_uri
from wanderbus.sip.transaction.transaction_layer import BaseTimers


class SessionManager:
    """All sessions of one user agent. Its methods return inputs for the transaction layer, timers and reports."""

    def __init__(self, composer: Composer, challenges: Challenges, random: RandomSource, timers: BaseTimers) -> None:
        self._composer = composer
        self._challenges = challenges
        self._calls = Calls()
        self._forking = Forking(self._calls, challenges, timers)
        self._bye = ByeExchange(composer, self._calls, challenges)
        self._uac = UacInvites(composer, self._calls, challenges, self._bye, self._forking, random, timers)
        self._ack_wait = AckWait(self._calls, self._uac, self._bye, timers)
        self._uas = UasInvites(composer, self._calls, self._uac, self._ack_wait, random)
        self._refresher = SessionRefresher(composer, self._calls, challenges, self._uac, self._bye)

    @property
    def sessions(self) -> Mapping[str, SIPSession]:
        """Every session by id; a live view."""
        return self._calls.sessions

    def adopt(self, snapshot: bytes) -> str:
        """Restore a session stored before a restart; return its id (DESIGN 6.3).

        Raises LocalProtocolError if the snapshot is invalid or another user's, or if the session exists already.
        """
        session = SIPSession.restore(snapshot)
        if session.owner_uri != self._composer.properties.uri:
            raise LocalProtocolError(f"session {session.id} belongs to {session.owner_uri}, not to this user")
        self._calls.add(session)
        return session.id

    def ask(self, owner_request: OwnerRequest, now: float) -> list[Effect]:
        """Execute a request of the owner; one about a session or an offer that has just ended is ignored.

        Raises LocalProtocolError for a CreateSession with an id in use or without a user's URI, and for a Refuse with a
        status that does not refuse.
        """
        if isinstance(owner_request, CreateSession):
            return self._create(owner_request, now)
        if isinstance(owner_request, ChangeMedia):
            return [effect for call in self._calls for effect in self._update(call, owner_request.media, now)]
        call = self._calls.get(owner_request.id)
        if call is None:
            return []
        match owner_request:
            case UpdateSession(media=media, method=method):
                return self._update(call, media, now, method)
            case TerminateSession(quietly=quietly):
                return self._terminate(call, now, quietly=quietly)
            case Ring():
                return self._uas.ring(call, now)
            case AcceptOffer(media=media, renews=renews) if call.offer is not None:
                if renews and call.outgoing is not None:
                    call.outgoing.restart(media)
                return self._uas.answer(call, media, now)
            case Refuse(status=status, reason=reason, contacts=contacts) if call.offer is not None:
                return self._uas.refuse(call, status, now, reason, contacts)
            case SetMediaStatus(media=media_status):
                return self._calls.set_media_status(call, media_status)
        return []

    def terminate_all(self, now: float) -> list[Effect]:
        """End every session."""
        return [effect for call in self._calls for effect in self._terminate(call, now)]

    def address_changed(self, former: Address, now: float) -> list[Effect]:
        """Send unanswered requests again (a first INVITE, a BYE, a refresh): their responses would go to ``former``.

        Established sessions wait for the owner, who knows their new media (SPEC D-08 step 2).
        """
        effects: list[Effect] = []
        for call in self._calls:
            effects += self._bye.moved(call) + self._refresher.moved(call, now)
            if call.outgoing is not None and not call.established and not call.ending:
                media = relocated(call.outgoing.media, former[0], self._composer.contact[0])
                effects += self._uac.moved(call, media, now)
        return effects

    def offered(self, transaction: str, request: Request, now: float) -> list[Effect]:
        """Handle an INVITE or UPDATE of the peer."""
        return self._uas.requested(transaction, request, now)

    def cancelled(self, transaction: str, request: Request, now: float) -> list[Effect]:
        """Handle the peer's CANCEL of its INVITE."""
        return self._uas.cancelled(transaction, request, now)

    def acknowledged(self, request: Request, now: float) -> list[Effect]:
        """Handle the ACK for a 200 of ours."""
        return self._ack_wait.acknowledged(request, now)

    def ended(self, transaction: str, request: Request) -> list[Effect]:
        """Handle a BYE (RFC 3261 15.1.2)."""
        return self._bye.requested(transaction, request, self._calls.get(request.call_id))

    def peer_in(self, request: Request) -> str | None:
        """Return the peer of the dialog that ``request`` belongs to, None if that is unknown (12.2.2)."""
        call = self._calls.get(request.call_id)
        if call is None or call.session.dialog is None or call.session.dialog.accepts(request) == 481:
            return None
        return call.session.remote_uri

    def responded(self, transaction: str, response: Response, now: float) -> list[Effect]:
        """Handle a response to a request of ours; an unusable one is discarded, as if it had been lost."""
        try:
            return self._responded(transaction, response, now)
        except SIPParseError as error:
            kind, call = self._calls.named_in(transaction)
            if kind != INVITE_KIND or call is None or response.status < 200:
                return []
            return self._uac.unusable(call, transaction, response, str(error), now)

    def timed_out(self, transaction: str, now: float, *, sent: bool = True) -> list[Effect]:
        """Handle the timeout of a request of ours, or a failure to send it (``sent`` False)."""
        kind, call = self._calls.named_in(transaction)
        if kind == INVITE_KIND:
            self._forking.over(transaction)
        if call is None:
            return []
        if kind == BYE_KIND:
            return self._bye.timed_out(call, transaction)
        if kind == REFRESH_KIND:
            return self._refresher.timed_out(call, transaction, now)
        if kind == INVITE_KIND and call.outgoing is not None and call.outgoing.transaction == transaction:
            return self._uac.timed_out(call, now) if sent else self._uac.unsendable(call, now)
        return []

    def timer_fired(self, id: str, kind: str, now: float) -> list[Effect]:
        """Handle a timer of session ``id``."""
        call = self._calls.get(id)
        if call is None:
            return []
        match kind:
            case calls.INVITE_TIMER:
                return self._uac.timer_fired(call, now)
            case calls.ANSWER_TIMER:
                return self._ack_wait.timer_fired(call, now)
            case calls.REPLY_TIMER:
                return self._uas.timer_fired(call, now)
            case calls.REFRESH_TIMER:
                return self._refresher.due(call, now)
            case calls.EXPIRY_TIMER:
                return self._refresher.expired(call)
        return []

    def _responded(self, transaction: str, response: Response, now: float) -> list[Effect]:
        """Handle a response; SIPParseError if it is unusable."""
        kind, call = self._calls.named_in(transaction)
        if kind == FORK_KIND:
            return self._forking.responded(transaction, response)
        if kind == INVITE_KIND:
            effects = self._uac.responded(call, transaction, response, now)
            if call is not None and call.ending and call.established and call.pending_bye is None:
                effects += self._bye.begin(call, "ended here")
            return effects
        if call is None:
            return []
        if kind == BYE_KIND:
            return self._bye.responded(call, transaction, response)
        return self._refresher.responded(call, transaction, response, now) if kind == REFRESH_KIND else []

    def _create(self, request: CreateSession, now: float) -> list[Effect]:
        try:
            remote_uri = canonical_uri(request.uri)
        except SIPParseError as error:
            raise LocalProtocolError(f"cannot invite {request.uri!r}: {error}") from error
        if not request.id or not request.id.isascii() or not request.id.isprintable() or " " in request.id:
            raise LocalProtocolError(f"{request.id!r} cannot be a session id: it must be one printable ASCII word")
        session = SIPSession(
            id=request.id,
            owner_uri=self._composer.properties.uri,
            remote_uri=remote_uri,
            created_here=True,
            local_tag=self._composer.fresh_tag(),
            local_cseq=0,
            sip_address=self._composer.contact,
            description_id=self._composer.fresh_description_id(),
            sip_transport=self._composer.properties.transport,
        )
        call = self._calls.add(session)
        call.is_service = request.is_service
        return self._uac.create(call, request.media, now, hurried=request.hurried)

    def _update(self, call: Call, media: MediaDescription, now: float, method: str = "INVITE") -> list[Effect]:
        if call.pending_bye is not None or call.ending or (call.offer is not None and not call.established):
            return []
        return self._uac.begin(call, media, now, method)

    def _terminate(self, call: Call, now: float, *, quietly: bool = False) -> list[Effect]:
        if call.pending_bye is not None or call.ending:
            return []
        if call.session.dialog is not None:
            return self._bye.begin(call, "ended here")
        if call.offer is not None:
            return self._uas.refuse(call, 480, now)
        return self._uac.cancel(call, repeats=not quietly)
