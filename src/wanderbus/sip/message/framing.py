"""Framing of messages and keep-alives in a stream (RFC 3261 18.3; RFC 5626 4.4.1).

In a stream, only Content-Length marks the end of a message. If it is missing or ambiguous, everything after it is
unreadable, and the connection must be closed. The buffer is bounded, and each byte is examined a fixed number of times,
however small the received pieces are.
"""

from __future__ import annotations

import re
from typing import Final

from wanderbus.errors import SIPParseError
from wanderbus.limits import SIP_MESSAGE_BYTES_MAX
from wanderbus.sip.message.message import Fed, legible
from wanderbus.sip.message.uri import parse_number

PING: Final = b"\r\n\r\n"
"""The keep-alive of the side that opened the connection."""

PONG: Final = b"\r\n"
"""The response to PING."""

_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_MAY_BE_LENGTH: Final = re.compile(r"content-length|^\W*l\b", re.IGNORECASE)
_BETWEEN: Final = re.compile(rb"[\r\n]*+")
_HEAD_END_BYTES_MAX: Final = 4


class StreamFramer:
    """Splits one direction of one connection into messages.

    ``opened_here``: line breaks between messages are responses to our keep-alives, else they are the peer's
    keep-alives. Messages are returned as received, none larger than ``message_bytes_max``.
    """

    def __init__(self, *, opened_here: bool, message_bytes_max: int = SIP_MESSAGE_BYTES_MAX) -> None:
        self._opened_here = opened_here
        self._message_bytes_max = message_bytes_max
        self._held = bytearray()
        self._searched = 0
        self._message_bytes: int | None = None
        self._failed = False

    @property
    def within_message(self) -> bool:
        """True if a message has begun and is incomplete."""
        return bool(self._held) and self._held[0] not in b"\r\n"

    def feed(self, data: bytes) -> Fed:
        """Add the next piece; after an error all further pieces are discarded."""
        if self._failed:
            return Fed()
        self._held += data
        messages: list[bytes] = []
        pings = pongs = 0
        error = None
        try:
            while True:
                breaks = self._take_breaks()
                pings += 0 if self._opened_here else breaks // 2
                pongs += breaks if self._opened_here else 0
                message = self._take_message()
                if message is None:
                    break
                messages.append(message)
        except SIPParseError as found:
            error = found
            self._failed = True
            self._held.clear()
        return Fed(tuple(messages), pings, pongs, error)

    def _take_breaks(self) -> int:
        """Remove the line breaks before a message, and return the number of CRLFs.

        Where a message may begin, they are kept until it is certain whether they are half of a keep-alive.
        """
        if self.within_message:
            return 0
        found = _BETWEEN.match(self._held)
        assert found is not None
        end = found.end()
        whole = len(PONG if self._opened_here else PING)
        if end == len(self._held):
            end -= end % whole
        count = bytes(self._held[:end]).count(PONG)
        del self._held[:end]
        return count

    def _take_message(self) -> bytes | None:
        """Return the next message if it is complete."""
        if self._message_bytes is None:
            self._message_bytes = self._find_message_bytes()
        if self._message_bytes is None or len(self._held) < self._message_bytes:
            return None
        message = bytes(self._held[: self._message_bytes])
        del self._held[: self._message_bytes]
        self._message_bytes = None
        self._searched = 0
        return message

    def _find_message_bytes(self) -> int | None:
        """Return the length of the first message, None while its head is incomplete."""
        if not self.within_message:
            return None
        found = _HEAD_END.search(self._held, max(0, self._searched - _HEAD_END_BYTES_MAX))
        self._searched = len(self._held)
        total = len(self._held)
        if found is not None:
            total = found.end() + content_length(bytes(self._held[: found.end()]), self._message_bytes_max)
        if total > self._message_bytes_max:
            raise SIPParseError(f"stream: a message of more than {self._message_bytes_max} bytes", 513)
        return None if found is None else total


def content_length(head: bytes, largest: int = SIP_MESSAGE_BYTES_MAX) -> int:
    """Return the number of bytes that follow ``head``, which ends with an empty line.

    Raises:
        SIPParseError: Content-Length is missing, repeated, not a number or above ``largest``, or another line could be
            read as Content-Length by another element.
    """
    _, fields, others = legible(head.rstrip(b"\r\n"))
    if any(_MAY_BE_LENGTH.search(line) for line in others):
        raise SIPParseError("stream: a line that could be read as Content-Length")
    values = [value for name, value in fields if name == "Content-Length"]
    if len(values) != 1:
        raise SIPParseError("stream: Content-Length must be present exactly once")
    return parse_number(values[0], largest, "Content-Length")
