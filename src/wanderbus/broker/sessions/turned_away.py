"""Devices that are turned away, because their session is at another server or comes from there (SPEC L-06)."""

from __future__ import annotations

from wanderbus import protocol, records
from wanderbus.broker.backlog import MessageQueue
from wanderbus.broker.basics import Basics
from wanderbus.broker.messages import LinkDropped
from wanderbus.broker.readers import Link
from wanderbus.broker.sessions.presence import Presence
from wanderbus.broker.state.rows import SessionRow


def moved(session: SessionRow) -> protocol.RequestRefused:
    """Return the refusal of a device whose session has another owner."""
    reason = f"the session {session.name!r} has moved to another server; call again"
    return protocol.RequestRefused(0, reason, limit=protocol.SESSION_MOVED)


class TurnedAway:
    """Closes the links of sessions; their devices call again."""

    def __init__(self, basics: Basics, presence: Presence, backlog: MessageQueue) -> None:
        self._links = basics.links
        self._journal = basics.journal
        self._presence = presence
        self._backlog = backlog

    def close(self, session: SessionRow) -> None:
        """Close the links of a session and of its devices, after their waiting acknowledgements."""
        several = [
            link
            for link in self._links.of_user(session.user)
            if link.session == session.name or (link.session is None and link.device in session.devices)
        ]
        for link in several:
            self._backlog.closes(link)
        still_open = [link for link in several if self._links.is_open(link)]
        for link in still_open:
            refusal = moved(session)
            self._links.send(link, refusal)
            self._close(link, records.MOVED_AWAY, refusal.reason)

    def close_device(self, user: str, device: str) -> None:
        """Close the link of a device that has gone to another server, after its waiting acknowledgements."""
        if (link := self._links.of_device(user, device)) is not None:
            self._backlog.closes(link)
        if link is not None and self._links.is_open(link):
            self._close(link, "gone to another server", "the device has gone to another server")

    def _close(self, link: Link, status: str, reason: str) -> None:
        self._presence.closed(link, status)
        self._journal.emit(LinkDropped(link.link, reason))
