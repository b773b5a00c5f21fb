"""Links: what the broker sees of a data channel, and the pump that sends a session's queue down each."""

from __future__ import annotations

import msgspec

from wanderbus import records
from wanderbus.broker import protocol
from wanderbus.broker.config import BrokerConfig
from wanderbus.broker.journal import Journal
from wanderbus.broker.protocol import BrokerMessage
from wanderbus.broker.state import (
    BrokerState,
    DeviceRow,
    Entry,
    SessionRow,
    Status,
    device_key,
    session_key,
)
from wanderbus.machine import Output


class SendOnLink(Output, frozen=True):
    """Send ``payload`` on ``link``, reliably and in order while the link lives."""

    link: int
    payload: bytes


class Link(msgspec.Struct):
    """An open data channel of a device; ``session`` is None until its agent has said :class:`Attach`."""

    link: int
    user: str
    device: str
    session: str | None = None
    sent: int = 0
    """Highest number of the session's stream that was sent on this link."""


class Links:
    """Every open link, and delivery over them in the order of numbers, at most a window unacknowledged."""

    def __init__(self, state: BrokerState, journal: Journal, config: BrokerConfig) -> None:
        self._state = state
        self._journal = journal
        self._window = config.unacknowledged_max
        self._by_id: dict[int, Link] = {}
        self._by_device: dict[str, Link] = {}
        self._by_user: dict[str, set[int]] = {}
        self._by_session: dict[str, list[Link]] = {}
        self._handed = {
            (session.key, device): session.next - 1 for session in state.sessions.values() for device in session.devices
        }

    def get(self, link: int) -> Link | None:
        """Return the open link with this id, or None."""
        return self._by_id.get(link)

    def of_device(self, user: str, device: str) -> Link | None:
        """Return the open link of a device, or None."""
        return self._by_device.get(device_key(user, device))

    def open(self, link: int, user: str, device: str) -> None:
        """Take note of a new link."""
        self._by_id[link] = self._by_device[device_key(user, device)] = Link(link, user, device)
        self._by_user.setdefault(user, set()).add(link)

    def close(self, link: Link) -> None:
        """Forget a link."""
        del self._by_id[link.link]
        self._by_user[link.user].discard(link.link)
        if not self._by_user[link.user]:
            del self._by_user[link.user]
        if self._by_device.get(device_key(link.user, link.device)) is link:
            del self._by_device[device_key(link.user, link.device)]
        if link.session is not None:
            key = session_key(link.user, link.session)
            self._by_session[key].remove(link)
            if not self._by_session[key]:
                del self._by_session[key]

    def attach(self, link: Link, session: str, sent: int) -> None:
        """Let the stream of ``session`` flow on ``link`` after number ``sent``."""
        link.session, link.sent = session, sent
        self._by_session.setdefault(session_key(link.user, session), []).append(link)

    def status(self, user: str) -> Status:
        """Return the User Status: CONNECTED while any device of the user can be reached (SPEC E-06, E-07)."""
        return "CONNECTED" if user in self._by_user else "DISCONNECTED"

    def handed(self, user: str, session: str, device: str) -> int:
        """Return the highest number of ``session`` that this device may have been sent in any of its lives."""
        return self._handed.get((session_key(user, session), device), 0)

    def say(self, link: Link, message: BrokerMessage) -> None:
        """Send ``message`` once everything it rests on is durable."""
        self._journal.say(SendOnLink(link.link, protocol.encode(message)))

    def pump(self, session: SessionRow) -> None:
        """Send each link of ``session`` what it has not been sent, as far as its window allows."""
        for link in self._by_session.get(session.key, ()):
            self._pump_link(session, link)

    def _pump_link(self, session: SessionRow, link: Link) -> None:
        device = self._state.devices[device_key(link.user, link.device)]
        link.sent = max(link.sent, session.first - 1)
        self._fill_window(session, link, device)
        while self._pass_over(session, link, device):
            self._fill_window(session, link, device)
        key = (session.key, link.device)
        self._handed[key] = max(self._handed.get(key, 0), link.sent)

    def _fill_window(self, session: SessionRow, link: Link, device: DeviceRow) -> None:
        while link.sent + 1 < session.next and link.sent - device.cursor < self._window:
            number = link.sent + 1
            entry = self._state.entry(session, number)
            assert entry is not None, (session.key, number)
            link.sent = entry.last
            if message := self._message(entry, device):
                self.say(link, message)

    def _pass_over(self, session: SessionRow, link: Link, device: DeviceRow) -> bool:
        """Advance the cursor over notifications bound to other devices (DESIGN 5.4); tell whether there were any."""
        number = device.cursor
        while number < link.sent:
            entry = self._state.entry(session, number + 1)
            if entry is None or self._message(entry, device):
                break
            number = entry.last
        if number == device.cursor:
            return False
        took = records.Took(
            at_us=self._state.wall_us,
            user=link.user,
            session=session.name,
            device=link.device,
            number=number,
        )
        self._journal.write(took, urgent=False)
        return True

    def _message(self, entry: Entry, device: DeviceRow) -> BrokerMessage | None:
        if entry.id is None:
            return protocol.NotifyGap(entry.number, entry.last, entry.reason or "")
        subscriptions = entry.subscriptions_for(device.device)
        if not subscriptions:
            return None
        return protocol.Notify(
            entry.number,
            entry.id,
            msgspec.Raw(entry.event),
            subscriptions,
            entry.number <= device.redelivered_through,
        )
