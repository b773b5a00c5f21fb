"""Our 200 to an INVITE until its ACK, which may contain the answer to our offer (RFC 3261 13.3.1.4)."""

from __future__ import annotations

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.machine import SetTimer
from wanderbus.mobility.messages import Effect, SessionEstablished
from wanderbus.mobility.session.bye import ByeExchange
from wanderbus.mobility.session.call import Call, Unconfirmed
from wanderbus.mobility.session.calls import ANSWER_TIMER, Calls, stop_repeating
from wanderbus.mobility.session.offer_answer import agreed_media, description_in
from wanderbus.mobility.session.session import SessionOccurrence
from wanderbus.mobility.session.uac_invite import UacInvites
from wanderbus.sip.message.message import Request, Response
from wanderbus.sip.transaction.transaction_layer import BaseTimers, Respond


class AckWait:
    """Repeats our 200 until it is acknowledged."""

    def __init__(self, calls: Calls, uac: UacInvites, bye: ByeExchange, timers: BaseTimers) -> None:
        self._calls = calls
        self._uac = uac
        self._bye = bye
        self._timers = timers

    def begin(
        self, call: Call, transaction: str, response: Response, now: float, *, update: bool, offers: bool
    ) -> list[Effect]:
        """Send ``response``, which is the offer if ``offers``."""
        t1_s, give_up_at = self._timers.t1_s, now + self._timers.timeout_s
        cseq = response.cseq.number
        call.unconfirmed = Unconfirmed(transaction, response, cseq, t1_s, give_up_at, update, offers)
        return [Respond(transaction, response), SetTimer((call.session.id, ANSWER_TIMER), now + t1_s)]

    def acknowledged(self, request: Request, now: float) -> list[Effect]:
        """Stop repeating the 200 that this ACK acknowledges, and process the answer in it if one is due."""
        call = self._calls.get(request.call_id)
        if call is None or call.unconfirmed is None or call.session.dialog is None:
            return []
        if call.session.dialog.accepts(request) == 481 or request.cseq.number != call.unconfirmed.cseq:
            return []
        confirmed = call.unconfirmed
        effects = stop_repeating(call) + self._uac.confirmed(call)
        return effects + self._answered(call, request, confirmed, now) if confirmed.offers else effects

    def timer_fired(self, call: Call, now: float) -> list[Effect]:
        """Repeat our 200; after 64*T1 check whether the caller of a new session still exists.

        RFC 3261 13.3.1.4 would end the session with BYE. But under heavy loss every ACK may have been lost, so we send
        a re-INVITE: a response acknowledges, and its failure ends the session. An unacknowledged update needs nothing:
        its sender is moving and will update again. A new session whose offer was never answered has no media and ends.
        """
        waiting, media = call.unconfirmed, call.session.local_media
        if waiting is None:
            return []
        if now >= waiting.give_up_at:
            call.unconfirmed = None
            if not call.established:
                return self._bye.begin(call, "the caller never acknowledged the 200")
            if waiting.offers:
                return self._uac.resume(call, now, answered=False)
            if waiting.update or call.outgoing is not None or media is None:
                return []
            return self._uac.begin(call, media, now)
        interval_s = min(2 * waiting.interval_s, self._timers.t2_s)
        call.unconfirmed = msgspec.structs.replace(waiting, interval_s=interval_s)
        at = min(now + interval_s, waiting.give_up_at)
        return [Respond(waiting.transaction, waiting.response), SetTimer((call.session.id, ANSWER_TIMER), at)]

    def _answered(self, call: Call, request: Request, confirmed: Unconfirmed, now: float) -> list[Effect]:
        """Process the answer in the ACK; without one a new session ends, an older one stays unchanged."""
        assert call.session.local_media is not None
        try:
            description = description_in(request)
            media = agreed_media(call.session.slots, description.media, call.session.local_media)
        except SIPParseError as error:
            if not call.established:
                return self._bye.begin(call, f"no answer in the ACK: {error}")
            return self._uac.resume(call, now, answered=False)
        self._calls.change(call, remote_media=media, remote_origin=description.origin)
        return [
            *self._calls.advance(call, SessionOccurrence.ESTABLISHED),
            SessionEstablished(call.session.id, media, confirmed.update),
            *self._uac.resume(call, now, answered=True),
        ]
