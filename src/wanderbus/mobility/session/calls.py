"""The working state of sessions: what is under way in each, beside what is agreed (:mod:`.session`).

Nothing here survives a restart. The parts that invite (:mod:`.uac_invite`), answer (:mod:`.uas_invite`), refresh
(:mod:`.session_refresh`) and end sessions (:mod:`.bye`) share it, and all of them change sessions through
:class:`Calls`, so that the transition table is obeyed and each change of state is reported once.
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
"""What a part of the user agent returns: an Input is for its transaction layer, an Output for the world."""

INVITE_TIMER = "invite"
"""Our INVITE has waited for its answer for long enough, or its pause before the next attempt is over."""
ANSWER_TIMER = "answer"
"""Our 200 to an INVITE still lacks its ACK."""
REPLY_TIMER = "reply"
"""The owner is asked: the caller is told again that it rings, or an UPDATE has waited too long."""
REFRESH_TIMER = "refresh"
"""It is our turn to refresh the session (RFC 4028)."""
EXPIRY_TIMER = "expiry"
"""Nobody refreshed the session in time (RFC 4028)."""


class Outgoing(msgspec.Struct):
    """Our INVITE or re-INVITE, from the owner's wish to its end."""

    media: MediaDescription
    attempt: int = 0
    """How often it was sent or repeated, challenges not counted."""
    failures: int = 0
    """How often it was refused for a passing reason; sets the pause before the next attempt."""
    silences: int = 0
    """How often it was given up because nobody answered."""
    challenges: int = 0
    """How often it was challenged since it was last accepted as authentic."""
    intervals: int = 0
    """How often it was refused because our session interval was too small (RFC 4028 7.4)."""
    method: str = "INVITE"
    """INVITE, or UPDATE where the owner asked for that and the other side takes it (RFC 3311)."""
    redirected_to: SIPUri | None = None
    """Where a 3xx sent us instead of the address of record; it does so once (RFC 3261 8.1.3.4)."""
    through_proxy: bool = False
    """Whether a re-INVITE goes to the address of record instead of straight to the peer."""
    transaction: str | None = None
    """The transaction under way; None while pausing or waiting for the other side's INVITE to end."""
    request: Request | None = None
    sent_at: float | None = None
    hurried: bool = False
    """Whether attempts end before RFC 3261 gives them up: to heal a session whose data do not flow, to tell where we
    are now, or because the owner asked for it."""
    following: Outgoing | None = None
    """What the owner wishes to say after this, once this is answered (RFC 3261 14.1)."""
    crossed: bool = False
    """Whether the other side's INVITE met ours on the way: it may have forgotten its own, as we did ours, and then it
    ignores our 200. Only its ACK tells that what we said there arrived."""
    said: bool = False
    """Whether our 200 said the same, so that its ACK makes this INVITE needless."""

    def follow(self) -> None:
        """Say from now on what was to be said after this."""
        if self.following is not None:
            self.media, self.following = self.following.media, None


class Offer(msgspec.Struct, frozen=True):
    """The other side's INVITE, re-INVITE or UPDATE, waiting for the owner's reply."""

    transaction: str
    request: Request
    description: SessionDescription | None
    """What is offered; None when our answer has to be the offer (RFC 3261 13.2.1)."""
    media: MediaDescription | None
    """What of it is for the owner."""
    local_tag: str
    """The tag we answer with: a new one when the INVITE begins a dialog."""
    update: bool
    """Whether the session was established before."""


class Unconfirmed(msgspec.Struct, frozen=True):
    """Our 200 to an INVITE, repeated until its ACK comes (RFC 3261 13.3.1.4)."""

    transaction: str
    response: Response
    cseq: int
    interval_s: float
    give_up_at: float
    update: bool
    offers: bool = False
    """Whether the 200 is an offer, so that the ACK has to bring the answer (RFC 3261 13.2.2.4)."""


class Refresh(msgspec.Struct):
    """Our UPDATE without offer, which only refreshes the session (RFC 4028 7.4)."""

    transaction: str
    challenges: int = 0
    intervals: int = 0


class Farewell(msgspec.Struct):
    """Our BYE and why it was sent."""

    transaction: str
    reason: str
    challenges: int = 0


class Call(msgspec.Struct):
    """One session with what is under way in it."""

    session: SIPSession
    outgoing: Outgoing | None = None
    offer: Offer | None = None
    unconfirmed: Unconfirmed | None = None
    refresh: Refresh | None = None
    farewell: Farewell | None = None
    ringing: bool = False
    """The owner said that its user is being asked."""
    ending: bool = False
    """Our first INVITE was given up and waits for its last answer: the owner ended the session, or lost patience."""
    unanswered: bool = False
    """Whether the first INVITE was given up because nobody answered, and not by the owner."""

    @property
    def established(self) -> bool:
        """Whether offer and answer were exchanged once."""
        return self.session.dialog is not None and self.session.remote_media is not None

    @property
    def exchanging(self) -> bool:
        """Whether an exchange of the other side's making is open, so that we must not offer (RFC 3264 4)."""
        return self.offer is not None or (self.unconfirmed is not None and self.unconfirmed.offers)

    @property
    def inviting(self) -> bool:
        """Whether a re-INVITE or INVITE of ours is under way, so that another's is glare (RFC 3261 14.2)."""
        return self.outgoing is not None and self.outgoing.transaction is not None


class Calls:
    """All calls by session id; the only place that changes a session."""

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
        """Take up ``session``; LocalProtocolError if its id is in use."""
        if session.id in self._calls:
            raise LocalProtocolError(f"there is a session {session.id} already")
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
        """Return the kind of ``transaction`` and its call, None if that is gone."""
        kind, _, rest = transaction.partition(" ")
        return kind, self._calls.get(rest.partition(" ")[2])

    def advance(self, call: Call, occurrence: Occurrence) -> list[Effect]:
        """Move both states along the transition table; report a change."""
        session = call.session
        return self._set_states(
            call, advanced(session.communication, occurrence), advanced_media(session.media_status, occurrence)
        )

    def set_media_status(self, call: Call, media: RemoteMediaStatus) -> list[Effect]:
        """Set what the application says of its data channel (SPEC C-14); report a change."""
        return self._set_states(call, call.session.communication, media)

    def _set_states(self, call: Call, communication: SIPCommunicationStatus, media: RemoteMediaStatus) -> list[Effect]:
        session = call.session
        if (communication, media) == (session.communication, session.media_status):
            return []
        self.change(call, communication=communication, media_status=media)
        return [SessionStateChanged(session.id, communication, media)]

    def keep_time(self, call: Call, timer: SessionTimer | None, now: float) -> list[Effect]:
        """Begin a session interval anew, as each 2xx to INVITE or UPDATE does (RFC 4028 7.2, 9)."""
        had_one = call.session.timer is not None
        self.change(call, timer=timer)
        if timer is None:
            return _stop_clock(call) if had_one else []
        expiry = SetTimer((call.session.id, EXPIRY_TIMER), now + timer.ends_after_s)
        if timer.refreshed_here:
            return [expiry, SetTimer((call.session.id, REFRESH_TIMER), now + timer.refresh_after_s)]
        return [expiry, CancelTimer((call.session.id, REFRESH_TIMER))]

    def end(self, call: Call, report: Output) -> list[Effect]:
        """Drop the call with everything under way in it and say so with ``report``."""
        effects = self.stop(call)
        if call.session.communication is not SIPCommunicationStatus.DISCONNECTED:
            effects += self.advance(call, Occurrence.ENDED)
        del self._calls[call.session.id]
        del self._sessions[call.session.id]
        return [*effects, report]

    def stop(self, call: Call) -> list[Effect]:
        """Abandon whatever is under way, except a BYE."""
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
        """Refuse the INVITE that waits for the owner: it was cancelled or overtaken (RFC 3261 9.2, 15.1.2)."""
        offer, call.offer = call.offer, None
        assert offer is not None
        return [Respond(offer.transaction, make_response(offer.request, 487, to_tag=offer.local_tag))]


def abandon_outgoing(call: Call) -> list[Effect]:
    """Drop our INVITE and its timer; a late answer to it is acknowledged by :mod:`.forking`."""
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
    """Cancel the transaction of our INVITE, if any, because the other side's comes first."""
    if call.outgoing is None:
        return []
    call.outgoing.crossed = call.outgoing.crossed or call.outgoing.transaction is not None
    call.outgoing.said = False
    call.outgoing.follow()
    return abandon_transaction(call.outgoing)


def stop_repeating(call: Call) -> list[Effect]:
    """Stop repeating our 200, if we do: the other side has it, or no longer waits for it."""
    unconfirmed, call.unconfirmed = call.unconfirmed, None
    return [] if unconfirmed is None else [CancelTimer((call.session.id, ANSWER_TIMER))]


def _stop_clock(call: Call) -> list[Effect]:
    return [CancelTimer((call.session.id, kind)) for kind in (REFRESH_TIMER, EXPIRY_TIMER)]
