"""Several answers to one INVITE: the first 200 wins, each further one is confirmed and its dialog ended.

A proxy that forks passes every 200 on (RFC 3261 13.2.2.4, 16.7 item 5), and each makes a dialog of its own, told by
its To tag. Copies of the first 200 get our ACK again. What was answered is remembered beside the sessions and for
longer, as a session may end before its last answer has come.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.mobility.calls import Call, Calls, Effect
from wanderbus.mobility.challenges import CHALLENGE_STATUSES, Challenges
from wanderbus.mobility.paths import reachable
from wanderbus.sip.dialog import Dialog
from wanderbus.sip.message import Request, Response
from wanderbus.sip.targets import Target
from wanderbus.sip.transactions import SendAck, SendRequest, Timers

FORK_KIND: Final = "fork"
"""How the names of the BYE transactions begin that end further dialogs."""

ANSWERS_REMEMBERED_MAX: Final = 1_024
"""Answered INVITEs whose late answers we still confirm; the oldest go first."""

FORKS_MAX: Final = 16
"""Further answers to one INVITE that we confirm; what comes beyond is left to time out at its sender."""


class _Answered(msgspec.Struct):
    """Our INVITE, the answer that won, and the dialogs of the others by tag."""

    request: Request
    winner: str
    ack: Request
    destination: Target
    until: float
    others: dict[str, Dialog]


class _Ending(msgspec.Struct):
    """Our BYE in a further dialog."""

    dialog: Dialog
    until: float
    challenges: int = 0


class Forking:
    """Every answer to our INVITEs after the first."""

    def __init__(self, calls: Calls, challenges: Challenges, timers: Timers) -> None:
        self._calls = calls
        self._challenges = challenges
        self._timers = timers
        self._answered: dict[str, _Answered] = {}
        self._endings: dict[str, _Ending] = {}

    def confirm(self, transaction: str, request: Request, dialog: Dialog, now: float) -> list[Effect]:
        """Confirm the first 200 to our INVITE ``request``, which made or refreshed ``dialog``.

        Raises SIPParseError when the next hop cannot be sent to.
        """
        self._forget_old(now)
        ack, destination = _ack(request, dialog), reachable(dialog)
        until = now + self._timers.timeout_s
        self._answered[transaction] = _Answered(request, dialog.remote_tag, ack, destination, until, {})
        return [SendAck(ack, destination)]

    def has_answer(self, transaction: str) -> bool:
        """Tell whether the INVITE of ``transaction`` was answered before."""
        return transaction in self._answered

    def answered_again(self, transaction: str, response: Response, call: Call | None, now: float) -> list[Effect]:
        """Handle a 200 to an INVITE that had one; SIPParseError when it makes no dialog that can be ended."""
        answered = self._answered[transaction]
        tag = response.to.tag or ""
        if tag == answered.winner:
            return [self._confirm_again(answered, call)]
        if tag in answered.others:
            return [SendAck(_ack(answered.request, answered.others[tag]), reachable(answered.others[tag]))]
        if len(answered.others) >= FORKS_MAX:
            return []
        dialog = Dialog.from_uac(answered.request, response)
        confirmed = SendAck(_ack(answered.request, dialog), reachable(dialog))
        answered.others[tag] = dialog
        return [confirmed, self._bye(_Ending(dialog, now + self._timers.timeout_s))]

    def responded(self, transaction: str, response: Response) -> list[Effect]:
        """Handle the answer to a BYE of ours: only a challenge asks for more."""
        if response.status < 200:
            return []
        ending = self._endings.pop(transaction, None)
        if ending is None or response.status not in CHALLENGE_STATUSES:
            return []
        if not self._challenges.worth_retrying(response, ending.challenges):
            return []
        ending.challenges += 1
        return [self._bye(ending)]

    def _confirm_again(self, answered: _Answered, call: Call | None) -> Effect:
        """Send the ACK anew, to where the other side is by now."""
        dialog = None if call is None else call.session.dialog
        if dialog is None or dialog.remote_tag != answered.winner:
            return SendAck(answered.ack, answered.destination)
        ack = answered.ack
        ack = ack if dialog.route_set else msgspec.structs.replace(ack, uri=dialog.remote_target)
        return SendAck(ack, reachable(dialog))

    def _bye(self, ending: _Ending) -> Effect:
        ending.dialog, request = ending.dialog.next_request("BYE")
        name = self._calls.transaction_name(FORK_KIND, ending.dialog.call_id)
        self._endings[name] = ending
        return SendRequest(name, self._challenges.answered_ahead(request), reachable(ending.dialog))

    def _forget_old(self, now: float) -> None:
        """Drop what no answer can come for any more (timer M, RFC 6026 7.2)."""
        self._answered = {name: item for name, item in self._answered.items() if item.until > now}
        self._endings = {name: item for name, item in self._endings.items() if item.until > now}
        while len(self._answered) >= ANSWERS_REMEMBERED_MAX:
            del self._answered[next(iter(self._answered))]


def _ack(invite: Request, dialog: Dialog) -> Request:
    """Return the ACK for a 2xx, with the credentials of its INVITE (RFC 3261 13.2.2.4, 22.1)."""
    ack = dialog.ack(invite.cseq.number)
    for name in ("Authorization", "Proxy-Authorization"):
        for value in invite.headers_all(name):
            ack = ack.with_header(name, value)
    return ack
