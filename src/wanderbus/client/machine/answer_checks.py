"""Answers of the broker to requests: whether they are of the kind that was asked for, and how much one may hold.

A program takes an answer apart as it asked for it. One of another kind, or without an end, is no message: the agent
ends the connection, as for bytes that mean nothing.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from wanderbus import protocol
from wanderbus.errors import RemoteProtocolError

ANSWER_BYTES_MAX: Final = 128 * 2**20
"""Bytes of one answer, over all its parts: twice what a session of 1,100 subscriptions can take."""

Answer = protocol.Done | protocol.Listing

_OF_ONE: Final = (protocol.Subscribe, protocol.Renew, protocol.Restrict)
"""Requests that are answered with the one subscription that they make or change."""


class Question(msgspec.Struct):
    """One request that waits for its answer, and the parts of it that have come on this connection."""

    message: protocol.OfSubscriptions | protocol.OfOperators | protocol.Leave
    payload: bytes
    items: list[Any] = msgspec.field(default_factory=list)
    answered_bytes: int = 0

    def forget_parts(self) -> None:
        """Forget all questions, as on another connection."""
        self.items, self.answered_bytes = [], 0

    def whole(self, answer: Answer, size: int) -> tuple[Any, ...] | None:
        """Return all items of the answer once its last part, of ``size`` bytes, is here; None before.

        Raises :class:`RemoteProtocolError` for an answer to another kind of question, and for one that has no end.
        """
        if isinstance(answer, protocol.Listing) is not isinstance(self.message, protocol.OfOperators):
            raise RemoteProtocolError(f"the broker answered a request with {_kind(answer)}", None)
        self.answered_bytes += size
        if self.answered_bytes > ANSWER_BYTES_MAX:
            raise RemoteProtocolError(f"the broker's answer has more than {ANSWER_BYTES_MAX} bytes", None)
        self.items += answer.rows if isinstance(answer, protocol.Listing) else answer.subscriptions
        if answer.more:
            return None
        if isinstance(self.message, _OF_ONE) and len(self.items) != 1:
            raise RemoteProtocolError(
                f"the broker answered with {len(self.items)} subscriptions where one was due", None
            )
        return tuple(self.items)


def _kind(answer: Answer) -> str:
    return "a listing" if isinstance(answer, protocol.Listing) else "subscriptions"
