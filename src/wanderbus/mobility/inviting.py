"""Our INVITEs and re-INVITEs, from the owner's wish to the ACK (RFC 3261 13.2, 14.1; SPEC D-06 to D-12, X12, X13).

An INVITE is repeated in *attempts*. Within one attempt the transaction layer retransmits. An attempt that stays
silent is forgotten and the next one begins, with a new CSeq, because a fresh one has short intervals again, passes a
server that lost its transactions, and may take another path: a re-INVITE goes straight to the peer; when that fails,
through the proxy to the address of record (for a peer that moved when we did, SPEC X13), and so on in turn. A newer
wish of the owner overtakes all of that. What is forgotten is never confirmed: the newer INVITE tells the peer to stop
repeating its 200 (see :mod:`.answering`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.machine import Output, RandomSource, SetTimer
from wanderbus.mobility import session_timers
from wanderbus.mobility.calls import (
    INVITE_TIMER,
    Call,
    Calls,
    Effect,
    Outgoing,
    abandon_outgoing,
    forget_transaction,
    stop_repeating,
)
from wanderbus.mobility.challenges import CHALLENGE_STATUSES, Challenges
from wanderbus.mobility.composer import Composer, takes_update
from wanderbus.mobility.descriptions import agreed_media, description_in, laid_out
from wanderbus.mobility.ending import Ending
from wanderbus.mobility.forking import Forking
from wanderbus.mobility.messages import SessionEstablished, SessionFailed, SessionRemoved, UpdateFailed
from wanderbus.mobility.paths import reachable
from wanderbus.mobility.redirection import direct_hop, redirected_to
from wanderbus.mobility.status import Occurrence
from wanderbus.sip.dialog import Dialog, contact_uri
from wanderbus.sip.message import Request, Response
from wanderbus.sip.sdp import MediaDescription
from wanderbus.sip.targets import Target
from wanderbus.sip.transactions import SendRequest, Timers, make_cancel

INVITE_KIND: Final = "invite"
"""How the names of our transactions begin."""

INVITE_ATTEMPTS_MAX: Final = 5
"""How often a first INVITE is sent: 30 s of silence with the default T1, about timer B (RFC 3261 17.1.1.2)."""

REINVITE_ATTEMPTS_MAX: Final = 8
"""How often a re-INVITE is sent or repeated: 54 s of silence with the default T1, long enough for a tunnel."""

SILENCE_T1_MIN: Final = 4
SILENCE_T1_MAX: Final = 16
"""How long an attempt may stay silent, in T1: doubled from the first (three transmissions) to the second."""

PROVISIONAL_T1: Final = 8
"""How long after a 100 an attempt may stay silent, in T1: the next hop is alive, what it promised may be lost."""

RINGING_S_MAX: Final = 180.0
"""How long the called side may ring before the next attempt, in seconds (RFC 3261 16.6: timer C)."""

PAUSE_S_MIN: Final = 0.5
PAUSE_S_MAX: Final = 4.0
"""Pauses after a re-INVITE was refused for a passing reason, in seconds: doubled from the first to the second."""

_OWNER_GLARE_S: Final = (2.1, 4.0)
_OTHER_GLARE_S: Final = (0.0, 2.0)
"""Pauses after a 491, for the owner of the Call-ID and the other side, in seconds (RFC 3261 14.1)."""

INTERVALS_MAX: Final = 4
"""How often one request is repeated because its session interval was too small; each hop may ask for more."""

_NO_UPDATE: Final = (405, 501, 504)
_UPDATE_LATE: Final = 504
"""Answers after which a re-INVITE may do what UPDATE did not; 504 refuses this one alone (RFC 3311 5.2)."""

_GONE: Final = (481, 408)
"""Answers that end a dialog (RFC 3261 12.2.1.2)."""


class Inviting:
    """The caller's half of every INVITE."""

    def __init__(
        self,
        composer: Composer,
        calls: Calls,
        challenges: Challenges,
        ending: Ending,
        forking: Forking,
        random: RandomSource,
        timers: Timers,
    ) -> None:
        self._composer = composer
        self._calls = calls
        self._challenges = challenges
        self._ending = ending
        self._forking = forking
        self._random = random
        self._timers = timers
        self._transports = {"UDP", composer.properties.transport}

    def begin(self, call: Call, media: MediaDescription, now: float, method: str = "INVITE") -> list[Effect]:
        """Offer ``media``, overtaking an INVITE of ours that is under way, unless it is this very one.

        While an exchange of the other side's making is open, ours waits (RFC 3261 14.1, RFC 3264 4).
        """
        outgoing = call.outgoing
        if outgoing is not None and outgoing.sent_at == now and self._said(call, media):
            return []
        effects = abandon_outgoing(call)
        by_update = method == "UPDATE" and call.established and call.session.peer_updatable
        call.outgoing = Outgoing(media, method="UPDATE" if by_update else "INVITE")
        if outgoing is not None:
            call.outgoing.redirected_to = outgoing.redirected_to
            call.outgoing.crossed = outgoing.crossed
        return effects if call.exchanging else effects + self._attempt(call, now)

    def resume(self, call: Call, now: float, *, answered: bool) -> list[Effect]:
        """Go on after the other side's INVITE ended; what our answer to it said need not be said again."""
        outgoing = call.outgoing
        if outgoing is None or outgoing.transaction is not None or call.exchanging:
            return []
        if answered and self._said(call, outgoing.media):
            return self._say_later(call, outgoing, now) if outgoing.crossed else abandon_outgoing(call)
        return self._attempt(call, now)

    def confirmed(self, call: Call) -> list[Effect]:
        """Give up what our 200 said already: its ACK came."""
        return abandon_outgoing(call) if call.outgoing is not None and call.outgoing.said else []

    def timer_fired(self, call: Call, now: float) -> list[Effect]:
        """Begin the next attempt: the last one was silent for too long, or the pause after it is over."""
        outgoing = call.outgoing
        if outgoing is None or call.exchanging:
            return []
        if outgoing.transaction is not None:
            outgoing.through_proxy = not outgoing.through_proxy
        return self._attempt(call, now)

    def unsendable(self, call: Call, now: float) -> list[Effect]:
        """Try again after a pause: there is no connection to send our request over."""
        outgoing = call.outgoing
        if outgoing is None:
            return []
        outgoing.transaction = None
        return self._fail(call, None, "ended here") if call.ending else self._pass_over(call, outgoing, now)

    def cancel(self, call: Call, now: float) -> list[Effect]:
        """Give up our first INVITE; the answer to it still has to come, for 64*T1 (RFC 3261 9.1)."""
        outgoing = call.outgoing
        assert outgoing is not None
        call.ending = True
        if outgoing.transaction is None or outgoing.request is None or outgoing.destination is None:
            return self._fail(call, None, "ended here")
        name = self._calls.transaction_name("cancel", call.session.id)
        return [
            SendRequest(name, make_cancel(outgoing.request), outgoing.destination),
            SetTimer((call.session.id, INVITE_TIMER), now + self._timers.timeout_s),
        ]

    def responded(self, call: Call, transaction: str, response: Response, now: float) -> list[Effect]:
        """Handle a response to our present INVITE or UPDATE."""
        outgoing = call.outgoing
        if outgoing is None or outgoing.transaction != transaction:
            return []
        if response.status < 200:
            return self._progressed(call, response, now)
        if response.status < 300:
            return self._accepted(call, response, now)
        outgoing.transaction = None
        return self._refused(call, outgoing, response, now)

    def _said(self, call: Call, media: MediaDescription) -> bool:
        """Tell whether the last thing we said is that we are reached here, at ``media``."""
        return call.session.local_media == media and call.session.sip_address == self._composer.contact

    def _say_later(self, call: Call, outgoing: Outgoing, now: float) -> list[Effect]:
        """Send our INVITE once more unless our 200, which says the same, is confirmed soon."""
        outgoing.attempt, outgoing.through_proxy, outgoing.said = 1, False, True
        return self._pause(call, now + self._silence_s(call, outgoing))

    def _attempt(self, call: Call, now: float) -> list[Effect]:
        outgoing = call.outgoing
        assert outgoing is not None
        effects = forget_transaction(outgoing)
        if call.ending or outgoing.attempt >= (REINVITE_ATTEMPTS_MAX if call.established else INVITE_ATTEMPTS_MAX):
            return effects + self._fail(call, None, "nobody answers")
        outgoing.attempt += 1
        return effects + self._send(call, now)

    def _send(self, call: Call, now: float) -> list[Effect]:
        """Send the INVITE of this attempt with a new CSeq."""
        outgoing = call.outgoing
        assert outgoing is not None
        outgoing.said = False
        self._describe(call, outgoing)
        request, destination = self._next_request(call, outgoing)
        request = self._challenges.answered_ahead(request)
        name = self._calls.transaction_name(INVITE_KIND, call.session.id)
        outgoing.transaction, outgoing.request, outgoing.destination = name, request, destination
        outgoing.sent_at = now
        sent = Occurrence.REINVITE_SENT if call.established else Occurrence.INVITE_SENT
        return [
            SendRequest(name, request, destination),
            SetTimer((call.session.id, INVITE_TIMER), now + self._silence_s(call, outgoing)),
            *self._calls.advance(call, sent),
        ]

    def _silence_s(self, call: Call, outgoing: Outgoing) -> float:
        """Return how long this attempt may stay silent.

        The two sides differ by one T1, so that when both moved the one does not turn to the proxy with the other.
        """
        silence_t1 = min(SILENCE_T1_MIN << (outgoing.attempt - 1), SILENCE_T1_MAX)
        return self._timers.t1_s * (silence_t1 if call.session.created_here else silence_t1 + 1)

    def _describe(self, call: Call, outgoing: Outgoing) -> None:
        """Store what we are about to say; the SDP version rises when it differs from the last (RFC 3264 8)."""
        session = call.session
        slots = laid_out(session.slots, outgoing.media)
        self._calls.change(
            call,
            local_media=outgoing.media,
            slots=slots,
            description_version=session.description_version + (slots != session.slots),
            sip_address=self._composer.contact,
        )

    def _next_request(self, call: Call, outgoing: Outgoing) -> tuple[Request, Target]:
        """Return the INVITE and its next hop, straight to the peer or through the proxy in turn (SPEC D-09, X13)."""
        server = self._composer.properties.server_target
        session = call.session
        if session.dialog is None:
            self._calls.change(call, local_cseq=session.local_cseq + 1)
            request = self._composer.invite(call.session)
            if outgoing.redirected_to is None:
                return request, server
            target = outgoing.redirected_to
            return msgspec.structs.replace(request, uri=str(target)), direct_hop(target, server)
        dialog, request = session.dialog.next_request(outgoing.method)
        self._calls.change(call, dialog=dialog)
        request = self._composer.offering(request, call.session)
        if outgoing.through_proxy and not dialog.route_set:
            return msgspec.structs.replace(request, uri=session.remote_uri), server
        return request, reachable(dialog)

    def _progressed(self, call: Call, response: Response, now: float) -> list[Effect]:
        """Give a live next hop more time, and one that rings as long as a person needs."""
        outgoing = call.outgoing
        assert outgoing is not None
        if call.ending:
            return []
        timer = (call.session.id, INVITE_TIMER)
        if response.status == 100:
            alive_s = self._timers.t1_s * PROVISIONAL_T1
            return [SetTimer(timer, now + max(alive_s, self._silence_s(call, outgoing)))]
        effects: list[Effect] = [SetTimer(timer, now + RINGING_S_MAX)]
        if response.status == 180 and not call.established:
            effects += self._calls.advance(call, Occurrence.RINGING_RECEIVED)
        return effects

    def _accepted(self, call: Call, response: Response, now: float) -> list[Effect]:
        """Confirm a 200, store what the other side said (SPEC D-08 step 3) and report it (X12)."""
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
        self._calls.change(call, dialog=dialog)
        # An answer to a re-INVITE proves that the other side knows the dialog, hence has our 200.
        effects += [*abandon_outgoing(call), *stop_repeating(call)]
        try:
            description = description_in(response)
            media = agreed_media(call.session.slots, description.media, outgoing.media)
        except SIPParseError as error:
            failed = UpdateFailed if update else SessionFailed
            return effects + self._ending.at_once(call, failed(call.session.id, 488, str(error)))
        instance = response.contact.param("+sip.instance") if response.contact is not None else None
        self._calls.change(
            call,
            remote_media=media,
            remote_origin=description.origin,
            remote_instance=instance or call.session.remote_instance,
            peer_updatable=takes_update(response, call.session.peer_updatable),
        )
        effects += self._calls.keep_time(call, session_timers.agreed(response), now)
        effects += self._calls.advance(call, Occurrence.ESTABLISHED)
        return effects if call.ending else [*effects, SessionEstablished(call.session.id, media, update)]

    def _dialog_after(self, call: Call, request: Request, response: Response) -> Dialog:
        dialog = call.session.dialog
        if dialog is None:
            return Dialog.from_uac(request, response)
        return dialog if response.contact is None else dialog.retargeted(contact_uri(response))

    def _refused(self, call: Call, outgoing: Outgoing, response: Response, now: float) -> list[Effect]:
        """Handle a final refusal (RFC 3261 8.1.3.5, 14.1, 22.2)."""
        status = response.status
        if status in CHALLENGE_STATUSES and not call.ending:
            if self._challenges.worth_retrying(response, outgoing.challenges):
                outgoing.challenges += 1
                return self._send(call, now)
            return self._fail(call, status, response.reason)
        if self._asked_otherwise(call, outgoing, response):
            return self._send(call, now)
        if status == 486 and not call.established:
            return self._calls.advance(call, Occurrence.BUSY_RECEIVED) + self._fail(call, status, response.reason)
        if not call.established or status in _GONE or outgoing.attempt >= REINVITE_ATTEMPTS_MAX:
            return self._fail(call, status, response.reason)
        if status == 491:
            low_s, high_s = _OWNER_GLARE_S if call.session.created_here else _OTHER_GLARE_S
            return self._pause(call, now + self._random.uniform(low_s, high_s))
        return self._pass_over(call, outgoing, now)

    def _pass_over(self, call: Call, outgoing: Outgoing, now: float) -> list[Effect]:
        """Pause before the next attempt, which goes the other way."""
        outgoing.failures += 1
        outgoing.through_proxy = not outgoing.through_proxy
        return self._pause(call, now + min(PAUSE_S_MIN * 2 ** (outgoing.failures - 1), PAUSE_S_MAX))

    def _asked_otherwise(self, call: Call, outgoing: Outgoing, response: Response) -> bool:
        """Take up what a refusal proposes: elsewhere, for longer, by re-INVITE; False when it proposes nothing new.

        RFC 3261 8.1.3.4 for 3xx, RFC 4028 7.4 for 422; who refuses UPDATE itself, or has no time to ask its user,
        may still take a re-INVITE (RFC 3311 5.3).
        """
        status = response.status
        if call.ending:
            return False
        if status < 400 and not call.established and outgoing.redirected_to is None:
            assert outgoing.request is not None
            outgoing.redirected_to = redirected_to(response, outgoing.request.uri, self._transports)
            return outgoing.redirected_to is not None
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
        report: Output
        if call.ending:
            report = SessionRemoved(id, "ended here")
        elif call.established:
            report = UpdateFailed(id, status, reason)
        else:
            report = SessionFailed(id, status, reason)
        return self._calls.end(call, report)
