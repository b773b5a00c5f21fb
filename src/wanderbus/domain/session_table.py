"""The access server's lines: SIP sessions with devices, found by what either side calls them."""

from __future__ import annotations

from collections import Counter

import msgspec

from wanderbus.datachannel import DataChannel


class Line(msgspec.Struct):
    """A SIP session with one device: its user, and its data channel."""

    session: str
    user: str
    device: str
    channel: DataChannel
    link: int = 0
    """The broker's name for the data channel, 0 before the first."""
    fresh: bool = False
    """Whether the data channel is new and the broker has not been told."""
    held: bool = False
    """Whether the device receives nothing for now (RFC 3264 8.4)."""
    withheld: list[bytes] = []
    """What the broker has said since; the window of the session's stream bounds the notifications in it."""


class Lines:
    """Every line there is; changed by the methods alone."""

    def __init__(self) -> None:
        self.by_session: dict[str, Line] = {}
        self.by_device: dict[tuple[str, str], Line] = {}
        """By user and device."""
        self._of_user: Counter[str] = Counter()
        """How many there are by device."""
        self.by_connection: dict[int, Line] = {}
        """By our id of its data channel's connection, while there is one."""
        self.by_link: dict[int, Line] = {}
        self._links_made = 0

    def add(self, line: Line) -> None:
        """Take up a line, in place of an earlier one of the same device."""
        self.by_session[line.session] = line
        self._of_user[line.user] += (line.user, line.device) not in self.by_device
        self.by_device[line.user, line.device] = line

    def others(self, user: str, device: str) -> int:
        """Return how many devices of ``user`` there are lines with, ``device`` apart."""
        return self._of_user[user] - ((user, device) in self.by_device)

    def remove(self, line: Line) -> None:
        """Forget a line; no harm if it is not known."""
        self.by_session.pop(line.session, None)
        if self.by_device.get((line.user, line.device)) is line:
            del self.by_device[line.user, line.device]
            self._of_user[line.user] -= 1
            if not self._of_user[line.user]:
                del self._of_user[line.user]
        self.by_connection.pop(line.channel.local, None)
        self.by_link.pop(line.link, None)

    def connected(self, line: Line, former: int | None = None) -> None:
        """The line's data channel has a connection, and ``former`` no more."""
        if former is not None:
            self.by_connection.pop(former, None)
        self.by_connection[line.channel.local] = line

    def lost(self, connection: int) -> Line | None:
        """Forget a connection and the link over it; return the line that had it."""
        line = self.by_connection.pop(connection, None)
        if line is not None:
            self.by_link.pop(line.link, None)
        return line

    def new_link(self, line: Line) -> int:
        """Give ``line`` a link of a number that was never used.

        The id of our end may serve two connections, and what the broker still holds back for the one is not for the
        other.
        """
        self.by_link.pop(line.link, None)
        line.withheld = []
        self._links_made += 1
        line.link = self._links_made
        self.by_link[line.link] = line
        return line.link
