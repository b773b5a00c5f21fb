"""One connection of a lightweight client: its login, and the windows of both directions (SPEC P-02)."""

from __future__ import annotations

from collections import deque
from typing import Final

from wanderbus.access import light_frames as wire
from wanderbus.access.light_messages import Hello
from wanderbus.errors import RemoteProtocolError
from wanderbus.machine import Address

COUNTED: Final = (4, 5)
"""Kinds of the broker's messages that a client's window counts: notifications and gaps."""


class LightConnection:
    """State of one connection; ``link`` is the broker's name for it, 0 before the login."""

    def __init__(self, number: int, source: Address, nonce: bytes, now: float) -> None:
        self.number = number
        self.source = source
        self.nonce = nonce
        self.reader = wire.FrameReader()
        self.opened_at = self.heard_at = now
        self.hello: Hello | None = None
        self.has_proved = False
        """True once the password was right; the link may still wait for the owner of the session."""
        self.user = ""
        self.link = 0
        self.ends_at: float | None = None
        """Second at which it is closed: it was refused, and the client closes it earlier if it has read why."""
        self.doubted_at: float | None = None
        """Second at which the server asked whether the client is still there, until it is heard."""
        self.held: deque[bytes] = deque()
        """Notifications that wait for the client's window."""
        self.held_bytes = 0
        self._unconsumed: deque[int] = deque()
        self._received = self._consumed = self._granted = 0
        self._sent = self._may_send_to = 0

    def is_ending(self) -> bool:
        """Return whether the connection was refused, and waits for the client to close it."""
        return self.ends_at is not None

    def open_windows(self, window_bytes: int, client_bytes: int) -> int:
        """Begin with the windows of both sides; return the client's first grant."""
        self._granted, self._may_send_to = window_bytes, client_bytes
        return window_bytes

    def received(self, message: bytes) -> None:
        """Count a message of the client; :class:`RemoteProtocolError` beyond the grant."""
        if self._received >= self._granted:
            raise RemoteProtocolError("the client sent more than was granted", status=None)
        size = wire.HEADER_BYTES + len(message)
        self._received += size
        self._unconsumed.append(size)

    def consumed(self, messages: int, window_bytes: int) -> bytes:
        """Count messages that the broker has processed; return a GRANT frame if half of the window is free again."""
        for _ in range(min(messages, len(self._unconsumed))):
            self._consumed += self._unconsumed.popleft()
        grant = self._consumed + window_bytes
        if grant - self._granted < window_bytes / 2:
            return b""
        self._granted = grant
        return wire.encode_grant(grant)

    def granted(self, grant: int) -> bytes:
        """Take a grant of the client; return the frames that may be sent now."""
        self._may_send_to = max(self._may_send_to, grant)
        frames = []
        while self.held and self._sent < self._may_send_to:
            payload = self.held.popleft()
            self.held_bytes -= len(payload)
            frames.append(self._counted(payload))
        return b"".join(frames)

    def send(self, payload: bytes) -> bytes:
        """Return the frame of a message of the broker, b"" if it has to wait for the client's window."""
        if len(payload) < 2 or payload[1] not in COUNTED:
            return wire.encode(wire.MESSAGE, payload)
        if self.held or self._sent >= self._may_send_to:
            self.held.append(payload)
            self.held_bytes += len(payload)
            return b""
        return self._counted(payload)

    def _counted(self, payload: bytes) -> bytes:
        frame = wire.encode(wire.MESSAGE, payload)
        self._sent += len(frame)
        return frame
