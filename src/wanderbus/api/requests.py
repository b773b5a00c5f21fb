"""Requests to the broker that an answer is waited for."""

from __future__ import annotations

import asyncio
from typing import Any

from wanderbus.agent.messages import RequestSettled
from wanderbus.api.refusals import request_error, unanswered
from wanderbus.broker import protocol
from wanderbus.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError, WanderbusError
from wanderbus.limits import MESSAGE_BYTES_MAX


class Requests:
    """Numbers requests, and brings each answer to who waits for it."""

    def __init__(self) -> None:
        self._last = 0
        self._open: dict[int, tuple[asyncio.Future[RequestSettled], str]] = {}
        """By number; with the expression that is to be matched, if it has one."""

    def number(self) -> int:
        """Return the number of another request."""
        self._last += 1
        return self._last

    def open(self, request: Any) -> asyncio.Future[RequestSettled]:
        """Return the answer to come to ``request``; its errors are those of :func:`check_message`."""
        check_message(request)
        answered: asyncio.Future[RequestSettled] = asyncio.get_running_loop().create_future()
        self._open[request.request] = answered, getattr(request, "expression", "")
        return answered

    def settle(self, settled: RequestSettled, broker: str) -> None:
        """Bring an answer of ``broker`` to who waits for it."""
        answered, expression = self._open.pop(settled.request)
        if answered.done():
            return
        if settled.refusal is None:
            answered.set_result(settled)
        elif not settled.answered:
            answered.set_exception(unanswered(broker, settled.refusal.reason))
        else:
            answered.set_exception(request_error(settled.refusal, expression))

    def close(self, reason: WanderbusError) -> None:
        """Let nobody wait any more."""
        for answered, _ in self._open.values():
            if not answered.done():
                answered.set_exception(reason)
                answered.exception()
        self._open.clear()


def check_message(message: protocol.AgentMessage) -> None:
    """Raise :class:`LocalProtocolError` for what the broker could not read, :class:`LimitExceeded` if too large."""
    try:
        payload = protocol.encode(message)
        protocol.decode_from_agent(payload)
    except (TypeError, ValueError, OverflowError) as error:
        raise LocalProtocolError(f"it cannot be encoded: {error}") from None
    except RemoteProtocolError as error:
        raise LocalProtocolError(f"it would be {error}") from None
    if (size := len(payload)) > MESSAGE_BYTES_MAX:
        raise LimitExceeded(f"the message takes {size} bytes, {MESSAGE_BYTES_MAX} is the most", "message_bytes_max")
