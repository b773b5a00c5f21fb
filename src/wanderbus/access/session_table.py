"""Table of the SIP sessions with devices, indexed by id, device, connection and link."""

from __future__ import annotations

from collections import Counter

from wanderbus.access.device_session import DeviceSession


class SessionTable:
    """All sessions with devices; only the methods change it."""

    def __init__(self) -> None:
        self.by_id: dict[str, DeviceSession] = {}
        self.by_device: dict[tuple[str, str], DeviceSession] = {}
        """Sessions by user and device."""
        self._of_user: Counter[str] = Counter()
        """Number of devices with a session, by user."""
        self.by_connection: dict[int, DeviceSession] = {}
        """Sessions by our id of the data channel's connection, while there is one."""
        self.by_link: dict[int, DeviceSession] = {}
        self._links_made = 0

    def add(self, session: DeviceSession) -> None:
        """Add a session; it replaces an earlier one of the same device in the index by device."""
        self.by_id[session.id] = session
        self._of_user[session.user] += (session.user, session.device) not in self.by_device
        self.by_device[session.user, session.device] = session

    def others(self, user: str, device: str) -> int:
        """Return the number of devices of ``user`` that have a session, without ``device``."""
        return self._of_user[user] - ((user, device) in self.by_device)

    def of_user(self, user: str) -> list[DeviceSession]:
        """Return the sessions of the devices of ``user``, the oldest first."""
        return [session for (owner, _), session in self.by_device.items() if owner == user]

    def remove(self, session: DeviceSession) -> None:
        """Remove a session from every index; does nothing for an unknown one."""
        self.by_id.pop(session.id, None)
        if self.by_device.get((session.user, session.device)) is session:
            del self.by_device[session.user, session.device]
            self._of_user[session.user] -= 1
            if not self._of_user[session.user]:
                del self._of_user[session.user]
        self.by_connection.pop(session.channel.local, None)
        self.by_link.pop(session.link, None)

    def connected(self, session: DeviceSession, former: int | None = None) -> None:
        """Index a session by the connection of its data channel, which replaces the connection ``former``."""
        if former is not None:
            self.by_connection.pop(former, None)
        self.by_connection[session.channel.local] = session

    def lost(self, connection: int) -> DeviceSession | None:
        """Remove a connection and the link over it; return the session that used it."""
        session = self.by_connection.pop(connection, None)
        if session is not None:
            self.by_link.pop(session.link, None)
        return session

    def new_link(self, session: DeviceSession) -> int:
        """Give ``session`` a link with a number that was never used, and return the number.

        Two connections may have the same local id, one after the other. Messages that the broker still holds back
        for the first must not be sent to the second.
        """
        self.by_link.pop(session.link, None)
        session.withheld = []
        self._links_made += 1
        session.link = self._links_made
        self.by_link[session.link] = session
        return session.link
