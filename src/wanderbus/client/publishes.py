"""An agent's publishes under way: so many at once, in the order of their calls, and each answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from wanderbus import protocol
from wanderbus.client.error_mapping import publish_error
from wanderbus.client.machine.messages import PublishEvent, PublishSettled
from wanderbus.client.pacing import Turnstile
from wanderbus.client.requests import check_message
from wanderbus.errors import EventError, LimitExceeded, LocalProtocolError, WanderbusError
from wanderbus.event import Event, EventId, check_event
from wanderbus.limits import EVENT_BYTES_MAX

UNSETTLED_MAX: Final = 512
"""Publishes under way at once; further calls wait their turn (below what the broker remembers of a device)."""


class Publishing:
    """Numbers events, and brings each answer to who waits for it."""

    def __init__(self, turnstile: Turnstile, feed: Callable[[PublishEvent], None]) -> None:
        self._turnstile = turnstile
        self._feed = feed
        self._last = 0
        self._open: dict[int, asyncio.Future[EventId]] = {}
        self._slots = asyncio.Semaphore(UNSETTLED_MAX)

    @property
    def unsettled(self) -> int:
        """Return how many publishes are under way without an answer."""
        return len(self._open)

    async def publish(self, event: Event, check: Callable[[], None]) -> EventId:
        """Publish ``event`` when its turn comes; ``check`` raises what forbids that by then."""
        await self._slots.acquire()
        try:
            await self._turnstile.turn()
            check()
        except BaseException:
            self._slots.release()
            raise
        self._last += 1
        settled: asyncio.Future[EventId] = asyncio.get_running_loop().create_future()
        self._open[self._last] = settled
        self._feed(PublishEvent(self._last, event))
        return await settled

    def settle(self, publish: PublishSettled, broker: str) -> None:
        """Bring an answer of ``broker`` to who waits for it."""
        settled = self._open.pop(publish.number)
        self._slots.release()
        if settled.done():
            return
        if publish.id is not None:
            settled.set_result(publish.id)
        else:
            settled.set_exception(publish_error(publish, broker))

    def close(self, reason: WanderbusError) -> None:
        """Let nobody wait any more."""
        for settled in self._open.values():
            self._slots.release()
            if not settled.done():
                settled.set_exception(reason)
                settled.exception()
        self._open.clear()


def checked(event: Event) -> Event:
    """Return ``event`` if it may be published; :class:`EventError` or :class:`LimitExceeded` say why it may not."""
    check_event(event)
    try:
        check_message(protocol.Publish(2**40, event, 2**56))
    except LocalProtocolError as error:
        raise EventError(f"the event cannot be published: {error}") from None
    if (size := protocol.size_of(event)) > EVENT_BYTES_MAX:
        raise LimitExceeded(f"the event takes {size} bytes, {EVENT_BYTES_MAX} is the most", "event_bytes_max")
    return event
