"""Handlers with which the owner of a user agent changes its messages and replies to requests (SPEC C-08).

There are three handlers for each method. One is called before the user agent serves a request, and may reply instead.
One is called for each request and one for each reply, just before it is encoded. This includes messages of the
transaction layer (100, the response to CANCEL, CANCEL itself, the ACK of a refusal, the refusal of unreadable bytes). A
retransmission repeats the bytes; for a 2xx to INVITE the handler is called each time. Keep-alives are line breaks and
no messages. All are plain functions of the message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from wanderbus.errors import LocalProtocolError, SIPParseError
from wanderbus.sip.message.message import Message, Request, Response, encode_message

RequestHandler = Callable[[Request], Response | None]
"""Receives a request that the user agent would serve; returns the reply to send, None to let it serve."""

ReplyHandler = Callable[[Response], Response]
"""Receives a reply and returns the one to send; called again for each repetition of a 2xx to INVITE."""

OutgoingHandler = Callable[[Request], Request]
"""Receives a request with its Via just before it is sent, and returns the one to send."""

_Handler = TypeVar("_Handler")
_M = TypeVar("_M", Request, Response)

OWNER_TRANSACTION_PREFIX: Final = "owner "
"""Prefix of the names of client transactions that the owner starts itself; their results are reported to it."""

_NEVER_SERVED: Final = ("ACK", "CANCEL")
_NEVER_ANSWERED: Final = ("ACK",)


class RequestHandlers:
    """The handlers of one user agent, by method.

    A forbidden change, or an exception of a handler, is passed to ``on_fault``, and the message is sent unchanged;
    without ``on_fault`` it is raised.
    """

    def __init__(self, on_fault: Callable[[Exception], None] | None = None) -> None:
        self._instead: dict[str, RequestHandler] = {}
        self._alter: dict[str, ReplyHandler] = {}
        self._alter_requests: dict[str, OutgoingHandler] = {}
        self._on_fault = on_fault

    @property
    def served(self) -> tuple[str, ...]:
        """Return the methods for which the owner has a handler."""
        return tuple(self._instead)

    def serve(self, method: str, handler: RequestHandler | None) -> None:
        """Call ``handler`` before serving requests of ``method``; None removes it.

        Its own reply to an INVITE can only refuse: the sessions belong to the user agent. Raises LocalProtocolError for
        ACK, which has no reply, and for CANCEL, whose reply is made before any handler.
        """
        if method in _NEVER_SERVED:
            raise LocalProtocolError(f"a handler cannot reply to {method}: the transaction layer has replied already")
        _put(self._instead, method, handler)

    def alter(self, method: str, handler: ReplyHandler | None) -> None:
        """Call ``handler`` for each reply to requests of ``method``; None removes it.

        Raises LocalProtocolError for ACK, which has no reply.
        """
        if method in _NEVER_ANSWERED:
            raise LocalProtocolError(f"{method} has no reply that a handler could change")
        _put(self._alter, method, handler)

    def alter_requests(self, method: str, handler: OutgoingHandler | None) -> None:
        """Call ``handler`` for each request of ``method`` before it is sent; None removes it."""
        _put(self._alter_requests, method, handler)

    def instead(self, request: Request) -> Response | None:
        """Return the owner's reply to ``request``, None if the user agent is to serve it."""
        handler = self._instead.get(request.method)
        if handler is None:
            return None
        try:
            reply = handler(request)
            if reply is None:
                return None
            encode_message(reply)
            if request.method == "INVITE" and reply.status < 300:
                raise LocalProtocolError(
                    f"a handler may not answer INVITE with {reply.status}: the user agent owns sessions; "
                    "refuse it (300 to 699), or return None and change the reply"
                )
        except Exception as fault:
            self._report(fault)
            return None
        return reply

    def edited(self, message: Message) -> Message:
        """Return ``message`` as changed by the owner."""
        if isinstance(message, Request):
            handler = self._alter_requests.get(message.method)
            return message if handler is None else self._changed(message, handler)
        replying = self._alter.get(_method_of(message)) if self._alter else None
        return message if replying is None else self._changed(message, replying)

    def refused(self, message: Message, why: str) -> None:
        """Report that a change of ``message`` cannot be sent."""
        self._report(LocalProtocolError(f"a handler may not change {_name_of(message)} this way: {why}"))

    def _changed(self, message: _M, handler: Callable[[_M], _M]) -> _M:
        try:
            changed = handler(message)
            if what := unchangeable(message, changed):
                raise LocalProtocolError(f"a handler may not change {what} of {_name_of(message)}")
            encode_message(changed)
        except Exception as fault:
            self._report(fault)
            return message
        return changed

    def _report(self, fault: Exception) -> None:
        if self._on_fault is None:
            raise fault
        self._on_fault(fault)


def unchangeable(before: Message, after: Message) -> str | None:
    """Return the name of a part of the message that was changed but must not be; None if there is none.

    Transactions and dialogs are identified by these parts, on both sides (RFC 3261 12.2, 17.1.3, 17.2.3), and by
    whether a response is final and a success.
    """
    if isinstance(before, Request) or isinstance(after, Request):
        if not (isinstance(before, Request) and isinstance(after, Request) and before.method == after.method):
            return "the method"
    elif (before.status >= 200, before.status < 300) != (after.status >= 200, after.status < 300):
        return f"the outcome ({before.status} to {after.status})"
    for name in ("Via", "Call-ID", "CSeq"):
        if _values(before, name) != _values(after, name):
            return name
    for name in ("From", "To"):
        if _tag(before, name) != _tag(after, name):
            return f"the tag of {name}"
    return None


def _values(message: Message, name: str) -> list[str]:
    return [value for key, value in message.headers if key == name]


def _tag(message: Message, name: str) -> str | None:
    try:
        return message.from_.tag if name == "From" else message.to.tag
    except SIPParseError:
        return message.header(name)


def _method_of(response: Response) -> str:
    try:
        return response.cseq.method
    except SIPParseError:
        return ""


def _name_of(message: Message) -> str:
    return message.method if isinstance(message, Request) else f"{message.status} to {_method_of(message)}"


def _put(handlers: dict[str, _Handler], method: str, handler: _Handler | None) -> None:
    if handler is None:
        handlers.pop(method, None)
    else:
        handlers[method] = handler
