"""Late and further 2xx to our INVITEs: each is acknowledged, and unwanted dialogs are ended.

A forking proxy forwards every 2xx (RFC 3261 13.2.2.4, 16.7 item 5), and each creates a dialog of its own, identified by
its To tag: the first is used, the others get ACK and BYE. Copies of the first get our ACK again. So does the 2xx to an
INVITE that was cancelled or abandoned meanwhile, which creates no session. INVITEs are stored separately from the
sessions and for longer, because a session may end before its last response arrives.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.mobility.messages import Effect
from wanderbus.mobility.session.call import Call
from wanderbus.mobility.session.calls import Calls
from wanderbus.mobility.session.offer_answer import description_in
from wanderbus.sip.authentication.digest_client import CHALLENGE_STATUSES, Challenges
from wanderbus.sip.message.dialog import Dialog, reachable
from wanderbus.sip.message.message import Request, Response
from wanderbus.sip.message.sdp import SessionDescription
from wanderbus.sip.message.targets import Target
from wanderbus.sip.transaction.transaction_layer import BaseTimers, SendAck, SendRequest

FORK_KIND: Final = "fork"
"""Prefix of the names of the BYE transactions that end further dialogs."""

ANSWERS_REMEMBERED_MAX: Final = 1_024
"""Largest number of answered INVITEs whose late responses are acknowledged, and of unanswered ones."""

FORKS_MAX: Final = 16
"""Further responses to one INVITE that we acknowledge; the sender of any more will time out."""


class _Winner:
    """The response that established or updated the session, by its tag, and our ACK."""

    __slots__ = ("ack", "destination", "tag")

    def __init__(self, tag: str, ack: Request, destination: Target) -> None:
        self.tag = tag
        self.ack = ack
        self.destination = destination


class _Answered:
    """Our INVITE, its first 2xx if any, and the dialogs of the others by tag."""

    __slots__ = ("others", "request", "until", "winner")

    def __init__(self, request: Request, winner: _Winner | None, until: float, others: dict[str, Dialog]) -> None:
        self.request = request
        self.winner = winner
        self.until = until
        self.others = others


class _Ending:
    """Our BYE in a further dialog."""

    __slots__ = ("challenges", "dialog", "until")

    def __init__(self, dialog: Dialog, until: float, challenges: int = 0) -> None:
        self.dialog = dialog
        self.until = until
        self.challenges = challenges


class Forking:
    """Every 2xx to our INVITEs after the first."""

    def __init__(self, calls: Calls, challenges: Challenges, timers: BaseTimers) -> None:
        self._calls = calls
        self._challenges = challenges
        self._timers = timers
        self._unanswered: dict[str, tuple[Request, Dialog | None]] = {}
        self._answered: dict[str, _Answered] = {}
        self._endings: dict[str, _Ending] = {}

    def sent(self, transaction: str, request: Request, dialog: Dialog | None) -> None:
        """Record our INVITE ``request``; ``dialog`` is None if it is to create one."""
        while len(self._unanswered) >= ANSWERS_REMEMBERED_MAX:
            del self._unanswered[next(iter(self._unanswered))]
        self._unanswered[transaction] = request, dialog

    def over(self, transaction: str) -> None:
        """Forget an INVITE that was refused, or that can have no more responses."""
        self._unanswered.pop(transaction, None)

    def confirm(self, transaction: str, request: Request, dialog: Dialog, now: float) -> list[Effect]:
        """Acknowledge the first 200 to our INVITE ``request``, which created or refreshed ``dialog``.

        Raises SIPParseError if the next hop is not a usable address.
        """
        self._forget_old(now)
        ack, destination = _ack(request, dialog), reachable(dialog)
        until = now + self._timers.timeout_s
        self.over(transaction)
        self._answered[transaction] = _Answered(request, _Winner(dialog.remote_tag, ack, destination), until, {})
        return [SendAck(ack, destination)]

    def answered_late(self, transaction: str, response: Response, call: Call | None, now: float) -> list[Effect]:
        """Handle a 2xx that no present INVITE waits for; SIPParseError if it creates no dialog that can be ended."""
        request, dialog = self._unanswered.get(transaction, (None, None))
        if request is not None and dialog is not None:
            return self._confirm_update(request, dialog, response, call)
        if request is not None:
            self._forget_old(now)
            self.over(transaction)
            self._answered[transaction] = _Answered(request, None, now + self._timers.timeout_s, {})
        return self._answered_again(transaction, response, call, now) if transaction in self._answered else []

    def _confirm_update(self, request: Request, dialog: Dialog, response: Response, call: Call | None) -> list[Effect]:
        """Acknowledge a 2xx to an abandoned re-INVITE, unless its description is new to us.

        We would not apply a new one, so the peer must not assume that we know it: it repeats its 2xx until another
        exchange contains the same.
        """
        if call is not None and call.session.dialog is not None:
            if call.session.dialog.key == dialog.key:
                dialog = call.session.dialog
            if call.session.is_newer(_description_of(response)):
                return []
        return [SendAck(_ack(request, dialog), reachable(dialog))]

    def _answered_again(self, transaction: str, response: Response, call: Call | None, now: float) -> list[Effect]:
        """Acknowledge a repeated or unexpected 2xx to an INVITE; end a dialog other than the first."""
        answered = self._answered[transaction]
        tag = response.to.tag or ""
        if answered.winner is not None and tag == answered.winner.tag:
            return [self._confirm_again(answered.winner, call)]
        if tag in answered.others:
            return [SendAck(_ack(answered.request, answered.others[tag]), reachable(answered.others[tag]))]
        if len(answered.others) >= FORKS_MAX:
            return []
        dialog = Dialog.from_uac(answered.request, response)
        confirmed = SendAck(_ack(answered.request, dialog), reachable(dialog))
        answered.others[tag] = dialog
        return [confirmed, self._bye(_Ending(dialog, now + self._timers.timeout_s))]

    def responded(self, transaction: str, response: Response) -> list[Effect]:
        """Handle the response to a BYE of ours: only a challenge needs a reaction."""
        if response.status < 200:
            return []
        ending = self._endings.pop(transaction, None)
        if ending is None or response.status not in CHALLENGE_STATUSES:
            return []
        if not self._challenges.worth_retrying(response, ending.challenges):
            return []
        ending.challenges += 1
        return [self._bye(ending)]

    def _confirm_again(self, winner: _Winner, call: Call | None) -> Effect:
        """Send the ACK again, to the peer's current address."""
        dialog = None if call is None else call.session.dialog
        if dialog is None or dialog.remote_tag != winner.tag:
            return SendAck(winner.ack, winner.destination)
        ack = winner.ack
        ack = ack if dialog.route_set else msgspec.structs.replace(ack, uri=dialog.remote_target)
        return SendAck(ack, reachable(dialog))

    def _bye(self, ending: _Ending) -> Effect:
        ending.dialog, request = ending.dialog.next_request("BYE")
        name = self._calls.transaction_name(FORK_KIND, ending.dialog.call_id)
        self._endings[name] = ending
        return SendRequest(name, self._challenges.answered_ahead(request), reachable(ending.dialog))

    def _forget_old(self, now: float) -> None:
        """Forget INVITEs that can have no more responses (timer M, RFC 6026 7.2)."""
        self._answered = {name: item for name, item in self._answered.items() if item.until > now}
        self._endings = {name: item for name, item in self._endings.items() if item.until > now}
        while len(self._answered) >= ANSWERS_REMEMBERED_MAX:
            del self._answered[next(iter(self._answered))]


def _description_of(response: Response) -> SessionDescription | None:
    try:
        return description_in(response)
    except SIPParseError:
        return None


def _ack(invite: Request, dialog: Dialog) -> Request:
    """Return the ACK for a 2xx, with the credentials of its INVITE (RFC 3261 13.2.2.4, 22.1)."""
    ack = dialog.ack(invite.cseq.number)
    for name in ("Authorization", "Proxy-Authorization"):
        for value in invite.headers_all(name):
            ack = ack.with_header(name, value)
    return ack
