"""What the owner of a user agent may say about its replies, and requests of its own (SPEC C-08).

Two handlers for each method: one is asked before the user agent serves a request and may reply in its stead; the
other sees each reply just before it is sent and may change it. Both are plain functions of the message. What the
transaction layer says by itself (100, the answer to CANCEL, the refusal of unreadable bytes) does not pass here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from wanderbus.machine import Input
from wanderbus.sip.message import Request, Response
from wanderbus.sip.transactions import Respond

RequestHandler = Callable[[Request], Response | None]
"""Takes a request that the user agent would serve; returns the reply to send, None to let it serve."""

ReplyHandler = Callable[[Response], Response]
"""Takes a reply and returns the one to send; asked again for each repetition of a 200 to INVITE."""

_Handler = TypeVar("_Handler")

OWNER_TRANSACTION_PREFIX: Final = "owner "
"""How the names of client transactions begin that the owner starts itself; what becomes of them is reported to it."""


class Replies:
    """The handlers of one user agent, by method. They do not raise."""

    def __init__(self) -> None:
        self._instead: dict[str, RequestHandler] = {}
        self._alter: dict[str, ReplyHandler] = {}

    @property
    def served(self) -> tuple[str, ...]:
        """Return the methods that the owner has a handler for."""
        return tuple(self._instead)

    def serve(self, method: str, handler: RequestHandler | None) -> None:
        """Ask ``handler`` before serving requests of ``method``; None removes it.

        A reply of its own to an INVITE can only refuse: the sessions are the user agent's.
        """
        _put(self._instead, method, handler)

    def alter(self, method: str, handler: ReplyHandler | None) -> None:
        """Show ``handler`` each reply to requests of ``method``; None removes it.

        A reply that would mean another outcome is sent unchanged: the user agent has acted on its own.
        """
        _put(self._alter, method, handler)

    def instead(self, request: Request) -> Response | None:
        """Return the owner's reply to ``request``, None if the user agent is to serve it."""
        handler = self._instead.get(request.method)
        reply = None if handler is None else handler(request)
        return None if reply is not None and request.method == "INVITE" and reply.status < 300 else reply

    def altered(self, effect: Input) -> Input:
        """Return ``effect`` with the reply in it as the owner wants it."""
        if not self._alter or not isinstance(effect, Respond):
            return effect
        handler = self._alter.get(effect.response.cseq.method)
        if handler is None:
            return effect
        reply = handler(effect.response)
        return Respond(effect.transaction, reply) if _outcome(reply) == _outcome(effect.response) else effect


def _put(handlers: dict[str, _Handler], method: str, handler: _Handler | None) -> None:
    if handler is None:
        handlers.pop(method, None)
    else:
        handlers[method] = handler


def _outcome(reply: Response) -> tuple[bool, bool]:
    """Whether the reply is final, and whether it accepts."""
    return reply.status >= 200, reply.status < 300
