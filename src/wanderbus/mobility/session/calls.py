"""Working state of sessions: their pending exchanges, in addition to the agreed state (:mod:`.session`).

Nothing here survives a restart. The modules that invite (:mod:`.uac_invite`), answer (:mod:`.uas_invite`), refresh
(:mod:`.session_refresh`) and end sessions (:mod:`.bye`) share it. All of them change sessions through :class:`Calls`,
so that the transition table is obeyed and each change of state is reported once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from wanderbus.errors import LocalProtocolError
from wanderbus.machine import CancelTimer, SetTimer
from wanderbus.mobility.messages import Effect, SessionStateChanged, UserAgentOutput
from wanderbus.mobility.session.call import Call, OutgoingInvite
from wanderbus.mobility.session.session import (
    RemoteMediaStatus,
    SessionOccurrence,
    SIPCommunicationStatus,
    SIPSession,
    advanced,
    advanced_media,
)
from wanderbus.mobility.session.session_timers import SessionTimer
from wanderbus.sip.message.message import Response, make_response
from wanderbus.sip.message.targets import redirected_to
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.transaction.transaction_layer import CancelInvite, ForgetTransaction, Respond

SERVICE_REDIRECTIONS_MAX: Final = 4
"""Largest number of 3xx that the servers of a service may answer one call with."""

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

    def advance(self, call: Call, occurrence: SessionOccurrence) -> list[Effect]:
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

    def end(self, call: Call, report: UserAgentOutput) -> list[Effect]:
        """Remove the call with all its exchanges, and report it with ``report``."""
        effects = self.stop(call)
        if call.session.communication is not SIPCommunicationStatus.DISCONNECTED:
            effects += self.advance(call, SessionOccurrence.ENDED)
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


def abandon_transaction(outgoing: OutgoingInvite) -> list[Effect]:
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


def follow_redirection(call: Call, outgoing: OutgoingInvite, response: Response, transports: Sequence[str]) -> bool:
    """Direct our first INVITE to the target of a 3xx; return False if there is none to follow, or enough were followed.

    A peer may redirect once (RFC 3261 8.1.3.4). The servers of a service may redirect to each other, because a session
    moves between them meanwhile.
    """
    if call.established or outgoing.redirections >= (SERVICE_REDIRECTIONS_MAX if call.is_service else 1):
        return False
    assert outgoing.request is not None
    peer = SIPUri.parse(call.session.remote_uri) if call.is_service else None
    target = redirected_to(response, outgoing.request.uri, transports, peer)
    if target is None:
        return False
    outgoing.redirections += 1
    outgoing.redirected_to, outgoing.challenges = target, 0
    return True


def look_up_again(call: Call, outgoing: OutgoingInvite) -> bool:
    """Direct our first INVITE to the service again, because the target of a 3xx failed; return False if none was.

    No further 3xx is followed, because it would lead to that target again.
    """
    if call.established or call.ending or not call.is_service or outgoing.redirected_to is None:
        return False
    outgoing.redirections = SERVICE_REDIRECTIONS_MAX
    outgoing.redirected_to, outgoing.challenges = None, 0
    return True


def stop_repeating(call: Call) -> list[Effect]:
    """Stop repeating our 200, if any: the peer has it, or no longer waits for it."""
    unconfirmed, call.unconfirmed = call.unconfirmed, None
    return [] if unconfirmed is None else [CancelTimer((call.session.id, ANSWER_TIMER))]


def _stop_clock(call: Call) -> list[Effect]:
    return [CancelTimer((call.session.id, kind)) for kind in (REFRESH_TIMER, EXPIRY_TIMER)]
