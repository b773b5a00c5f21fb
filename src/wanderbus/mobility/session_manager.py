"""Establishes, updates and ends sessions; one per Call-ID (SPEC C-05, C-18, C-19, D-06, D-08; RFC 3261 13 to 15).

The two halves of INVITE are in :mod:`.inviting` and :mod:`.answering`; here are the owner's requests, BYE, and who
gets which message.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wanderbus.errors import LocalProtocolError, SIPParseError
from wanderbus.machine import Address, RandomSource
from wanderbus.mobility.answering import Answering
from wanderbus.mobility.calls import ANSWER_TIMER, INVITE_TIMER, Call, Calls, Effect, Farewell
from wanderbus.mobility.challenges import CHALLENGE_STATUSES, Challenges
from wanderbus.mobility.composer import Composer
from wanderbus.mobility.inviting import INVITE_KIND, Inviting
from wanderbus.mobility.messages import (
    Answer,
    CreateSession,
    Refuse,
    SessionRemoved,
    SetMediaStatus,
    TerminateSession,
    UpdateSession,
)
from wanderbus.mobility.paths import reachable
from wanderbus.mobility.session import SIPSession
from wanderbus.mobility.status import Occurrence
from wanderbus.sip.message import Request, Response, make_response
from wanderbus.sip.sdp import MediaDescription
from wanderbus.sip.transactions import Respond, SendRequest, Timers
from wanderbus.sip.uri import canonical_uri

BYE_KIND = "bye"
"""How the names of our BYE transactions begin."""

Wish = CreateSession | UpdateSession | TerminateSession | Answer | Refuse | SetMediaStatus
"""What the owner may ask of a session."""


class SessionManager:
    """All sessions of one user agent. Its methods return requests for the transaction layer, timers and reports."""

    def __init__(self, composer: Composer, challenges: Challenges, random: RandomSource, timers: Timers) -> None:
        self._composer = composer
        self._challenges = challenges
        self._calls = Calls()
        self._inviting = Inviting(composer, self._calls, challenges, random, timers)
        self._answering = Answering(composer, self._calls, self._inviting, random, timers)

    @property
    def sessions(self) -> Mapping[str, SIPSession]:
        """Every session by id; a live view."""
        return self._calls.sessions

    def adopt(self, snapshot: bytes) -> str:
        """Go on with a session stored before a restart; return its id (DESIGN 6.3).

        Raises LocalProtocolError when the snapshot is not one, is another user's, or the session is here already.
        """
        session = SIPSession.restore(snapshot)
        if session.owner_uri != self._composer.properties.uri:
            raise LocalProtocolError(f"session {session.id} belongs to {session.owner_uri}, not to us")
        self._calls.add(session)
        return session.id

    def ask(self, wish: Wish, now: float) -> list[Effect]:
        """Do what the owner asks; what concerns a session or an offer that has just gone is ignored.

        Raises LocalProtocolError for a CreateSession with an id in use or without a user's URI, and for a Refuse
        that refuses nothing.
        """
        if isinstance(wish, CreateSession):
            return self._create(wish, now)
        call = self._calls.get(wish.id)
        if call is None:
            return []
        match wish:
            case UpdateSession(media=media):
                return self._update(call, media, now)
            case TerminateSession():
                return self._terminate(call, now)
            case Answer(media=media) if call.offer is not None:
                return self._answering.answer(call, media, now)
            case Refuse(status=status) if call.offer is not None:
                return self._answering.refuse(call, status, now)
            case SetMediaStatus(media=media_status):
                return self._calls.set_media_status(call, media_status)
        return []

    def terminate_all(self, now: float) -> list[Effect]:
        """End every session."""
        return [effect for call in self._calls for effect in self._terminate(call, now)]

    def address_changed(self, former: Address, now: float) -> list[Effect]:
        """Send an unanswered first INVITE afresh: the answer to it would go to ``former``.

        Established sessions wait for the owner, who knows their new media (SPEC D-08 step 2).
        """
        effects: list[Effect] = []
        for call in self._calls:
            if call.outgoing is not None and not call.established and not call.ending:
                media = call.outgoing.media
                if media.address == former[0]:
                    media = msgspec.structs.replace(media, address=self._composer.contact[0])
                effects += self._inviting.begin(call, media, now)
        return effects

    def invited(self, transaction: str, request: Request, now: float) -> list[Effect]:
        """Handle an INVITE of the other side."""
        return self._answering.invited(transaction, request, now)

    def cancelled(self, transaction: str, request: Request, now: float) -> list[Effect]:
        """Handle that the other side cancelled its INVITE."""
        return self._answering.cancelled(transaction, request, now)

    def acknowledged(self, request: Request) -> list[Effect]:
        """Handle the ACK for a 200 of ours."""
        return self._answering.acknowledged(request)

    def ended(self, transaction: str, request: Request) -> list[Effect]:
        """Handle a BYE (RFC 3261 15.1.2)."""
        call = self._calls.get(request.call_id)
        dialog = None if call is None else call.session.dialog
        status = 481 if dialog is None else dialog.accepts(request)
        if call is None or status is not None:
            return [Respond(transaction, self._composer.refusal(request, status or 481))]
        report = SessionRemoved(call.session.id, "ended by the other side")
        return [Respond(transaction, make_response(request, 200)), *self._calls.end(call, report)]

    def responded(self, transaction: str, response: Response, now: float) -> list[Effect]:
        """Handle a response to a request of ours; one that cannot be used is dropped, as if it had been lost."""
        kind, call = self._calls.named_in(transaction)
        if call is None:
            return []
        if kind == BYE_KIND:
            return self._farewell_answered(call, transaction, response)
        if kind != INVITE_KIND:
            return []
        try:
            effects = self._inviting.responded(call, transaction, response, now)
        except SIPParseError:
            return []
        if call.ending and call.established:
            effects += self._bye(call, "ended here")
        return effects

    def timed_out(self, transaction: str, now: float) -> list[Effect]:
        """Handle that nobody answered a request of ours."""
        kind, call = self._calls.named_in(transaction)
        if call is None:
            return []
        if kind == BYE_KIND and call.farewell is not None and call.farewell.transaction == transaction:
            return self._calls.end(call, SessionRemoved(call.session.id, call.farewell.reason))
        if kind == INVITE_KIND and call.outgoing is not None and call.outgoing.transaction == transaction:
            return self._inviting.timer_fired(call, now)
        return []

    def timer_fired(self, id: str, kind: str, now: float) -> list[Effect]:
        """Handle a timer of session ``id``."""
        call = self._calls.get(id)
        if call is None:
            return []
        if kind == INVITE_TIMER:
            return self._inviting.timer_fired(call, now)
        return self._answering.timer_fired(call, now) if kind == ANSWER_TIMER else []

    def _create(self, wish: CreateSession, now: float) -> list[Effect]:
        try:
            remote_uri = canonical_uri(wish.uri)
        except SIPParseError as error:
            raise LocalProtocolError(f"cannot invite {wish.uri!r}: {error}") from error
        if not wish.id or not wish.id.isascii() or not wish.id.isprintable() or " " in wish.id:
            raise LocalProtocolError(f"{wish.id!r} cannot be a session id: it has to be one printable ASCII word")
        session = SIPSession(
            id=wish.id,
            owner_uri=self._composer.properties.uri,
            remote_uri=remote_uri,
            created_here=True,
            local_tag=self._composer.fresh_tag(),
            local_cseq=0,
            sip_address=self._composer.contact,
            description_id=self._composer.fresh_description_id(),
        )
        return self._inviting.begin(self._calls.add(session), wish.media, now)

    def _update(self, call: Call, media: MediaDescription, now: float) -> list[Effect]:
        if call.farewell is not None or call.ending or (call.offer is not None and not call.established):
            return []
        return self._inviting.begin(call, media, now)

    def _terminate(self, call: Call, now: float) -> list[Effect]:
        if call.farewell is not None or call.ending:
            return []
        if call.established:
            return self._bye(call, "ended here")
        if call.offer is not None:
            return self._answering.refuse(call, 480, now)
        return self._inviting.cancel(call, now)

    def _bye(self, call: Call, reason: str) -> list[Effect]:
        """Send BYE; the session has ended with that (RFC 3261 15.1.1), its removal is reported with the answer."""
        call.farewell = Farewell("", reason)
        return [
            *self._calls.stop(call),
            *self._calls.advance(call, Occurrence.ENDED),
            *self._send_bye(call, call.farewell),
        ]

    def _send_bye(self, call: Call, farewell: Farewell) -> list[Effect]:
        assert call.session.dialog is not None
        dialog, request = call.session.dialog.next_request("BYE")
        self._calls.change(call, dialog=dialog)
        farewell.transaction = self._calls.transaction_name(BYE_KIND, call)
        request = self._challenges.answered_ahead(request)
        return [SendRequest(farewell.transaction, request, reachable(dialog))]

    def _farewell_answered(self, call: Call, transaction: str, response: Response) -> list[Effect]:
        farewell = call.farewell
        if farewell is None or farewell.transaction != transaction or response.status < 200:
            return []
        if response.status in CHALLENGE_STATUSES and self._challenges.worth_retrying(response, farewell.challenges):
            farewell.challenges += 1
            return self._send_bye(call, farewell)
        return self._calls.end(call, SessionRemoved(call.session.id, farewell.reason))
