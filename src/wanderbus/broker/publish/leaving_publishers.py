"""Devices whose session is about to leave for another domain: what they publish meanwhile waits (decision 0173).

Leaders know what they have accepted of a device, and those of another domain do not. So the next owner gets the
answers of the leaders here, and these are complete only if nothing is on its way to them. What waits is published if
the session stays; otherwise the device publishes it again at the next owner.
"""

from __future__ import annotations

from collections.abc import Callable

from wanderbus.broker.basics import Basics
from wanderbus.broker.publish.decisions import Rejected
from wanderbus.broker.publish.former_servers import FormerServers
from wanderbus.broker.publish.held_publishes import HeldPublishes, PublisherMessage
from wanderbus.broker.readers import Link
from wanderbus.broker.servers.forwarding import Forwarding
from wanderbus.broker.state.rows import device_key, publisher_keys, session_key


class LeavingPublishers:
    """Lets publishes of some sessions wait, and knows when nothing of them is on its way."""

    def __init__(self, basics: Basics, forwarding: Forwarding, former: FormerServers) -> None:
        self._state = basics.state
        self._forwarding = forwarding
        self._former = former
        self._sessions: set[tuple[str, str]] = set()
        self._publish: Callable[[Link, PublisherMessage], None] = lambda link, message: None
        self._unsettled: HeldPublishes[PublisherMessage] = HeldPublishes(basics.links)
        self._held: HeldPublishes[PublisherMessage] = HeldPublishes(basics.links)

    def serve_by(
        self, publish: Callable[[Link, PublisherMessage], None], unsettled: HeldPublishes[PublisherMessage]
    ) -> None:
        """Let ``publish`` process what has waited; ``unsettled`` has what waits for another reason already."""
        self._publish, self._unsettled = publish, unsettled

    def pause(self, user: str, session: str) -> None:
        """Let what the devices of a session publish wait from now on."""
        self._sessions.add((user, session))

    def resume(self, user: str, session: str) -> None:
        """Publish what has waited of a session, as far as its devices are still here."""
        if (user, session) in self._sessions:
            self._sessions.discard((user, session))
            for link, message in list(self._held.take()):
                self._publish(link, message)

    def is_quiet(self, user: str, session: str) -> bool:
        """Return whether nothing that the devices of a session have published waits for an answer of a leader."""
        row = self._state.sessions.get(session_key(user, session))
        devices = [] if row is None else row.devices
        return not any(
            self._forwarding.waits_for(device_key(user, device))
            or any(map(self._waits_already, publisher_keys(user, device, decentralised=False)))
            for device in devices
        )

    def holds(self, link: Link, publisher: str) -> bool:
        """Return whether a publish has to wait: not behind an earlier one that waits for another reason."""
        is_leaving = bool(self._sessions) and (link.user, link.session or "") in self._sessions
        return is_leaving and not self._waits_already(publisher)

    def hold(self, link: Link, publisher: str, event_bytes: int, message: PublisherMessage) -> Rejected | None:
        """Let a publish wait; return why it is refused instead."""
        if self._held.add(link, publisher, event_bytes, message):
            return None
        reason = "too many events wait while the session moves to another domain; try again later"
        return Rejected(reason, "routes_unknown")

    def _waits_already(self, publisher: str) -> bool:
        return self._former.has(publisher) or self._unsettled.has(publisher)
