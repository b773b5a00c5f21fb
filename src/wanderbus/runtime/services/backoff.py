"""Pauses between requests to a service that does not answer."""

from __future__ import annotations

import logging
from typing import Final

_log = logging.getLogger("wanderbus.server")

PAUSE_S_MIN: Final = 0.25
PAUSE_S_MAX: Final = 8.0
"""Shortest and longest pause: each is twice the one before."""


class Backoff:
    """The pauses of a server while ``service`` does not answer; one line is logged when it stops, and when it resumes.

    :param waiting: the first line, such as "events wait for the matching engine"; the reason follows
    """

    def __init__(self, service: str, waiting: str) -> None:
        self._service = service
        self._waiting = waiting
        self._pause_s = 0.0
        self._is_closed = False

    def next_s(self, reason: str) -> float:
        """Return the pause before the next request, after one without an answer for this ``reason``."""
        if not self._pause_s and not self._is_closed:
            _log.warning("%s: %s", self._waiting, reason)
        self._pause_s = min(PAUSE_S_MAX, max(PAUSE_S_MIN, 2 * self._pause_s))
        return self._pause_s

    def reset(self) -> None:
        """Return to the shortest pause, after an answer."""
        if self._pause_s:
            _log.warning("%s answers again", self._service)
        self._pause_s = 0.0

    def close(self) -> None:
        """Log no failure from now on: the server itself ends the connection."""
        self._is_closed = True
