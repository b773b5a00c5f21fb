"""Refused logins in the log of a server: for each user and source the first, and each that doubles their number.

No more than a few lines a minute are written, however many users and sources there are.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from wanderbus.sip.login_guard import LoginRefused

_log = logging.getLogger("wanderbus.sip")

QUIET_S: Final = 60.0
"""The time that the bound on lines is for; the same line is not repeated in it."""

LINES_MAX: Final = 20
"""Lines in that time."""


class LoginLog:
    """Logs refused logins, without anything that was given as a proof."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged: OrderedDict[tuple[str, str, int], float] = OrderedDict()
        self._suppressed = 0

    def refused(self, login: LoginRefused) -> None:
        """Take note of a refused login."""
        now, line = self._clock(), (login.user, login.source, login.count)
        while self._logged and next(iter(self._logged.values())) <= now - QUIET_S:
            self._logged.popitem(last=False)
        doubled = login.count & (login.count - 1) == 0
        if not doubled or line in self._logged or len(self._logged) >= LINES_MAX:
            self._suppressed += 1
            return
        self._logged[line] = now
        times = f", {login.count} times so far" if login.count > 1 else ""
        more = f"; {self._suppressed} more were refused meanwhile" if self._suppressed else ""
        self._suppressed = 0
        _log.warning("login of %s from %s refused: %s%s%s", login.user, login.source, login.reason, times, more)
