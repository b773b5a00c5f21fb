"""Requests to the broker, each with a future of its response."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from wanderbus import protocol
from wanderbus.client.error_mapping import request_error, unanswered
from wanderbus.client.machine.messages import Acknowledge, AskBroker, EndReading, ReadTogether, RequestSettled
from wanderbus.errors import Closed, LimitExceeded, LocalProtocolError, RemoteProtocolError, WanderbusError
from wanderbus.event import Position
from wanderbus.limits import MESSAGE_BYTES_MAX
from wanderbus.machine import Input
from wanderbus.subscription import Subscription, instant_us


class Requests:
    """Requests of one agent: numbered, passed to its machine by ``feed``, each with a response to its caller.

    ``feed`` raises :class:`Closed` while the agent is not open.
    """

    def __init__(self, feed: Callable[[Input], None]) -> None:
        self._feed = feed
        self._last = 0
        self._open: dict[int, tuple[asyncio.Future[RequestSettled], Sequence[str]]] = {}
        """Future of each open request by number, and the expression and language of its filter."""

    def next_request(self) -> int:
        """Return the number of the next request."""
        self._last += 1
        return self._last

    async def ask(self, request: Any) -> Sequence[Subscription]:
        """Send one request and return the subscriptions in its response."""
        return (await self.begin(request)).subscriptions

    def begin(self, request: Any, *, reads: bool = False) -> asyncio.Future[RequestSettled]:
        """Send one request; return a future of its response. Raise the errors of :func:`check_message`.

        With ``reads``, the subscription that it creates is read at once.
        """
        answered = self._open_one(request)
        try:
            self._feed(AskBroker(request, reads))
        except WanderbusError:
            del self._open[request.request]
            raise
        return answered

    def read_together(self, subscriptions: tuple[str, ...]) -> None:
        """Read these subscriptions as one stream in the order of their numbers."""
        self._feed(ReadTogether(subscriptions))

    def stop_reading(self, subscription: str) -> None:
        """Notify the broker that this agent no longer reads a subscription; does nothing once the agent is closed."""
        with contextlib.suppress(Closed):
            self._feed(EndReading(subscription))

    def acknowledge(self, subscription: str, position: Position) -> None:
        """Acknowledge the notifications of a subscription up to ``position``; does nothing once the agent is closed."""
        with contextlib.suppress(Closed):
            self._feed(Acknowledge(subscription, position))

    def _open_one(self, request: Any) -> asyncio.Future[RequestSettled]:
        check_message(request)
        answered: asyncio.Future[RequestSettled] = asyncio.get_running_loop().create_future()
        self._open[request.request] = answered, _expression_of(request)
        return answered

    def settle(self, settled: RequestSettled, broker: str) -> None:
        """Pass a response of ``broker`` to the call that waits for it."""
        answered, expression = self._open.pop(settled.request)
        if answered.done():
            return
        if settled.refusal is None:
            answered.set_result(settled)
        elif not settled.answered:
            answered.set_exception(unanswered(broker, settled.refusal.reason))
        else:
            answered.set_exception(request_error(settled.refusal, *expression))

    def close(self, reason: WanderbusError) -> None:
        """Fail all pending calls with ``reason``."""
        for answered, _ in self._open.values():
            if not answered.done():
                answered.set_exception(reason)
                answered.exception()
        self._open.clear()


def _expression_of(request: Any) -> Sequence[str]:
    with_filter = isinstance(request, protocol.Subscribe | protocol.Advertise)
    return (request.expression, request.language) if with_filter else ("",)


def check_message(message: protocol.AgentMessage) -> None:
    """Raise :class:`LocalProtocolError` if ``message`` is invalid, :class:`LimitExceeded` if it is too large."""
    try:
        payload = protocol.encode(message)
        protocol.decode_from_agent(payload)
    except (TypeError, ValueError, OverflowError) as error:
        raise LocalProtocolError(f"the request cannot be encoded: {error}") from None
    except RemoteProtocolError as error:
        raise LocalProtocolError(f"the broker would refuse the request: {error}") from None
    if (size := len(payload)) > MESSAGE_BYTES_MAX:
        raise LimitExceeded(f"the message has {size} bytes; the limit is {MESSAGE_BYTES_MAX}", "message_bytes_max")


def until_us(until: datetime | None) -> int | None:
    """Return an instant in µs since the Unix epoch, None for none."""
    return None if until is None else instant_us(until)


def retrieved(attached: asyncio.Future[RequestSettled]) -> None:
    """Mark the error of the attachment as retrieved: with ``offline`` the application may never await it."""
    if not attached.cancelled():
        attached.exception()
