"""End of a session: our BYE, the peer's BYE, and repetition of ours after a move (RFC 3261 15)."""

from __future__ import annotations

from typing import Final

from wanderbus.mobility.composer import Composer
from wanderbus.mobility.messages import Effect, SessionRemoved, UserAgentOutput
from wanderbus.mobility.session.call import Call, PendingBye
from wanderbus.mobility.session.calls import Calls
from wanderbus.mobility.session.session import SessionOccurrence
from wanderbus.sip.authentication.digest_client import CHALLENGE_STATUSES, Challenges
from wanderbus.sip.message.dialog import reachable
from wanderbus.sip.message.message import Request, Response, make_response
from wanderbus.sip.transaction.transaction_layer import ForgetTransaction, Respond, SendRequest

BYE_KIND: Final = "bye"
"""Prefix of the names of our BYE transactions."""


class ByeExchange:
    """Both sides of BYE."""

    def __init__(self, composer: Composer, calls: Calls, challenges: Challenges) -> None:
        self._composer = composer
        self._calls = calls
        self._challenges = challenges

    def begin(self, call: Call, reason: str) -> list[Effect]:
        """Send BYE; this ends the session (RFC 3261 15.1.1), its removal is reported with the response."""
        call.pending_bye = PendingBye("", reason)
        return [
            *self._calls.stop(call),
            *self._calls.advance(call, SessionOccurrence.ENDED),
            *self._send(call, call.pending_bye),
        ]

    def at_once(self, call: Call, report: UserAgentOutput) -> list[Effect]:
        """Send BYE and remove the session without waiting for the response: its offer and answer are unusable."""
        dialog = call.session.dialog
        assert dialog is not None
        following, request = dialog.next_request("BYE")
        request = self._challenges.answered_ahead(request)
        name = self._calls.transaction_name(BYE_KIND, call.session.id)
        return [SendRequest(name, request, reachable(following)), *self._calls.end(call, report)]

    def moved(self, call: Call) -> list[Effect]:
        """Send BYE again from our new address: the response to the last one would go to the old one."""
        if call.pending_bye is None:
            return []
        return [ForgetTransaction(call.pending_bye.transaction), *self._send(call, call.pending_bye)]

    def requested(self, transaction: str, request: Request, call: Call | None) -> list[Effect]:
        """Handle the peer's BYE (RFC 3261 15.1.2)."""
        dialog = None if call is None else call.session.dialog
        status = 481 if dialog is None else dialog.accepts(request)
        if call is None or status is not None:
            return [Respond(transaction, self._composer.refusal(request, status or 481))]
        report = SessionRemoved(call.session.id, "ended by the other side")
        return [Respond(transaction, make_response(request, 200)), *self._calls.end(call, report)]

    def responded(self, call: Call, transaction: str, response: Response) -> list[Effect]:
        """Handle the response to our BYE: whatever it is, the session has ended (RFC 3261 15.1.1)."""
        pending_bye = call.pending_bye
        if pending_bye is None or pending_bye.transaction != transaction or response.status < 200:
            return []
        if response.status in CHALLENGE_STATUSES and self._challenges.worth_retrying(response, pending_bye.challenges):
            pending_bye.challenges += 1
            return self._send(call, pending_bye)
        return self._calls.end(call, SessionRemoved(call.session.id, pending_bye.reason))

    def timed_out(self, call: Call, transaction: str) -> list[Effect]:
        """Handle the timeout of our BYE."""
        if call.pending_bye is None or call.pending_bye.transaction != transaction:
            return []
        return self._calls.end(call, SessionRemoved(call.session.id, call.pending_bye.reason))

    def _send(self, call: Call, pending_bye: PendingBye) -> list[Effect]:
        assert call.session.dialog is not None
        dialog, request = call.session.dialog.next_request("BYE")
        self._calls.change(call, dialog=dialog)
        pending_bye.transaction = self._calls.transaction_name(BYE_KIND, call.session.id)
        request = self._challenges.answered_ahead(request)
        return [SendRequest(pending_bye.transaction, request, reachable(dialog))]
