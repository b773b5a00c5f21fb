"""Refreshes a session that has an interval, and ends one that was not refreshed (RFC 4028 7.2, 7.4, 10).

The refresher acts at half the interval: by UPDATE without offer if the peer supports that, else by re-INVITE. Every 2xx
to an INVITE or UPDATE restarts the interval (:meth:`.calls.Calls.keep_time`), so an update of the owner is a refresh
too. A refresh without a response is repeated while the interval lasts: the peer may be between two networks. When the
interval ends, the session ends with BYE.
"""

from __future__ import annotations

from typing import Final

from wanderbus.machine import SetTimer
from wanderbus.mobility.composer import Composer, takes_update
from wanderbus.mobility.messages import Effect, UpdateFailed
from wanderbus.mobility.session import session_timers
from wanderbus.mobility.session.bye import ByeExchange
from wanderbus.mobility.session.call import Call, Refresh
from wanderbus.mobility.session.calls import REFRESH_TIMER, Calls
from wanderbus.mobility.session.uac_invite import INTERVALS_MAX, UacInvites
from wanderbus.sip.authentication.digest_client import CHALLENGE_STATUSES, Challenges
from wanderbus.sip.message.dialog import contact_uri, reachable
from wanderbus.sip.message.message import Response
from wanderbus.sip.transaction.transaction_layer import ForgetTransaction, SendRequest

REFRESH_KIND: Final = "refresh"
"""Prefix of the names of our transactions."""

AGAIN_S: Final = 5.0
"""Pause before a refresh is repeated that failed temporarily, or met another exchange, in seconds."""

_NO_UPDATE: Final = (405, 501)
_GONE: Final = (481, 408)
"""Statuses that end a dialog (RFC 3261 12.2.1.2)."""


class SessionRefresher:
    """The session timers of every call."""

    def __init__(
        self, composer: Composer, calls: Calls, challenges: Challenges, uac: UacInvites, bye: ByeExchange
    ) -> None:
        self._composer = composer
        self._calls = calls
        self._challenges = challenges
        self._uac = uac
        self._bye = bye

    def due(self, call: Call, now: float) -> list[Effect]:
        """Refresh, unless an exchange is open that may refresh too: then check again."""
        media = call.session.local_media
        if call.session.timer is None or call.pending_bye is not None or media is None:
            return []
        if call.exchanging or call.outgoing is not None:
            return [self._again(call, now)]
        if not call.session.peer_updatable:
            return [*self._uac.begin(call, media, now), self._again(call, now)]
        forgotten: list[Effect] = [] if call.refresh is None else [ForgetTransaction(call.refresh.transaction)]
        call.refresh = Refresh("")
        return [*forgotten, self._send(call, call.refresh)]

    def expired(self, call: Call) -> list[Effect]:
        """End the session with BYE (RFC 4028 10)."""
        if call.session.timer is None or call.pending_bye is not None:
            return []
        return self._bye.begin(call, "the session expired")

    def moved(self, call: Call, now: float) -> list[Effect]:
        """Repeat a pending refresh from our new address."""
        return [] if call.refresh is None or call.pending_bye is not None else self.due(call, now)

    def responded(self, call: Call, transaction: str, response: Response, now: float) -> list[Effect]:
        """Handle the response to our UPDATE; SIPParseError if it is unusable."""
        refresh = call.refresh
        if (
            refresh is None
            or refresh.transaction != transaction
            or response.status < 200
            or call.pending_bye is not None
        ):
            return []
        if response.status < 300:
            return self._refreshed(call, response, now)
        if self._worth_repeating(call, refresh, response):
            return [self._send(call, refresh)]
        call.refresh = None
        if call.outgoing is not None:
            return []
        if response.status in _GONE:
            return self._calls.end(call, UpdateFailed(call.session.id, response.status, response.reason))
        if response.status in _NO_UPDATE:
            self._calls.change(call, peer_updatable=False)
            return self.due(call, now)
        return [self._again(call, now)]

    def timed_out(self, call: Call, transaction: str, now: float) -> list[Effect]:
        """Retry soon: the session interval still lasts."""
        if call.refresh is None or call.refresh.transaction != transaction:
            return []
        call.refresh = None
        return [self._again(call, now)]

    def _refreshed(self, call: Call, response: Response, now: float) -> list[Effect]:
        assert call.session.dialog is not None
        call.refresh = None
        dialog = call.session.dialog
        if response.contact is not None:
            dialog = dialog.retargeted(contact_uri(response))
            reachable(dialog)
        updatable = takes_update(response, call.session.peer_updatable)
        self._calls.change(call, dialog=dialog, peer_updatable=updatable)
        return self._calls.keep_time(call, session_timers.agreed(response), now)

    def _worth_repeating(self, call: Call, refresh: Refresh, response: Response) -> bool:
        """Return whether to repeat, with credentials for a challenge or the longer interval of a 422 (RFC 4028 7.4)."""
        if response.status in CHALLENGE_STATUSES:
            refresh.challenges += 1
            return self._challenges.worth_retrying(response, refresh.challenges - 1)
        if response.status != session_timers.TOO_SMALL or refresh.intervals >= INTERVALS_MAX:
            return False
        refresh.intervals += 1
        least_s = session_timers.least_in(response)
        longer = least_s > call.session.min_se_s
        self._calls.change(call, min_se_s=max(least_s, call.session.min_se_s))
        return longer

    def _send(self, call: Call, refresh: Refresh) -> Effect:
        assert call.session.dialog is not None
        dialog, request = call.session.dialog.next_request("UPDATE")
        self._calls.change(call, dialog=dialog)
        request = self._challenges.answered_ahead(self._composer.refreshing(request, call.session))
        refresh.transaction = self._calls.transaction_name(REFRESH_KIND, call.session.id)
        return SendRequest(refresh.transaction, request, reachable(dialog))

    def _again(self, call: Call, now: float) -> Effect:
        return SetTimer((call.session.id, REFRESH_TIMER), now + AGAIN_S)
