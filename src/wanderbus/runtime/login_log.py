"""Refused logins in the log of a server: a line for each user and source now and then, however many there are."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from wanderbus.sip.registrar import LoginRefused

_log = logging.getLogger("wanderbus.sip")

QUIET_S: Final = 60.0
"""For so long a user is not logged again from the same source, and further lines of all others are counted only."""

LINES_MAX: Final = 20
"""Lines in that time."""


class LoginLog:
    """Logs refused logins, without anything that was given as a proof."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._suppressed = 0

    def refused(self, login: LoginRefused) -> None:
        """Take note of a refused login."""
        now, who = self._clock(), (login.user, login.source)
        while self._logged and next(iter(self._logged.values())) <= now - QUIET_S:
            self._logged.popitem(last=False)
        if who in self._logged or len(self._logged) >= LINES_MAX:
            self._suppressed += 1
            return
        self._logged[who] = now
        more = f"; {self._suppressed} more were refused meanwhile" if self._suppressed else ""
        self._suppressed = 0
        _log.warning("login of %s from %s refused: %s%s", login.user, login.source, login.reason, more)
