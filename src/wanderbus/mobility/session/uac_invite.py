"""Our INVITEs and re-INVITEs, from the owner's request to the ACK (RFC 3261 13.2, 14.1; SPEC D-06 to D-12, X12, X13).

A first INVITE waits as in RFC 3261: 64*T1 for any response (timer B), and after a provisional one for as long as a
person may need; then it is cancelled. It is sent again with a new CSeq if its last response requests that, and after a
move: the response would go to our former address, so it is cancelled and sent from the new address at once. (For a
broker the owner may be in a hurry from the beginning; such an INVITE is sent again after a few seconds.)

A re-INVITE goes directly to the peer; if that fails, through the proxy to the address of record (for a peer that moved
when we did, SPEC X13), and so on in turn, in *attempts*. A newer update of the owner follows when the present one is
answered (RFC 3261 14.1). But if data do not flow, or if we have just moved, an update is *hurried*: its attempts time
out early, and a newer update replaces it. An abandoned INVITE is cancelled, and its late 2xx acknowledged
(:mod:`.forking`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.machine import CancelTimer, RandomSource, SetTimer
from wanderbus.mobility.composer import Composer, takes_update
from wanderbus.mobility.messages import Effect, SessionEstablished, SessionFailed, SessionRemoved, UpdateFailed
from wanderbus.mobility.session import session_timers
from wanderbus.mobility.session.bye import ByeExchange
from wanderbus.mobility.session.call import Call, OutgoingInvite
from wanderbus.mobility.session.calls import (
    INVITE_TIMER,
    Calls,
    abandon_outgoing,
    abandon_transaction,
    follow_redirection,
    look_up_again,
    stop_repeating,
)
from wanderbus.mobility.session.forking import Forking
from wanderbus.mobility.session.invite_schedule import InviteSchedule
from wanderbus.mobility.session.offer_answer import agreed_media, description_in, laid_out
from wanderbus.mobility.session.session import RemoteMediaStatus, SessionOccurrence
from wanderbus.sip.authentication.digest_client import CHALLENGE_STATUSES, Challenges
from wanderbus.sip.message.dialog import Dialog, contact_uri, reachable
from wanderbus.sip.message.message import Request, Response
from wanderbus.sip.message.sdp import MediaDescription
from wanderbus.sip.message.targets import Target, direct_hop, service_elsewhere
from wanderbus.sip.transaction.transaction_layer import BaseTimers, CancelInvite, SendRequest

INVITE_KIND: Final = "invite"
"""Prefix of the names of our transactions."""

INTERVALS_MAX: Final = 4
"""Repetitions of one request because its session interval was too small; each hop may require a longer one."""

_BETWEEN_DOMAINS: Final = ("TLS", "TCP", "UDP")
"""Transports to a server of another domain, the best one first: the proxy of our home uses them."""

_NO_UPDATE: Final = (405, 501, 504)
_UPDATE_LATE: Final = 504
"""Statuses of an UPDATE after which a re-INVITE may succeed; 504 refuses this one alone (RFC 3311 5.2)."""

_GONE: Final = (481, 408)
"""Statuses that end a dialog (RFC 3261 12.2.1.2)."""

_UNANSWERED: Final = (None, 408)
"""Ends of a re-INVITE after which BYE ends the dialog: the peer may still exist (RFC 3261 12.2.1.2)."""

NO_RESPONSE: Final = "no response"


class UacInvites:
    """The caller's side of every INVITE."""

    def __init__(
        self,
        composer: Composer,
        calls: Calls,
        challenges: Challenges,
        bye: ByeExchange,
        forking: Forking,
        random: RandomSource,
        timers: BaseTimers,
    ) -> None:
        self._composer = composer
        self._calls = calls
        self._challenges = challenges
        self._bye = bye
        self._forking = forking
        self._schedule = InviteSchedule(random, timers)
        self._transports = tuple(dict.fromkeys((composer.properties.transport, "UDP")))

    def create(self, call: Call, media: MediaDescription, now: float, *, hurried: bool) -> list[Effect]:
        """Send the first INVITE, which offers ``media``."""
        return self._overtake(call, OutgoingInvite(media, hurried=hurried), now)

    def begin(self, call: Call, media: MediaDescription, now: float, method: str = "INVITE") -> list[Effect]:
        """Offer ``media``, after an INVITE of ours that is under way, or in place of it if hurried.

        While an exchange begun by the peer is open, ours waits (RFC 3261 14.1, RFC 3264 4).
        """
        outgoing = call.outgoing
        if outgoing is not None and outgoing.sent_at == now and self._is_announced(call, media):
            return []
        by_update = method == "UPDATE" and call.established and call.session.peer_updatable
        update = OutgoingInvite(media, method="UPDATE" if by_update else "INVITE", hurried=self._in_hurry(call))
        if outgoing is not None and outgoing.transaction is not None and not update.hurried:
            outgoing.following = update
            return []
        return self._overtake(call, update, now)

    def moved(self, call: Call, media: MediaDescription, now: float) -> list[Effect]:
        """Call again from our new address with ``media``: a response to our first INVITE would go to the old one."""
        return self._overtake(call, OutgoingInvite(media, hurried=self._in_hurry(call)), now)

    def _overtake(self, call: Call, update: OutgoingInvite, now: float) -> list[Effect]:
        outgoing = call.outgoing
        effects = abandon_outgoing(call)
        call.outgoing = update
        if outgoing is not None:
            update.redirected_to, update.redirections = outgoing.redirected_to, outgoing.redirections
            update.crossed = outgoing.crossed
        return effects if call.exchanging else effects + self._attempt(call, now)

    def _in_hurry(self, call: Call) -> bool:
        """Return whether data do not flow in an established session, or the peer does not know our address."""
        if call.outgoing is not None and call.outgoing.hurried:
            return True
        silent = call.session.media_status is RemoteMediaStatus.DISCONNECTED
        return call.established and (silent or call.session.sip_address != self._composer.contact)

    def resume(self, call: Call, now: float, *, answered: bool) -> list[Effect]:
        """Continue after the peer's INVITE ended; the content of our answer to it need not be sent again."""
        outgoing = call.outgoing
        if outgoing is None or outgoing.transaction is not None or call.exchanging:
            return []
        if answered and self._is_announced(call, outgoing.media):
            return self._send_unless_acknowledged(call, outgoing, now) if outgoing.crossed else abandon_outgoing(call)
        return self._attempt(call, now)

    def confirmed(self, call: Call) -> list[Effect]:
        """Abandon our INVITE if our 200 contained the same: its ACK arrived."""
        return abandon_outgoing(call) if call.outgoing is not None and call.outgoing.sent_in_answer else []

    def timer_fired(self, call: Call, now: float) -> list[Effect]:
        """Begin the next attempt: the last one timed out, or the pause after it has ended."""
        outgoing = call.outgoing
        if outgoing is None or call.exchanging:
            return []
        if outgoing.transaction is None:
            return self._attempt(call, now)
        if not call.established and not outgoing.hurried:
            call.unanswered = not call.ending
            return self.cancel(call)
        return self._try_other_path(call, outgoing, now)

    def timed_out(self, call: Call, now: float) -> list[Effect]:
        """Handle the end of our request without a final response: by timer B, or 64*T1 after its CANCEL."""
        outgoing = call.outgoing
        if outgoing is None:
            return []
        outgoing.transaction = None
        if not call.established:
            again = look_up_again(call, outgoing)
            return self._attempt(call, now) if again else self._fail(call, None, NO_RESPONSE)
        return [] if call.exchanging else self._try_other_path(call, outgoing, now)

    def _try_other_path(self, call: Call, outgoing: OutgoingInvite, now: float) -> list[Effect]:
        outgoing.silences += 1
        outgoing.through_proxy = not outgoing.through_proxy
        look_up_again(call, outgoing)
        return self._attempt(call, now)

    def unsendable(self, call: Call, now: float) -> list[Effect]:
        """Retry after a pause: there is no connection to send our request over."""
        outgoing = call.outgoing
        if outgoing is None:
            return []
        outgoing.transaction = None
        return self._fail(call, None, "ended here") if call.ending else self._pause_then_other_path(call, outgoing, now)

    def cancel(self, call: Call, *, repeats: bool = True) -> list[Effect]:
        """Cancel our first INVITE; wait for its final response, for 64*T1 (RFC 3261 9.1)."""
        outgoing = call.outgoing
        assert outgoing is not None
        call.ending = True
        if outgoing.transaction is None:
            return self._fail(call, None, "ended here")
        return [
            CancelInvite(outgoing.transaction, repeats=repeats),
            CancelTimer((call.session.id, INVITE_TIMER)),
        ]

    def responded(self, call: Call | None, transaction: str, response: Response, now: float) -> list[Effect]:
        """Handle a response to an INVITE or UPDATE of ours."""
        outgoing = None if call is None else call.outgoing
        if call is None or outgoing is None or outgoing.transaction != transaction:
            if 200 <= response.status < 300:
                return self._forking.answered_late(transaction, response, call, now)
            self._over(transaction, response)
            return []
        self._over(transaction, response)
        if response.status < 200:
            return self._progressed(call, response, now)
        if response.status < 300:
            return self._accepted(call, response, now)
        outgoing.transaction = None
        return self._refused(call, outgoing, response, now)

    def unusable(self, call: Call, transaction: str, response: Response, problem: str, now: float) -> list[Effect]:
        """Handle an unreadable final response: a 2xx is awaited again; a refusal remains one.

        An answered transaction reports no timeout any more.
        """
        outgoing = call.outgoing
        if outgoing is None or outgoing.transaction not in (transaction, None):
            return []
        if response.status < 300 and response.cseq.method == "INVITE":
            timer = SetTimer((call.session.id, INVITE_TIMER), now + self._schedule.repeats_s)
            return [] if outgoing.hurried else [timer]
        outgoing.transaction = None
        if call.established:
            return self._pause_then_other_path(call, outgoing, now)
        return self._fail(call, response.status, f"unusable response: {problem}")

    def _over(self, transaction: str, response: Response) -> None:
        if response.status >= 300:
            self._forking.over(transaction)

    def _is_announced(self, call: Call, media: MediaDescription) -> bool:
        """Return whether our last description has our present address and ``media``."""
        return call.session.local_media == media and call.session.sip_address == self._composer.contact

    def _send_unless_acknowledged(self, call: Call, outgoing: OutgoingInvite, now: float) -> list[Effect]:
        """Send our INVITE once more unless our 200 with the same content is acknowledged soon."""
        outgoing.attempt, outgoing.through_proxy, outgoing.sent_in_answer = 1, False, True
        return self._pause(call, now + self._schedule.silence_s(call, outgoing))

    def _attempt(self, call: Call, now: float) -> list[Effect]:
        outgoing = call.outgoing
        assert outgoing is not None
        effects = abandon_transaction(outgoing)
        if call.ending or self._schedule.is_exhausted(call, outgoing):
            return effects + self._fail(call, None, NO_RESPONSE)
        outgoing.attempt += 1
        return effects + self._send(call, now)

    def _send(self, call: Call, now: float) -> list[Effect]:
        """Send the INVITE of this attempt with a new CSeq."""
        outgoing = call.outgoing
        assert outgoing is not None
        outgoing.follow()
        outgoing.sent_in_answer = False
        self._describe(call, outgoing)
        request, destination = self._next_request(call, outgoing)
        request = self._challenges.answered_ahead(request)
        name = self._calls.transaction_name(INVITE_KIND, call.session.id)
        outgoing.transaction, outgoing.request, outgoing.sent_at = name, request, now
        if request.method == "INVITE":
            self._forking.sent(name, request, call.session.dialog)
        sent = SessionOccurrence.REINVITE_SENT if call.established else SessionOccurrence.INVITE_SENT
        timer = (call.session.id, INVITE_TIMER)
        return [
            SendRequest(name, request, destination),
            SetTimer(timer, now + self._schedule.silence_s(call, outgoing)) if outgoing.hurried else CancelTimer(timer),
            *self._calls.advance(call, sent),
        ]

    def _describe(self, call: Call, outgoing: OutgoingInvite) -> None:
        """Store the description to send; the SDP version rises if it differs from the last (RFC 3264 8)."""
        session = call.session
        slots = laid_out(session.slots, outgoing.media)
        self._calls.change(
            call,
            local_media=outgoing.media,
            slots=slots,
            description_version=session.description_version + (slots != session.slots),
            sip_address=self._composer.contact,
        )

    def _next_request(self, call: Call, outgoing: OutgoingInvite) -> tuple[Request, Target]:
        """Return the INVITE and its next hop, directly to the peer or through the proxy in turn (SPEC D-09, X13)."""
        server = self._composer.properties.server_target
        session = call.session
        if session.dialog is None:
            self._calls.change(call, local_cseq=session.local_cseq + 1)
            request = self._composer.invite(call.session)
            if outgoing.redirected_to is None:
                return request, server
            target = outgoing.redirected_to
            # A server of another domain knows its users through the proxy of their home alone.
            hop = server if self._composer.is_elsewhere(session.remote_uri) else direct_hop(target, server)
            return msgspec.structs.replace(request, uri=str(target)), hop
        dialog, request = session.dialog.next_request(outgoing.method)
        self._calls.change(call, dialog=dialog)
        request = self._composer.offering(request, call.session)
        if outgoing.through_proxy and not dialog.route_set:
            return msgspec.structs.replace(request, uri=session.remote_uri), server
        return request, reachable(dialog)

    def _progressed(self, call: Call, response: Response, now: float) -> list[Effect]:
        """Extend the timeout for a live next hop, and for a ringing one as long as a person needs."""
        outgoing = call.outgoing
        assert outgoing is not None
        if call.ending:
            return []
        until = now + self._schedule.patience_s(call, outgoing, response.status)
        effects: list[Effect] = [SetTimer((call.session.id, INVITE_TIMER), until)]
        if response.status == 180 and not call.established:
            effects += self._calls.advance(call, SessionOccurrence.RINGING_RECEIVED)
        return effects

    def _accepted(self, call: Call, response: Response, now: float) -> list[Effect]:
        """Acknowledge a 200, store the peer's description (SPEC D-08 step 3) and report it (X12)."""
        outgoing = call.outgoing
        assert outgoing is not None
        assert outgoing.request is not None
        assert outgoing.transaction is not None
        update = call.established
        dialog = self._dialog_after(call, outgoing.request, response)
        reachable(dialog)
        effects: list[Effect] = []
        if outgoing.request.method == "INVITE":
            effects += self._forking.confirm(outgoing.transaction, outgoing.request, dialog, now)
        outgoing.transaction = None
        following = outgoing.following
        self._calls.change(call, dialog=dialog)
        # A response to a re-INVITE proves that the peer knows the dialog, hence has our 200.
        effects += [*abandon_outgoing(call), *stop_repeating(call)]
        try:
            description = description_in(response)
            media = agreed_media(call.session.slots, description.media, outgoing.media)
        except SIPParseError as error:
            failed = UpdateFailed if update else SessionFailed
            return effects + self._bye.at_once(call, failed(call.session.id, 488, str(error)))
        instance = response.contact.param("+sip.instance") if response.contact is not None else None
        self._calls.change(
            call,
            remote_media=media,
            remote_origin=description.origin,
            remote_instance=instance or call.session.remote_instance,
            peer_updatable=takes_update(response, call.session.peer_updatable),
        )
        effects += self._calls.keep_time(call, session_timers.agreed(response), now)
        effects += self._calls.advance(call, SessionOccurrence.ESTABLISHED)
        if call.ending:
            return effects
        established: list[Effect] = [SessionEstablished(call.session.id, media, update)]
        if following is None:
            return effects + established
        # An update that a newer one follows at once is not reported.
        return effects + ([] if update else established) + self._overtake(call, following, now)

    def _dialog_after(self, call: Call, request: Request, response: Response) -> Dialog:
        dialog = call.session.dialog
        if dialog is None:
            return Dialog.from_uac(request, response)
        return dialog if response.contact is None else dialog.retargeted(contact_uri(response))

    def _refused(self, call: Call, outgoing: OutgoingInvite, response: Response, now: float) -> list[Effect]:
        """Handle a final refusal (RFC 3261 8.1.3.5, 14.1, 22.2)."""
        status = response.status
        challenged = status in CHALLENGE_STATUSES and not call.ending
        if challenged and self._challenges.worth_retrying(response, outgoing.challenges):
            outgoing.challenges += 1
            return self._send(call, now)
        is_first = call.is_service and not call.established and not call.ending
        if is_first and (elsewhere := service_elsewhere(response, call.session.remote_uri)):
            return self._calls.end(call, SessionFailed(call.session.id, status, response.reason, elsewhere))
        if self._apply_proposal(call, outgoing, response) or look_up_again(call, outgoing):
            return self._send(call, now)
        if challenged:
            return self._fail(call, status, response.reason)
        if status == 486 and not call.established:
            return self._calls.advance(call, SessionOccurrence.BUSY_RECEIVED) + self._fail(
                call, status, response.reason
            )
        if not call.established or status in _GONE or self._schedule.is_exhausted(call, outgoing):
            return self._fail(call, status, response.reason)
        if status == 491:
            return self._pause(call, now + self._schedule.glare_s(call))
        return self._pause_then_other_path(call, outgoing, now)

    def _pause_then_other_path(self, call: Call, outgoing: OutgoingInvite, now: float) -> list[Effect]:
        """Pause before the next attempt, which takes the other path."""
        outgoing.failures += 1
        outgoing.through_proxy = not outgoing.through_proxy
        look_up_again(call, outgoing)
        return self._pause(call, now + self._schedule.pause_s(outgoing.failures))

    def _apply_proposal(self, call: Call, outgoing: OutgoingInvite, response: Response) -> bool:
        """Apply what a refusal proposes: another target, a longer interval, re-INVITE; False if it proposes nothing
        new.

        RFC 3261 8.1.3.4 for 3xx, RFC 4028 7.4 for 422. A peer that refuses UPDATE itself, or has no time to ask its
        user, may still accept a re-INVITE (RFC 3311 5.3).
        """
        status = response.status
        if call.ending:
            return False
        if status < 400:
            is_elsewhere = self._composer.is_elsewhere(call.session.remote_uri)
            transports = _BETWEEN_DOMAINS if is_elsewhere else self._transports
            return follow_redirection(call, outgoing, response, transports)
        if status == session_timers.TOO_SMALL and outgoing.intervals < INTERVALS_MAX:
            least_s, outgoing.intervals = session_timers.least_in(response), outgoing.intervals + 1
            longer = least_s > call.session.min_se_s
            self._calls.change(call, min_se_s=max(least_s, call.session.min_se_s))
            return longer
        if status in _NO_UPDATE and outgoing.method == "UPDATE":
            outgoing.method = "INVITE"
            self._calls.change(call, peer_updatable=status == _UPDATE_LATE and call.session.peer_updatable)
            return True
        return False

    def _pause(self, call: Call, until: float) -> list[Effect]:
        return [SetTimer((call.session.id, INVITE_TIMER), until)]

    def _fail(self, call: Call, status: int | None, reason: str) -> list[Effect]:
        id = call.session.id
        if call.established:
            failed = UpdateFailed(id, status, reason)
            gone = status in _UNANSWERED
            return self._bye.at_once(call, failed) if gone else self._calls.end(call, failed)
        if call.unanswered:
            return self._calls.end(call, SessionFailed(id, None, NO_RESPONSE))
        report = SessionRemoved(id, "ended here") if call.ending else SessionFailed(id, status, reason)
        return self._calls.end(call, report)
