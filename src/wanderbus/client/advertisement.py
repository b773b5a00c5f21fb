"""Result of ``agent.advertise``: a declaration of the events that a publisher will send (SPEC A-17)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Generator
from types import TracebackType
from typing import Final, Self

from wanderbus import protocol
from wanderbus.client.requests import Requests
from wanderbus.completion import public_names
from wanderbus.errors import Closed, LocalProtocolError, Unreachable, WanderbusError

_log = logging.getLogger("wanderbus.agent")

LEAVE_S: Final = 2.0
"""Timeout of leaving the block, while the broker ends the advertisement."""


class Advertisement:
    """A declaration of the events that this device will publish: those that a subscription of this form would match.

    The block is entered once the declaration is durable at the broker and counts: an event that matches it, and is
    published from then on, reaches everybody who wants it. Leaving the block withdraws it, unless it was made with
    ``keep=True``: then it continues, and the same ``advertise`` finds it again. Without a block, ``await`` makes it,
    and :meth:`withdraw` or closing the agent ends it.

    A subject and filter that were advertised several times are withdrawn with the last of these advertisements.
    """

    def __init__(self, advertising: Advertising, subject: str, expression: str, language: str, *, keep: bool) -> None:
        self._advertising = advertising
        self._content = subject, expression, language
        self._keep = keep
        self._is_open = False

    def __repr__(self) -> str:
        subject, expression, _ = self._content
        return f"<Advertisement of {subject!r} where {expression!r}, {'open' if self._is_open else 'not open'}>"

    def __dir__(self) -> list[str]:
        return public_names(self)

    @property
    def subject(self) -> str:
        """Return the subject of the events; ``*`` for every subject."""
        return self._content[0]

    @property
    def expression(self) -> str:
        """Return the filter of the events."""
        return self._content[1]

    def __await__(self) -> Generator[None, None, Self]:
        """Advertise without a block: ``advertisement = await agent.advertise(...)``."""
        return self._open_unblocked().__await__()

    async def __aenter__(self) -> Self:
        if self._is_open:
            raise LocalProtocolError("this advertisement is already open; call advertise again for another one")
        await self._advertising.begin(self._content, keep=self._keep)
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._keep:
            await self._end()

    async def withdraw(self) -> None:
        """End the advertisement, also a kept one; does nothing if it is not open."""
        await self._end()

    async def _open_unblocked(self) -> Self:
        await self.__aenter__()
        if not self._keep:
            self._advertising.unblocked[self] = None
        return self

    async def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._advertising.unblocked.pop(self, None)
            await self._advertising.end(self._content)


class Advertising:
    """Open advertisements of one agent."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._open: Counter[tuple[str, str, str]] = Counter()
        """Number of open advertisements of each content."""
        self.unblocked: dict[Advertisement, None] = {}
        """Advertisements made without a block, which closing the agent withdraws."""

    async def begin(self, content: tuple[str, str, str], *, keep: bool) -> None:
        """Advertise; return when it counts."""
        answered = self._requests.begin(protocol.Advertise(self._requests.next_request(), *content))
        self._open[content] += 1
        try:
            await asyncio.shield(answered)
        except BaseException:
            self._open[content] -= 1
            if not answered.done() and not keep and not self._open[content]:
                with contextlib.suppress(WanderbusError):
                    self._requests.begin(self._withdrawal(content)).cancel()
            raise

    async def end(self, content: tuple[str, str, str]) -> None:
        """Withdraw, unless another open advertisement has the same content."""
        self._open[content] -= 1
        if self._open[content] > 0:
            return
        del self._open[content]
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._requests.ask(self._withdrawal(content))
        except (Closed, Unreachable, TimeoutError):
            _log.warning("the advertisement of %s was not withdrawn: the broker cannot be reached", content[0])

    async def end_unblocked(self, wait_s: float) -> None:
        """Withdraw what was advertised without a block; wait at most ``wait_s``."""
        withdrawing = [asyncio.create_task(each.withdraw()) for each in list(self.unblocked)]
        if withdrawing:
            await asyncio.wait(withdrawing, timeout=wait_s)

    def _withdrawal(self, content: tuple[str, str, str]) -> protocol.Withdraw:
        return protocol.Withdraw(self._requests.next_request(), *content)
