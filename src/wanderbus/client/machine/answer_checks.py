"""Checks of the broker's responses: the kind has to match the request, and the size is bounded.

The application relies on the kind of the response. The agent closes the connection on a response of another kind or
without an end, as on a malformed message.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from wanderbus import protocol
from wanderbus.errors import RemoteProtocolError

ANSWER_BYTES_MAX: Final = 128 * 2**20
"""Most bytes of one response, over all its parts: twice the size of a session of 1,100 subscriptions."""

Answer = protocol.Done | protocol.Listing

_OF_ONE: Final = (protocol.Subscribe, protocol.Renew, protocol.Restrict)
"""Requests whose response is the one subscription that they make or change."""


class Question(msgspec.Struct):
    """One open request, and the parts of its response that arrived on this connection."""

    message: protocol.AgentRequest
    payload: bytes
    items: list[Any] = msgspec.field(default_factory=list)
    answered_bytes: int = 0

    def forget_parts(self) -> None:
        """Discard the parts received so far: a new connection begins with the first part."""
        self.items, self.answered_bytes = [], 0

    def whole(self, answer: Answer, size: int) -> tuple[Any, ...] | None:
        """Add a part of ``size`` bytes; return all items if it is the last part, else None.

        Raise :class:`RemoteProtocolError` for a response of another kind, or one that is too large.
        """
        if isinstance(answer, protocol.Listing) is not isinstance(self.message, protocol.ListingRequest):
            raise RemoteProtocolError(f"the broker answered a request with {_kind(answer)}", None)
        self.answered_bytes += size
        if self.answered_bytes > ANSWER_BYTES_MAX:
            raise RemoteProtocolError(f"the broker's response has more than {ANSWER_BYTES_MAX} bytes", None)
        self.items += answer.rows if isinstance(answer, protocol.Listing) else answer.subscriptions
        if answer.more:
            return None
        if isinstance(self.message, _OF_ONE) and len(self.items) != 1:
            raise RemoteProtocolError(f"the broker answered with {len(self.items)} subscriptions instead of one", None)
        return tuple(self.items)


def _kind(answer: Answer) -> str:
    return "a listing" if isinstance(answer, protocol.Listing) else "subscriptions"
