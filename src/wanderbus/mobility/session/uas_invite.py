"""The peer's offers, from an INVITE or UPDATE to our answer (RFC 3261 13.3, 14.2, RFC 3311 5.2).

The same Call-ID is the same session (SPEC C-19). So an INVITE without To tag that the caller of a session sends again,
under a newer CSeq, is an update by a caller that does not know whether we received the first one: it moved, or its
proxy lost it. It creates a new dialog and supersedes pending exchanges in the old one. The Call-ID of a session is as
secret as its tags, and the caller must still be the same user under the same tag.

A newer request of the peer in a dialog also proves that it has our 200, or no longer waits for it, so the 200 is not
repeated any more. An INVITE without offer gets our offer in the 200 (:mod:`.ack_wait` processes the answer).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from wanderbus.errors import LocalProtocolError, SIPParseError
from wanderbus.machine import RandomSource, SetTimer
from wanderbus.mobility.composer import Composer, takes_update
from wanderbus.mobility.messages import Effect, OfferWanted, SessionEstablished, SessionOffered, SessionRemoved
from wanderbus.mobility.session import session_timers
from wanderbus.mobility.session.ack_wait import AckWait
from wanderbus.mobility.session.call import Call, PeerOffer
from wanderbus.mobility.session.calls import REPLY_TIMER, Calls, overtake_outgoing, stop_repeating
from wanderbus.mobility.session.offer_answer import Lines, agreed_media, answer_to, description_in, laid_out
from wanderbus.mobility.session.session import SessionOccurrence, SIPSession
from wanderbus.mobility.session.uac_invite import UacInvites
from wanderbus.refusals import Limited
from wanderbus.sip.message.dialog import Dialog, contact_uri, reachable
from wanderbus.sip.message.headers import VISIT
from wanderbus.sip.message.message import Request, Response, make_response
from wanderbus.sip.message.sdp import MediaDescription
from wanderbus.sip.transaction.transaction_layer import Respond

SESSIONS_MAX: Final = 10_000
"""Largest number of sessions of one user agent; a further INVITE is refused with 503."""

RING_AGAIN_S: Final = 60.0
"""Interval of repeated 180 to a caller, so that no proxy gives up (RFC 3261 13.3.1.1, 16.6: timer C)."""

UPDATE_ANSWER_S: Final = 2.0
"""Timeout of the owner's reply to an UPDATE, which cannot wait for a user (RFC 3311 5.2: 504)."""

_RETRY_AFTER_S_MAX: Final = 10
"""Longest Retry-After if two offers of the peer overlap, in seconds (RFC 3261 14.2, RFC 3311 5.2)."""


class UasInvites:
    """The callee's side of every INVITE and UPDATE."""

    def __init__(
        self, composer: Composer, calls: Calls, uac: UacInvites, ack_wait: AckWait, random: RandomSource
    ) -> None:
        self._composer = composer
        self._calls = calls
        self._uac = uac
        self._ack_wait = ack_wait
        self._random = random

    def requested(self, transaction: str, request: Request, now: float) -> list[Effect]:
        """Handle an INVITE or UPDATE: pass the offer to the owner, serve it at once, or refuse it."""
        call = self._calls.get(request.call_id)
        least_s = self._composer.properties.min_se_s
        try:
            if session_timers.too_small(request, least_s):
                return [Respond(transaction, self._composer.interval_too_small(request))]
            if request.to.tag is not None or request.method == "UPDATE":
                return self._in_dialog(transaction, request, call, now)
            if call is None:
                return self._first_invited(transaction, request)
            return self._invited_again(transaction, request, call, now)
        except SIPParseError as error:
            return [Respond(transaction, self._composer.refusal(request, error.status or 400))]

    def ring(self, call: Call, now: float) -> list[Effect]:
        """Send 180 to the caller, and again every minute."""
        offer = call.offer
        if offer is None or call.established or offer.request.method != "INVITE":
            return []
        call.ringing = True
        ringing = Respond(offer.transaction, self._composer.ringing(offer.request, offer.local_tag))
        return [ringing, SetTimer((call.session.id, REPLY_TIMER), now + RING_AGAIN_S)]

    def timer_fired(self, call: Call, now: float) -> list[Effect]:
        """Repeat the 180, or refuse an UPDATE without a reply of the owner."""
        if call.offer is None:
            return []
        if call.offer.request.method == "UPDATE":
            return self.refuse(call, 504, now)
        return self.ring(call, now) if call.ringing else []

    def answer(self, call: Call, media: MediaDescription, now: float) -> list[Effect]:
        """Accept the pending offer, or make the requested one."""
        offer = call.offer
        assert offer is not None
        if offer.description is None:
            return self._offer_in_answer(call, offer, media, now)
        try:
            slots = answer_to(offer.description, media)
            remote = agreed_media(slots, offer.description.media, media)
        except SIPParseError:
            return self.refuse(call, 488, now)
        return self._accept(call, offer, media, slots, remote, now)

    def refuse(
        self, call: Call, status: int, now: float, reason: str | None = None, contacts: Sequence[str] = ()
    ) -> list[Effect]:
        """Refuse the pending offer, or redirect it to ``contacts``; an established session is kept (RFC 3261 14.2).

        Raises LocalProtocolError for a status that does not refuse.
        """
        if not 300 <= status <= 699:
            raise LocalProtocolError(f"an INVITE cannot be refused with {status}: use a status from 300 to 699")
        offer, call.offer = call.offer, None
        assert offer is not None
        headers = [("Contact", f"<{contact}>") for contact in contacts]
        response = make_response(offer.request, status, reason, to_tag=offer.local_tag, headers=headers)
        refusal = Respond(offer.transaction, response)
        if call.established:
            return [refusal, *self._uac.resume(call, now, answered=False)]
        return [refusal, *self._calls.end(call, SessionRemoved(call.session.id, f"refused with {status}"))]

    def cancelled(self, transaction: str, request: Request, now: float) -> list[Effect]:
        """Withdraw the offer that ``transaction`` made (RFC 3261 9.2)."""
        call = self._calls.get(request.call_id)
        if call is None or call.offer is None or call.offer.transaction != transaction:
            return []
        if not call.established:
            return self._calls.end(call, SessionRemoved(call.session.id, "the caller gave up"))
        return [*self._calls.withdraw_offer(call), *self._uac.resume(call, now, answered=False)]

    def _accept(
        self, call: Call, offer: PeerOffer, media: MediaDescription, slots: Lines, remote: MediaDescription, now: float
    ) -> list[Effect]:
        """Respond with 200, store both descriptions and report it (SPEC X12)."""
        response, timed = self._store_answer(call, offer, media, slots, now)
        assert offer.description is not None
        self._calls.change(call, remote_media=remote, remote_origin=offer.description.origin)
        begun: list[Effect] = [Respond(offer.transaction, response)]
        if offer.request.method == "INVITE":
            begun = self._ack_wait.begin(call, offer.transaction, response, now, update=offer.update, offers=False)
        return [
            *begun,
            *timed,
            *self._calls.advance(call, SessionOccurrence.ESTABLISHED),
            SessionEstablished(call.session.id, remote, offer.update),
            *self._uac.resume(call, now, answered=True),
        ]

    def _offer_in_answer(self, call: Call, offer: PeerOffer, media: MediaDescription, now: float) -> list[Effect]:
        """Make our offer in the 200; the answer in the ACK establishes the session."""
        response, timed = self._store_answer(call, offer, media, laid_out(call.session.slots, media), now)
        begun = self._ack_wait.begin(call, offer.transaction, response, now, update=offer.update, offers=True)
        return [*begun, *timed]

    def _store_answer(
        self, call: Call, offer: PeerOffer, media: MediaDescription, slots: Lines, now: float
    ) -> tuple[Response, list[Effect]]:
        """Store the description in our 200 and its dialog; return the 200, and its timers."""
        call.offer = None
        session, request = call.session, offer.request
        ours = self._composer.properties
        timer = session_timers.granted(request, ours.session_expires_s, ours.min_se_s)
        self._calls.change(
            call,
            local_media=media,
            slots=slots,
            description_version=session.description_version + (slots != session.slots),
            sip_address=self._composer.contact,
            local_tag=offer.local_tag,
            remote_instance=_instance(request),
            peer_updatable=takes_update(request, session.peer_updatable),
            min_se_s=max(session.min_se_s, session_timers.least_in(request)),
        )
        response = self._composer.accepting(request, offer.local_tag, call.session, timer)
        self._calls.change(call, dialog=_dialog_after(call.session, offer, response))
        return response, self._calls.keep_time(call, timer, now)

    def _first_invited(self, transaction: str, request: Request) -> list[Effect]:
        """Begin a session that the peer requests."""
        if len(self._calls) >= SESSIONS_MAX:
            limited = Limited("user_agent.SESSIONS_MAX", request.from_.uri.address_of_record, "call refused with 503")
            return [limited, Respond(transaction, self._composer.refusal(request, 503))]
        offer = self._read_offer(transaction, request, update=False)
        session = SIPSession(
            id=request.call_id,
            owner_uri=self._composer.properties.uri,
            remote_uri=request.from_.uri.address_of_record,
            created_here=False,
            local_tag=offer.local_tag,
            local_cseq=0,
            sip_address=self._composer.contact,
            description_id=self._composer.fresh_description_id(),
            sip_transport=self._composer.properties.transport,
        )
        call = self._calls.add(session)
        return self._offered(call, offer, SessionOccurrence.INVITE_RECEIVED)

    def _invited_again(self, transaction: str, request: Request, call: Call, now: float) -> list[Effect]:
        """Accept an INVITE for an existing session as an update by its caller; refuse it from anybody else (482)."""
        known = _caller_of(call)
        if known is None or known[:2] != (request.from_.tag or "", request.from_.uri.address_of_record):
            return [Respond(transaction, self._composer.refusal(request, 482))]
        if request.cseq.number <= known[2] or call.pending_bye is not None:
            return [Respond(transaction, self._composer.refusal(request, 500, reason="Overtaken"))]
        offer = self._read_offer(transaction, request, update=call.established)
        effects = stop_repeating(call)
        effects += overtake_outgoing(call)
        if call.offer is not None:
            effects += self._calls.withdraw_offer(call)
        received = SessionOccurrence.REINVITE_RECEIVED if call.established else SessionOccurrence.INVITE_RECEIVED
        effects += self._offered(call, offer, received)
        return effects + self.ring(call, now) if call.ringing else effects

    def _in_dialog(self, transaction: str, request: Request, call: Call | None, now: float) -> list[Effect]:
        """Handle a re-INVITE or UPDATE (RFC 3261 14.2, RFC 3311 5.2).

        Two offers that cross are both refused with 491. But an offer from a new address supersedes ours, which went to
        the old one: ours is abandoned, and our answer to theirs contains the same (SPEC X13). If both sides do so, both
        have the other's offer, and their 200s are repeated in vain: so ours is sent again unless theirs is
        acknowledged.
        """
        if call is None or call.session.dialog is None or call.pending_bye is not None:
            early = call is not None and call.inviting and request.to.tag == call.session.local_tag
            return [Respond(transaction, self._composer.refusal(request, 491 if early else 481))]
        status = call.session.dialog.accepts(request)
        if status is not None:
            return [Respond(transaction, self._composer.refusal(request, status))]
        if request.method == "UPDATE" and not request.body:
            return self._refreshed(transaction, request, call, now)
        offer = self._read_offer(transaction, request, update=call.established, asked=not call.established)
        if call.session.is_overtaken(offer.description):
            return [Respond(transaction, self._composer.refusal(request, 500, reason="Overtaken"))]
        refusal = self._overlapping(request, call)
        counted = msgspec.structs.replace(call.session.dialog, remote_cseq=request.cseq.number)
        self._calls.change(call, dialog=counted)
        if refusal is not None:
            confirmed = [] if call.exchanging else stop_repeating(call)
            return [*confirmed, Respond(transaction, refusal)]
        effects = [] if call.offer is None else self._calls.withdraw_offer(call)
        effects += stop_repeating(call)
        effects += overtake_outgoing(call)
        if offer.description is None and call.session.local_media is not None:
            return effects + self._offer_in_answer(call, offer, call.session.local_media, now)
        effects += self._offered(
            call, offer, SessionOccurrence.REINVITE_RECEIVED if call.established else SessionOccurrence.INVITE_RECEIVED
        )
        if request.method == "UPDATE":
            effects.append(SetTimer((call.session.id, REPLY_TIMER), now + UPDATE_ANSWER_S))
        return effects

    def _overlapping(self, request: Request, call: Call) -> Response | None:
        """Refuse an offer that arrives while another is open, unless its sender has moved since."""
        assert call.session.dialog is not None
        if call.offer is not None:
            if contact_uri(request) != contact_uri(call.offer.request):
                return None
            retry_after = ("Retry-After", str(int(self._random.uniform(0, _RETRY_AFTER_S_MAX))))
            return self._composer.refusal(request, 500, retry_after)
        ours_is_open = call.exchanging or (call.outgoing is not None and call.inviting)
        if ours_is_open and contact_uri(request) == call.session.dialog.remote_target:
            return self._composer.refusal(request, 491)
        return None

    def _refreshed(self, transaction: str, request: Request, call: Call, now: float) -> list[Effect]:
        """Serve an UPDATE without offer: a refresh, perhaps from a new address (RFC 3311 5.2, RFC 4028 9)."""
        assert call.session.dialog is not None
        dialog = call.session.dialog.received(request)
        reachable(dialog)
        ours = self._composer.properties
        timer = session_timers.granted(request, ours.session_expires_s, ours.min_se_s)
        self._calls.change(call, dialog=dialog)
        return [
            Respond(transaction, self._composer.refreshed(request, timer)),
            *self._calls.keep_time(call, timer, now),
        ]

    def _read_offer(self, transaction: str, request: Request, *, update: bool, asked: bool = True) -> PeerOffer:
        """Return the offer of ``request``; SIPParseError if we cannot serve it or cannot reach its sender.

        A request without offer asks for ours; with ``asked`` the owner must be able to make one.
        """
        description = media = None
        if request.body or (asked and not self._composer.properties.takes_offerless):
            description = description_in(request)
            media = self._composer.media_in(description)
        tag = request.to.tag or self._composer.fresh_tag()
        reachable(Dialog.from_uas(request, make_response(request, 200, to_tag=tag)))
        return PeerOffer(transaction, request, description, media, tag, update)

    def _offered(self, call: Call, offer: PeerOffer, occurrence: SessionOccurrence) -> list[Effect]:
        call.offer = offer
        session = call.session
        instance = _instance(offer.request)
        report: Effect = OfferWanted(session.id, session.remote_uri, instance)
        if offer.media is not None:
            visit = " ".join(offer.request.headers_all(VISIT))
            report = SessionOffered(session.id, session.remote_uri, instance, offer.media, offer.update, visit)
        return [*self._calls.advance(call, occurrence), report]


def _caller_of(call: Call) -> tuple[str, str, int] | None:
    """Return tag, URI and last CSeq number of the peer if it is the caller; None if we are."""
    if call.session.created_here:
        return None
    if call.offer is not None:
        tag, cseq = call.offer.request.from_.tag or "", call.offer.request.cseq.number
    else:
        assert call.session.dialog is not None
        tag, cseq = call.session.dialog.remote_tag, call.session.dialog.remote_cseq
    return tag, call.session.remote_uri, cseq


def _dialog_after(session: SIPSession, offer: PeerOffer, response: Response) -> Dialog:
    """Return the dialog that our ``response`` creates or refreshes."""
    if offer.request.to.tag is None or session.dialog is None:
        return Dialog.from_uas(offer.request, response)
    return session.dialog.received(offer.request)


def _instance(request: Request) -> str | None:
    contact = request.contact
    return None if contact is None else contact.param("+sip.instance")
