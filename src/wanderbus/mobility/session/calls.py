"""Working state of sessions: their pending exchanges, in addition to the agreed state (:mod:`.session`).

Nothing here survives a restart. The modules that invite (:mod:`.uac_invite`), answer (:mod:`.uas_invite`), refresh
(:mod:`.session_refresh`) and end sessions (:mod:`.bye`) share it. All of them change sessions through :class:`Calls`,
so that the transition table is obeyed and each change of state is reported once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from wanderbus.errors import LocalProtocolError
from wanderbus.machine import CancelTimer, Input, Output, SetTimer
from wanderbus.mobility.messages import SessionStateChanged
from wanderbus.mobility.session.session import SIPSession
from wanderbus.mobility.session.session_timers import SessionTimer
from wanderbus.mobility.session.status import (
    Occurrence,
    RemoteMediaStatus,
    SIPCommunicationStatus,
    advanced,
    advanced_media,
)
from wanderbus.sip.message.message import Request, Response, make_response
from wanderbus.sip.message.sdp import MediaDescription, SessionDescription
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.transaction.transaction_layer import CancelInvite, ForgetTransaction, Respond

Effect = Input | Output
"""Result of a part of the user agent: an Input for its transaction layer, or an Output of the machine."""

INVITE_TIMER = "invite"
"""Timer of our INVITE: the timeout for its response, or the pause before the next attempt."""
ANSWER_TIMER = "answer"
"""Timer of our 200 to an INVITE without an ACK."""
REPLY_TIMER = "reply"
"""Timer while the owner decides: repeat the 180 to the caller, or refuse an UPDATE that waited too long."""
REFRESH_TIMER = "refresh"
"""Timer of our refresh of the session (RFC 4028)."""
EXPIRY_TIMER = "expiry"
"""Timer of the session's expiry without a refresh (RFC 4028)."""


class Outgoing(msgspec.Struct):
    """Our INVITE or re-INVITE, from the owner's request to its end."""

    media: MediaDescription
    attempt: int = 0
    """Number of times it was sent or repeated, without challenges."""
    failures: int = 0
    """Number of temporary refusals; sets the pause before the next attempt."""
    silences: int = 0
    """Number of attempts that were given up without a response."""
    challenges: int = 0
    """Number of challenges since the last successful authentication."""
    intervals: int = 0
    """Number of refusals because our session interval was too small (RFC 4028 7.4)."""
    method: str = "INVITE"
    """INVITE, or UPDATE if the owner requested that and the peer supports it (RFC 3311)."""
    redirected_to: SIPUri | None = None
    """Target of a 3xx instead of the address of record; followed once (RFC 3261 8.1.3.4)."""
    through_proxy: bool = False
    """True if a re-INVITE goes to the address of record instead of directly to the peer."""
    transaction: str | None = None
    """The transaction under way; None during a pause or while the peer's INVITE is pending."""
    request: Request | None = None
    sent_at: float | None = None
    hurried: bool = False
    """True if attempts end earlier than in RFC 3261: to restore a session whose data do not flow, to announce our new
    address, or because the owner requested it.
    """
    following: Outgoing | None = None
    """The owner's next update, to be sent once this one is answered (RFC 3261 14.1)."""
    crossed: bool = False
    """True if the peer's INVITE crossed ours: it may have abandoned its own, as we did ours, and then it ignores our
    200. Only its ACK shows that our 200 arrived.
    """
    sent_in_answer: bool = False
    """True if our 200 contained the same, so that its ACK makes this INVITE unnecessary."""

    def restart(self, media: MediaDescription) -> None:
        """Offer ``media`` in place of this update and the next one."""
        self.media, self.following = media, None

    def follow(self) -> None:
        """Replace this update by the next one."""
        if self.following is not None:
            self.media, self.following = self.following.media, None


class Offer(msgspec.Struct, frozen=True):
    """The peer's INVITE, re-INVITE or UPDATE, waiting for the owner's reply."""

    transaction: str
    request: Request
    description: SessionDescription | None
    """The offer; None if our answer must contain the offer (RFC 3261 13.2.1)."""
    media: MediaDescription | None
    """The media of the offer for the owner."""
    local_tag: str
    """The tag of our response: a new one if the INVITE begins a dialog."""
    update: bool
    """True if the session was established before."""


class Unconfirmed(msgspec.Struct, frozen=True):
    """Our 200 to an INVITE, repeated until its ACK arrives (RFC 3261 13.3.1.4)."""

    transaction: str
    response: Response
    cseq: int
    interval_s: float
    give_up_at: float
    update: bool
    offers: bool = False
    """True if the 200 is an offer, so that the ACK must contain the answer (RFC 3261 13.2.2.4)."""


class Refresh(msgspec.Struct):
    """Our UPDATE without offer, which only refreshes the session (RFC 4028 7.4)."""

    transaction: str
    challenges: int = 0
    intervals: int = 0


class PendingBye(msgspec.Struct):
    """Our BYE and its reason."""

    transaction: str
    reason: str
    challenges: int = 0


class Call(msgspec.Struct):
    """One session with its pending exchanges."""

    session: SIPSession
    outgoing: Outgoing | None = None
    offer: Offer | None = None
    unconfirmed: Unconfirmed | None = None
    refresh: Refresh | None = None
    pending_bye: PendingBye | None = None
    ringing: bool = False
    """True after :class:`Ring`, while the user decides."""
    ending: bool = False
    """True if our first INVITE was cancelled and waits for its final response: by the owner or after a timeout."""
    unanswered: bool = False
    """True if the first INVITE was given up without a response, and not by the owner."""

    @property
    def established(self) -> bool:
        """True if offer and answer were exchanged once."""
        return self.session.dialog is not None and self.session.remote_media is not None

    @property
    def exchanging(self) -> bool:
        """True if an exchange begun by the peer is open, so that we must not offer (RFC 3264 4)."""
        return self.offer is not None or (self.unconfirmed is not None and self.unconfirmed.offers)

    @property
    def inviting(self) -> bool:
        """True if a re-INVITE or INVITE of ours is under way, so that one of the peer is glare (RFC 3261 14.2)."""
        return self.outgoing is not None and self.outgoing.transaction is not None


class Calls:
    """All calls by session id; only this class changes a session."""

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}
        self._sessions: dict[str, SIPSession] = {}
        self.sessions: Mapping[str, SIPSession] = MappingProxyType(self._sessions)
        self._named = 0

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[Call]:
        return iter(list(self._calls.values()))

    def get(self, id: str) -> Call | None:
        """Return the call of session ``id``, None if there is none."""
        return self._calls.get(id)

    def add(self, session: SIPSession) -> Call:
        """Add ``session``; LocalProtocolError if its id is in use."""
        if session.id in self._calls:
            raise LocalProtocolError(f"session {session.id} exists already")
        call = self._calls[session.id] = Call(session)
        self._sessions[session.id] = session
        return call

    def change(self, call: Call, **changes: Any) -> None:
        """Replace fields of the call's session."""
        call.session = msgspec.structs.replace(call.session, **changes)
        self._sessions[call.session.id] = call.session

    def transaction_name(self, kind: str, id: str) -> str:
        """Return a name for a new transaction of session ``id``; :meth:`named_in` reads it."""
        self._named += 1
        return f"{kind} {self._named} {id}"

    def named_in(self, transaction: str) -> tuple[str, Call | None]:
        """Return the kind of ``transaction`` and its call, None if that has ended."""
        kind, _, rest = transaction.partition(" ")
        return kind, self._calls.get(rest.partition(" ")[2])

    def advance(self, call: Call, occurrence: Occurrence) -> list[Effect]:
        """Move both states along the transition table; report a change."""
        session = call.session
        return self._set_states(
            call, advanced(session.communication, occurrence), advanced_media(session.media_status, occurrence)
        )

    def set_media_status(self, call: Call, media: RemoteMediaStatus) -> list[Effect]:
        """Set the application's status of its data channel (SPEC C-14); report a change."""
        return self._set_states(call, call.session.communication, media)

    def _set_states(self, call: Call, communication: SIPCommunicationStatus, media: RemoteMediaStatus) -> list[Effect]:
        session = call.session
        if (communication, media) == (session.communication, session.media_status):
            return []
        self.change(call, communication=communication, media_status=media)
        return [SessionStateChanged(session.id, communication, media)]

    def keep_time(self, call: Call, timer: SessionTimer | None, now: float) -> list[Effect]:
        """Restart the session interval, as each 2xx to INVITE or UPDATE does (RFC 4028 7.2, 9)."""
        had_timer = call.session.timer is not None
        self.change(call, timer=timer)
        if timer is None:
            return _stop_clock(call) if had_timer else []
        expiry = SetTimer((call.session.id, EXPIRY_TIMER), now + timer.ends_after_s)
        if timer.refreshed_here:
            return [expiry, SetTimer((call.session.id, REFRESH_TIMER), now + timer.refresh_after_s)]
        return [expiry, CancelTimer((call.session.id, REFRESH_TIMER))]

    def end(self, call: Call, report: Output) -> list[Effect]:
        """Remove the call with all its exchanges, and report it with ``report``."""
        effects = self.stop(call)
        if call.session.communication is not SIPCommunicationStatus.DISCONNECTED:
            effects += self.advance(call, Occurrence.ENDED)
        del self._calls[call.session.id]
        del self._sessions[call.session.id]
        return [*effects, report]

    def stop(self, call: Call) -> list[Effect]:
        """Abandon all exchanges, except a BYE."""
        effects: list[Effect] = [*abandon_outgoing(call)]
        if call.offer is not None:
            effects += self.withdraw_offer(call)
        if call.session.timer is not None:
            effects += _stop_clock(call)
        if call.refresh is not None:
            effects.append(ForgetTransaction(call.refresh.transaction))
            call.refresh = None
        return effects + stop_repeating(call)

    def withdraw_offer(self, call: Call) -> list[Effect]:
        """Refuse the INVITE that waits for the owner: it was cancelled or superseded (RFC 3261 9.2, 15.1.2)."""
        offer, call.offer = call.offer, None
        assert offer is not None
        return [Respond(offer.transaction, make_response(offer.request, 487, to_tag=offer.local_tag))]


def abandon_outgoing(call: Call) -> list[Effect]:
    """Abandon our INVITE and its timer; :mod:`.forking` acknowledges a late response to it."""
    outgoing, call.outgoing = call.outgoing, None
    if outgoing is None:
        return []
    return [*abandon_transaction(outgoing), CancelTimer((call.session.id, INVITE_TIMER))]


def abandon_transaction(outgoing: Outgoing) -> list[Effect]:
    """Cancel the transaction of our INVITE, which is kept for another attempt; an UPDATE is forgotten."""
    transaction, outgoing.transaction = outgoing.transaction, None
    if transaction is None:
        return []
    sent_invite = outgoing.request is not None and outgoing.request.method == "INVITE"
    return [CancelInvite(transaction, repeats=False) if sent_invite else ForgetTransaction(transaction)]


def overtake_outgoing(call: Call) -> list[Effect]:
    """Cancel the transaction of our INVITE, if any, because the peer's has precedence."""
    if call.outgoing is None:
        return []
    call.outgoing.crossed = call.outgoing.crossed or call.outgoing.transaction is not None
    call.outgoing.sent_in_answer = False
    call.outgoing.follow()
    return abandon_transaction(call.outgoing)


def stop_repeating(call: Call) -> list[Effect]:
    """Stop repeating our 200, if any: the peer has it, or no longer waits for it."""
    unconfirmed, call.unconfirmed = call.unconfirmed, None
    return [] if unconfirmed is None else [CancelTimer((call.session.id, ANSWER_TIMER))]


def _stop_clock(call: Call) -> list[Effect]:
    return [CancelTimer((call.session.id, kind)) for kind in (REFRESH_TIMER, EXPIRY_TIMER)]
