"""Wait for an answer of the server: with a note when it takes long and one when it is over, and a limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from wanderbus.errors import WanderbusError

Returned = TypeVar("Returned")

NOTICE_S: Final = 1.0
"""Time without an answer after which the application hears of it."""


class NoAnswer(WanderbusError):
    """The server is connected, but has not answered within the limit."""


class AnswerWait:
    """Notes and limit of the waits of one application.

    :param note: gets a word for programs, ``waiting`` or ``answered``, and a line for people
    :param limit_s: longest time without an answer; None waits without limit
    :param reason: returns why the server does not answer, if it is in the log already; then there is no note
    """

    def __init__(
        self, note: Callable[[str, str], None], limit_s: float | None, reason: Callable[[], str] = lambda: ""
    ) -> None:
        self._note = note
        self._limit_s = limit_s
        self._reason = reason
        self._began = 0.0
        self._checked_s = 0.0
        """Time waited at the last check: a check just before its time is repeated."""
        self._is_noted = False

    async def until(self, answer: asyncio.Future[Returned], what: str) -> Returned:
        """Return the answer to ``what``; :class:`NoAnswer` after the limit, with ``answer`` still pending."""
        self.progressed()
        while not answer.done():
            await asyncio.wait([answer], timeout=self._left_s())
            if not answer.done():
                self.check(what)
        self.progressed()
        return await answer

    async def of(self, request: Coroutine[Any, Any, Returned], what: str) -> Returned:
        """Return what ``request`` returns, as :meth:`until`; the request is cancelled if the wait ends."""
        task = asyncio.create_task(request)
        try:
            return await self.until(task, what)
        finally:
            task.cancel()

    def progressed(self) -> None:
        """Note that the server has answered, if the wait was noted, and begin the next wait."""
        if self._is_noted:
            self._is_noted = False
            self._note("answered", f"the server goes on, after {time.monotonic() - self._began:.0f} s")
        self._began, self._checked_s = time.monotonic(), 0.0

    def check(self, what: str) -> None:
        """Note that the server has not answered ``what`` for a second; :class:`NoAnswer` after the limit."""
        waited_s, reason = time.monotonic() - self._began, self._reason()
        self._checked_s = waited_s
        if self._limit_s is not None and waited_s >= self._limit_s:
            raise NoAnswer(f"the server has not answered {what} within {self._limit_s:g} s{reason and f': {reason}'}")
        if waited_s >= NOTICE_S and not self._is_noted and not reason:
            self._is_noted = True
            self._note("waiting", f"waiting: the server has not answered {what} yet; in a domain, a leader may be down")

    def _left_s(self) -> float | None:
        """Return the time until the next check."""
        bounds = [NOTICE_S] if self._limit_s is None else [NOTICE_S, self._limit_s]
        ends = [each for each in bounds if each > self._checked_s]
        return max(0.0, min(ends) - (time.monotonic() - self._began)) if ends else None
