"""Hook for every message of a transaction layer before it is encoded (SPEC C-08)."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from wanderbus.sip.message.message import Message, Request, Response, encode_message
from wanderbus.sip.transaction.answer_size import fitted


class MessageEditor:
    """Passes each message to ``edit``, which returns the message to send; without ``edit`` messages are unchanged.

    ``edit`` must not change the fields that identify transactions. ``refused`` is called with a change that is not
    sent.
    """

    __slots__ = ("edit", "refused")

    def __init__(self) -> None:
        self.edit: Callable[[Message], Message] = lambda message: message
        self.refused: Callable[[Message, str], None] = lambda message, why: None

    def request(self, request: Request) -> Request:
        """Return the request to send."""
        return cast(Request, self.edit(request))

    def response(self, response: Response, bytes_max: int | None) -> bytes | None:
        """Return the response to send, encoded; None if it cannot be reduced to ``bytes_max`` bytes.

        Fields that ``edit`` has changed are kept; if the result is too long, the response is sent without the changes.
        """
        edited = cast(Response, self.edit(response))
        if bytes_max is None:
            return encode_message(edited)
        if edited is response:
            return fitted(response, bytes_max)
        changed = {name for name, _ in {*edited.headers} - {*response.headers}}
        data = fitted(edited, bytes_max, changed)
        if data is not None and (edited.reason == response.reason or edited.reason.encode() in data):
            return data
        self.refused(response, f"the response would be longer than the request of {bytes_max} bytes")
        return fitted(response, bytes_max)
