"""Keeps our binding at the registrar alive and at the current address (RFC 3261 10.2, SPEC D-02 to D-05, D-12).

One REGISTER is under way at a time, except after a move: the old one has an address that is gone, so its response,
which RFC 3261 10.2 says to wait for, cannot arrive. The registrar distinguishes them by CSeq.
"""

from __future__ import annotations

from typing import Final

from wanderbus.errors import SIPParseError
from wanderbus.machine import CancelTimer, RandomSource, SetTimer
from wanderbus.mobility.composer import Composer
from wanderbus.mobility.flow import Recovery
from wanderbus.mobility.messages import Effect, Registered, RegistrationFailed, Unregistered
from wanderbus.sip.authentication.digest_client import CHALLENGE_STATUSES, Challenges
from wanderbus.sip.message.message import Response
from wanderbus.sip.transaction.transaction_layer import ForgetTransaction, SendRequest

TRANSACTION_PREFIX: Final = "register-"
"""Prefix of the names of our transactions."""

REFRESH_FRACTION: Final = 1 / 3
"""Part of its lifetime after which a registration is refreshed (SPEC D-03, X10)."""

RETRY_S_MIN: Final = 0.5
RETRY_S_MAX: Final = 8.0
"""Pauses between attempts after a failure, in seconds: doubled from the first to the second."""

REFUSED_AGAIN_S: Final = 120.0
"""Pause after the registrar refuses a user whom it has accepted before, in seconds."""

REFRESH_S_MIN: Final = 5.0
"""Shortest interval of refreshes, in seconds, unless we requested such a short registration ourselves."""

LIFETIME_S_MAX: Final = 86_400
"""The longest lifetime that a registrar may require, in seconds."""

LENGTHENED_MAX: Final = 4
"""Largest number of increases of the lifetime in a row because the registrar requires it."""

_TIMER: Final = "register"
_CREDENTIALS_REFUSED: Final = (401, 403, 404, 407)


class RegistrationManager:
    """One binding of one user. Its methods return inputs for the transaction layer, timers and reports."""

    def __init__(self, composer: Composer, challenges: Challenges, random: RandomSource) -> None:
        self._composer = composer
        self._challenges = challenges
        self._call_id = composer.fresh_call_id()
        self._tag = composer.fresh_tag()
        self._cseq = 0
        self._sent = 0
        self._transaction: str | None = None
        self._asked_s = composer.properties.register_expires_s
        self._pause_s = RETRY_S_MIN
        self._challenged = 0
        self._lengthened = 0
        self._granted_before = False
        self._wanted = False
        self._started = False
        self._recovery = Recovery(random)
        self._recovering = False

    def start(self, now: float) -> list[Effect]:
        """Register and stay registered until :meth:`stop`."""
        self._wanted = self._started = True
        return self._afresh(now)

    def stop(self, now: float) -> list[Effect]:
        """Remove the binding (RFC 3261 10.2.2); ignored if we never registered."""
        if not self._started:
            return [Unregistered()]
        self._wanted = self._started = False
        return self._afresh(now)

    def address_changed(self, now: float) -> list[Effect]:
        """Register the new address without waiting for any response (SPEC D-08 step 1, X12)."""
        self._recovery.forget()
        return self._afresh(now) if self._wanted else []

    def flow_failed(self, now: float, reason: str) -> list[Effect]:
        """Register again after a pause (RFC 5626 4.5); pending requests are lost. One failure may be reported many
        times.
        """
        if not self._wanted or self._recovering:
            return []
        self._recovering = True
        lost: list[Effect] = []
        if self._transaction is not None:
            lost = [ForgetTransaction(self._transaction), RegistrationFailed(None, reason)]
        self._transaction = None
        return [*lost, SetTimer(_TIMER, now + self._recovery.pause_s(now))]

    def timer_fired(self, now: float) -> list[Effect]:
        """Refresh, or retry after a pause."""
        return self._send() if self._wanted and self._transaction is None else []

    def responded(self, transaction: str, response: Response, now: float) -> list[Effect]:
        """Handle the response to a REGISTER; that to a superseded one is ignored."""
        if transaction != self._transaction or response.status < 200:
            return []
        if response.status in CHALLENGE_STATUSES and self._challenges.worth_retrying(response, self._challenged):
            self._challenged += 1
            return self._send()
        self._transaction = None
        if not self._wanted:
            return [Unregistered()]
        if response.status < 300:
            return self._granted(response, now)
        if response.status == 423 and self._lengthen(response):
            return self._send()
        return self._refused(response.status, response.reason, now)

    def timed_out(self, transaction: str, now: float) -> list[Effect]:
        """Handle the timeout of a REGISTER."""
        if transaction != self._transaction:
            return []
        self._transaction = None
        return self._refused(None, "the registrar does not respond", now) if self._wanted else [Unregistered()]

    def _afresh(self, now: float) -> list[Effect]:
        self._pause_s = RETRY_S_MIN
        self._challenged = 0
        overtaken: list[Effect] = [] if self._transaction is None else [ForgetTransaction(self._transaction)]
        return [*overtaken, CancelTimer(_TIMER), *self._send()]

    def _send(self) -> list[Effect]:
        self._recovering = False
        self._cseq += 1
        self._sent += 1
        self._transaction = f"{TRANSACTION_PREFIX}{self._sent}"
        expires_s = self._asked_s if self._wanted else 0
        request = self._composer.register(self._call_id, self._tag, self._cseq, expires_s)
        request = self._challenges.answered_ahead(request)
        return [SendRequest(self._transaction, request, self._composer.properties.server_target)]

    def _granted(self, response: Response, now: float) -> list[Effect]:
        self._pause_s = RETRY_S_MIN
        self._challenged = self._lengthened = 0
        self._granted_before = True
        self._recovery.formed(now)
        granted_s = self._granted_s(response)
        least_s = min(REFRESH_S_MIN, self._asked_s * REFRESH_FRACTION)
        return [SetTimer(_TIMER, now + max(granted_s * REFRESH_FRACTION, least_s)), Registered(granted_s)]

    def _granted_s(self, response: Response) -> float:
        """Return the lifetime that the registrar granted our contact, in seconds, at most ours (RFC 3261 10.2.4)."""
        try:
            for contact in response.contacts:
                text = contact.param("expires") or ""
                if str(contact.uri) == self._composer.contact_uri and text.isascii() and text.isdigit():
                    return min(max(float(text[:10]), 1.0), float(self._asked_s))
            expires_s = response.expires
        except SIPParseError:
            expires_s = None
        return min(max(float(self._asked_s if expires_s is None else expires_s), 1.0), float(self._asked_s))

    def _lengthen(self, response: Response) -> bool:
        """Adopt the registrar's shortest lifetime (RFC 3261 10.2.8); False if it is not longer, or too long."""
        text = (response.header("Min-Expires") or "").strip()
        if not (text.isascii() and text.isdigit() and len(text) <= 10) or self._lengthened >= LENGTHENED_MAX:
            return False
        if not self._asked_s < int(text) <= LIFETIME_S_MAX:
            return False
        self._asked_s = int(text)
        self._lengthened += 1
        return True

    def _refused(self, status: int | None, reason: str, now: float) -> list[Effect]:
        report = RegistrationFailed(status, reason)
        if status in _CREDENTIALS_REFUSED:
            return [SetTimer(_TIMER, now + REFUSED_AGAIN_S), report] if self._granted_before else [report]
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, RETRY_S_MAX)
        return [SetTimer(_TIMER, now + pause_s), report]
