"""One SIP session with a device, and its data channel."""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.datachannel import DataChannel

WITHHELD_MAX: Final = 4_096
"""Messages kept for a device on hold; with more, its session is ended."""


class DeviceSession(msgspec.Struct):
    """A SIP session with one device: its user, and its data channel."""

    id: str
    """Identifier of the SIP session in the user agent."""
    user: str
    device: str
    channel: DataChannel
    link: int = 0
    """The broker's name for the data channel, 0 before the first."""
    fresh: bool = False
    """True if the data channel is new and the broker does not know of it yet."""
    held: bool = False
    """True if the device receives nothing for now (RFC 3264 8.4)."""
    withheld: list[bytes] = []
    """Messages of the broker since the hold; the window of the session's stream bounds the notifications in it."""

    def withhold(self, payload: bytes) -> bool:
        """Keep a message for the end of the hold; return False if too many wait already."""
        if len(self.withheld) >= WITHHELD_MAX:
            return False
        self.withheld.append(payload)
        return True

    def hold(self, *, held: bool) -> list[bytes]:
        """Begin or end a hold; return the messages to send at its end, before anything newer."""
        self.held = held
        if held:
            return []
        released, self.withheld = self.withheld, []
        return released
