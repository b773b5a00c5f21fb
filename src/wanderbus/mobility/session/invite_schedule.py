"""Timeouts, numbers of attempts and pauses of our INVITEs (RFC 3261 14.1, 17.1.1.2)."""

from __future__ import annotations

from typing import Final

from wanderbus.machine import RandomSource
from wanderbus.mobility.session.call import Call, OutgoingInvite
from wanderbus.sip.transaction.transaction_layer import BaseTimers

INVITE_ATTEMPTS_MAX: Final = 5
"""Attempts of a first INVITE: if it is hurried, or while there is no connection to send it over."""

REINVITE_ATTEMPTS_MAX: Final = 8
"""Attempts of a re-INVITE that is hurried or temporarily refused: 54 s without a response with the default T1."""

SILENT_ATTEMPTS_MAX: Final = 2
"""Attempts of a re-INVITE without hurry that get no response, 64*T1 each: direct, and through the proxy."""

SILENCE_T1_MIN: Final = 4
SILENCE_T1_MAX: Final = 16
"""Timeout of a hurried attempt, in T1: doubled from the first (three transmissions) to the second."""

PROVISIONAL_T1: Final = 8
"""Timeout of a hurried attempt after a 100, in T1: the next hop is alive, but its final response may be lost."""

PATIENCE_S: Final = 180.0
"""Timeout after a provisional response, in seconds: a phone may ring for minutes (RFC 3261 16.6: timer C)."""

PAUSE_S_MIN: Final = 0.5
PAUSE_S_MAX: Final = 4.0
"""Pauses after a re-INVITE was temporarily refused, in seconds: doubled from the first to the second."""

_OWNER_GLARE_S: Final = (2.1, 4.0)
_OTHER_GLARE_S: Final = (0.0, 2.0)
"""Pauses after a 491, for the owner of the Call-ID and the peer, in seconds (RFC 3261 14.1)."""


class InviteSchedule:
    """The times of one user agent's INVITEs."""

    def __init__(self, random: RandomSource, timers: BaseTimers) -> None:
        self._random = random
        self._timers = timers

    @property
    def repeats_s(self) -> float:
        """Return the time for which the peer repeats its 2xx."""
        return self._timers.timeout_s

    def is_exhausted(self, call: Call, outgoing: OutgoingInvite) -> bool:
        """Return whether no further attempt should be made."""
        attempts_max = REINVITE_ATTEMPTS_MAX if call.established else INVITE_ATTEMPTS_MAX
        given_up = outgoing.silences >= SILENT_ATTEMPTS_MAX and not outgoing.hurried
        return given_up or outgoing.attempt >= attempts_max

    def silence_s(self, call: Call, outgoing: OutgoingInvite) -> float:
        """Return the timeout of a hurried attempt.

        The two sides differ by one T1, so that after both moved, they do not turn to the proxy at the same time.
        """
        silence_t1 = min(SILENCE_T1_MIN << (outgoing.attempt - 1), SILENCE_T1_MAX)
        return self._timers.t1_s * (silence_t1 if call.session.created_here else silence_t1 + 1)

    def patience_s(self, call: Call, outgoing: OutgoingInvite, status: int) -> float:
        """Return the timeout after a provisional response."""
        if status > 100 or not outgoing.hurried:
            return PATIENCE_S
        return max(self._timers.t1_s * PROVISIONAL_T1, self.silence_s(call, outgoing))

    def pause_s(self, failures: int) -> float:
        """Return the pause after the ``failures``th temporary refusal of the re-INVITE."""
        return min(PAUSE_S_MIN * 2.0 ** (failures - 1), PAUSE_S_MAX)

    def glare_s(self, call: Call) -> float:
        """Return the pause after a 491."""
        return self._random.uniform(*(_OWNER_GLARE_S if call.session.created_here else _OTHER_GLARE_S))
