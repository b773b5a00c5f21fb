"""The other side's INVITEs and re-INVITEs, from their arrival to the ACK of our 200 (RFC 3261 13.3, 14.2; SPEC X12).

The same Call-ID is the same session (SPEC C-19). So an INVITE without To tag that the caller of a session sends
again, under a newer CSeq, is an update by a caller that does not know whether we took the first one: it moved, or
its proxy lost it. It makes a new dialog and overtakes what was under way in the old one. The Call-ID of a session is
as secret as its tags, and the caller still has to be the same user under the same tag.

A newer request of the other side in a dialog also proves that it has our 200, or no longer waits for it, so the 200
is not repeated any more.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.errors import LocalProtocolError, SIPParseError
from wanderbus.machine import Output, RandomSource, SetTimer
from wanderbus.mobility.calls import (
    ANSWER_TIMER,
    Call,
    Calls,
    Effect,
    Offer,
    Unconfirmed,
    forget_transaction,
    stop_repeating,
)
from wanderbus.mobility.composer import Composer
from wanderbus.mobility.descriptions import data_channel_in, description_in
from wanderbus.mobility.inviting import Inviting
from wanderbus.mobility.messages import SessionEstablished, SessionOffered, SessionRemoved
from wanderbus.mobility.paths import reachable
from wanderbus.mobility.session import SIPSession
from wanderbus.mobility.status import Occurrence
from wanderbus.sip.dialog import Dialog, contact_uri
from wanderbus.sip.message import Request, Response, make_response
from wanderbus.sip.sdp import MediaDescription
from wanderbus.sip.transactions import Respond, Timers

SESSIONS_MAX: Final = 10_000
"""Sessions of one user agent; a further INVITE is refused with 503."""

_RETRY_AFTER_S_MAX: Final = 10
"""Most seconds we ask for when two INVITEs of the other side overlap (RFC 3261 14.2)."""


class Answering:
    """The called half of every INVITE."""

    def __init__(
        self, composer: Composer, calls: Calls, inviting: Inviting, random: RandomSource, timers: Timers
    ) -> None:
        self._composer = composer
        self._calls = calls
        self._inviting = inviting
        self._random = random
        self._timers = timers

    def invited(self, transaction: str, request: Request, now: float) -> list[Effect]:
        """Handle an INVITE: offer it to the owner, or refuse it."""
        call = self._calls.get(request.call_id)
        try:
            if request.to.tag is not None:
                return self._reinvited(transaction, request, call, now)
            if call is None:
                return self._first_invited(transaction, request)
            return self._invited_again(transaction, request, call)
        except SIPParseError as error:
            return [Respond(transaction, self._composer.refusal(request, error.status or 400))]

    def answer(self, call: Call, media: MediaDescription, now: float) -> list[Effect]:
        """Accept the pending offer: send 200 until it is confirmed, store both descriptions, report it (SPEC X12)."""
        offer, call.offer = call.offer, None
        assert offer is not None
        session = call.session
        self._calls.change(
            call,
            local_media=media,
            description_version=session.description_version + (media != session.local_media),
            sip_address=self._composer.contact,
            local_tag=offer.local_tag,
            remote_media=offer.media,
            remote_instance=_instance(offer.request),
        )
        response = self._composer.accepting(offer.request, offer.local_tag, call.session, offer.description)
        self._calls.change(call, dialog=_dialog_after(call.session, offer, response))
        return [
            *self._repeat_until_confirmed(call, offer, response, now),
            *self._calls.advance(call, Occurrence.ESTABLISHED),
            SessionEstablished(call.session.id, offer.media, offer.update),
            *self._inviting.resume(call, now, answered=True),
        ]

    def refuse(self, call: Call, status: int, now: float) -> list[Effect]:
        """Refuse the pending offer; a session that was established stays as it was (RFC 3261 14.2).

        Raises LocalProtocolError for a status that refuses nothing.
        """
        if not 300 <= status <= 699:
            raise LocalProtocolError(f"an INVITE cannot be refused with {status}: use a status from 300 to 699")
        offer, call.offer = call.offer, None
        assert offer is not None
        refusal = Respond(offer.transaction, make_response(offer.request, status, to_tag=offer.local_tag))
        if call.established:
            return [refusal, *self._inviting.resume(call, now, answered=False)]
        return [refusal, *self._calls.end(call, SessionRemoved(call.session.id, f"refused with {status}"))]

    def cancelled(self, transaction: str, request: Request, now: float) -> list[Effect]:
        """Withdraw the offer that ``transaction`` made (RFC 3261 9.2)."""
        call = self._calls.get(request.call_id)
        if call is None or call.offer is None or call.offer.transaction != transaction:
            return []
        if not call.established:
            return self._calls.end(call, SessionRemoved(call.session.id, "the caller gave up"))
        return [*self._calls.withdraw_offer(call), *self._inviting.resume(call, now, answered=False)]

    def acknowledged(self, request: Request) -> list[Effect]:
        """Stop repeating the 200 that this ACK confirms."""
        call = self._calls.get(request.call_id)
        if call is None or call.unconfirmed is None or call.session.dialog is None:
            return []
        if call.session.dialog.accepts(request) == 481 or request.cseq.number != call.unconfirmed.cseq:
            return []
        return stop_repeating(call)

    def timer_fired(self, call: Call, now: float) -> list[Effect]:
        """Repeat our 200; after 64*T1 see whether the caller of a new session is there at all.

        RFC 3261 13.3.1.4 would end the session with BYE. But where much is lost, the caller may have answered every
        200 in vain, so we ask with a re-INVITE: its answer confirms, and its failure ends the session. An update
        that was never confirmed needs nothing: its sender is on the move and will update again.
        """
        waiting, media = call.unconfirmed, call.session.local_media
        if waiting is None:
            return []
        if now >= waiting.give_up_at:
            call.unconfirmed = None
            if waiting.update or call.outgoing is not None or media is None:
                return []
            return self._inviting.begin(call, media, now)
        interval_s = min(2 * waiting.interval_s, self._timers.t2_s)
        call.unconfirmed = msgspec.structs.replace(waiting, interval_s=interval_s)
        at = min(now + interval_s, waiting.give_up_at)
        return [Respond(waiting.transaction, waiting.response), SetTimer((call.session.id, ANSWER_TIMER), at)]

    def _first_invited(self, transaction: str, request: Request) -> list[Effect]:
        """Begin a session that the other side asks for."""
        if len(self._calls) >= SESSIONS_MAX:
            return [Respond(transaction, self._composer.refusal(request, 503))]
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
        )
        call = self._calls.add(session)
        return self._offered(call, offer, Occurrence.INVITE_RECEIVED)

    def _invited_again(self, transaction: str, request: Request, call: Call) -> list[Effect]:
        """Take an INVITE for a session we have as its caller's newer word; refuse it from anybody else (482)."""
        known = _caller_of(call)
        if known is None or known[:2] != (request.from_.tag or "", request.from_.uri.address_of_record):
            return [Respond(transaction, self._composer.refusal(request, 482))]
        if request.cseq.number <= known[2] or call.farewell is not None:
            return [Respond(transaction, self._composer.refusal(request, 500, reason="Overtaken"))]
        offer = self._read_offer(transaction, request, update=call.established)
        effects = stop_repeating(call)
        if call.outgoing is not None:
            effects += forget_transaction(call.outgoing)
        if call.offer is not None:
            effects += self._calls.withdraw_offer(call)
        received = Occurrence.REINVITE_RECEIVED if call.established else Occurrence.INVITE_RECEIVED
        return effects + self._offered(call, offer, received)

    def _reinvited(self, transaction: str, request: Request, call: Call | None, now: float) -> list[Effect]:
        """Handle an INVITE within a dialog (RFC 3261 14.2).

        Two that cross are both refused with 491. But one from a new address overtakes ours, which went to the old
        one: ours is forgotten, and our answer to theirs says the same (SPEC X13). If both sides do so, both have
        what the other offered, and only a 200 is repeated in vain.
        """
        if call is None or call.session.dialog is None or call.farewell is not None:
            early = call is not None and call.inviting and request.to.tag == call.session.local_tag
            return [Respond(transaction, self._composer.refusal(request, 491 if early else 481))]
        status = call.session.dialog.accepts(request)
        if status is not None:
            return [Respond(transaction, self._composer.refusal(request, status))]
        if call.offer is not None:
            retry_after = ("Retry-After", str(int(self._random.uniform(0, _RETRY_AFTER_S_MAX))))
            return [Respond(transaction, self._composer.refusal(request, 500, retry_after))]
        offer = self._read_offer(transaction, request, update=True)
        counted = msgspec.structs.replace(call.session.dialog, remote_cseq=request.cseq.number)
        self._calls.change(call, dialog=counted)
        effects = stop_repeating(call)
        if call.outgoing is not None and call.inviting:
            if contact_uri(request) == call.session.dialog.remote_target:
                return [*effects, Respond(transaction, self._composer.refusal(request, 491))]
            effects += forget_transaction(call.outgoing)
        return effects + self._offered(call, offer, Occurrence.REINVITE_RECEIVED)

    def _read_offer(self, transaction: str, request: Request, *, update: bool) -> Offer:
        """Return what ``request`` offers; SIPParseError if we cannot serve it or could not reach its sender."""
        description = description_in(request)
        media = data_channel_in(description)
        tag = request.to.tag or self._composer.fresh_tag()
        reachable(Dialog.from_uas(request, make_response(request, 200, to_tag=tag)))
        return Offer(transaction, request, description, media, tag, update)

    def _offered(self, call: Call, offer: Offer, occurrence: Occurrence) -> list[Effect]:
        call.offer = offer
        session = call.session
        instance = _instance(offer.request)
        report: Output = SessionOffered(session.id, session.remote_uri, instance, offer.media, offer.update)
        return [*self._calls.advance(call, occurrence), report]

    def _repeat_until_confirmed(self, call: Call, offer: Offer, response: Response, now: float) -> list[Effect]:
        t1_s = self._timers.t1_s
        cseq = offer.request.cseq.number
        give_up_at = now + self._timers.timeout_s
        call.unconfirmed = Unconfirmed(offer.transaction, response, cseq, t1_s, give_up_at, offer.update)
        return [Respond(offer.transaction, response), SetTimer((call.session.id, ANSWER_TIMER), now + t1_s)]


def _caller_of(call: Call) -> tuple[str, str, int] | None:
    """Return tag, URI and last CSeq number of the other side where it is the caller; None where we are."""
    if call.session.created_here:
        return None
    if call.offer is not None:
        tag, cseq = call.offer.request.from_.tag or "", call.offer.request.cseq.number
    else:
        assert call.session.dialog is not None
        tag, cseq = call.session.dialog.remote_tag, call.session.dialog.remote_cseq
    return tag, call.session.remote_uri, cseq


def _dialog_after(session: SIPSession, offer: Offer, response: Response) -> Dialog:
    """Return the dialog that our ``response`` makes, or the one it refreshes."""
    if offer.request.to.tag is None or session.dialog is None:
        return Dialog.from_uas(offer.request, response)
    return session.dialog.received(offer.request)


def _instance(request: Request) -> str | None:
    contact = request.contact
    return None if contact is None else contact.param("+sip.instance")
