"""Links: what the broker sees of a data channel, and the pump that sends a session's queue down each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from wanderbus import records
from wanderbus.broker import protocol
from wanderbus.broker.bounds import Bounds
from wanderbus.broker.config import BrokerConfig
from wanderbus.broker.journal import Journal
from wanderbus.broker.presentation import in_xml, wants_xml
from wanderbus.broker.protocol import BrokerMessage
from wanderbus.broker.queue import Entry, Queued, losses_for
from wanderbus.broker.rows import DeviceRow, SessionRow, Status, device_key, session_key
from wanderbus.broker.state import BrokerState
from wanderbus.event import EventId, Loss
from wanderbus.machine import Output, SetTimer
from wanderbus.pacing import TokenBucket


class SendOnLink(Output, frozen=True):
    """Send ``payload`` on ``link``, reliably and in order while the link lives."""

    link: int
    payload: bytes


class LinkDropped(Output, frozen=True):
    """End ``link`` and the device's connection that it belongs to, because of ``reason``; ``LinkClosed`` follows."""

    link: int
    reason: str


class Link(msgspec.Struct):
    """An open data channel of a device; ``session`` is None until its agent has said :class:`Attach`."""

    link: int
    user: str
    device: str
    key: str
    """Of the device."""
    session: str | None = None
    sent: int = 0
    """Highest number of the session's stream that was sent on this link, or passed over."""
    told: int = 0
    """Highest number up to which the device has to take: what was passed over is bound to others."""
    backlog: int = 0
    """Numbers up to this one had waited when the device attached, and go out paced."""
    pace: TokenBucket | None = None
    held_up: tuple[int, str] | None = None
    """An event of the device's outbox that was refused for the time being, and the bound that was met."""


class Links:
    """Every open link, and delivery over them in the order of numbers, at most a window unacknowledged."""

    def __init__(self, state: BrokerState, journal: Journal, bounds: Bounds, config: BrokerConfig) -> None:
        self.now = 0.0
        """The monotonic second of the step that is being taken."""
        self._state = state
        self._journal = journal
        self._bounds = bounds
        self._window = config.unacknowledged_max
        self._backlog_per_s = config.backlog_per_s
        self._closed: list[int] = []
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

    def of_user(self, user: str) -> Sequence[Link]:
        """Return the open links of a user, also those that are attached to no session yet."""
        return [self._by_id[link] for link in sorted(self._by_user.get(user, ()))]

    @property
    def devices(self) -> Iterator[tuple[str, str]]:
        """User and device of each open link."""
        return ((link.user, link.device) for link in self._by_id.values())

    def of_session(self, key: str) -> Sequence[Link]:
        """Return the links over which a session's stream flows."""
        return self._by_session.get(key, ())

    def open(self, link: int, user: str, device: str) -> None:
        """Take note of a new link."""
        key = device_key(user, device)
        self._by_id[link] = self._by_device[key] = Link(link, user, device, key)
        self._by_user.setdefault(user, set()).add(link)

    def close(self, link: Link) -> None:
        """Forget a link."""
        self._closed.append(link.link)
        del self._by_id[link.link]
        self._by_user[link.user].discard(link.link)
        if not self._by_user[link.user]:
            del self._by_user[link.user]
        if self._by_device.get(link.key) is link:
            del self._by_device[link.key]
        if link.session is not None:
            key = session_key(link.user, link.session)
            handed = (key, link.device)
            self._handed[handed] = max(self._handed.get(handed, 0), link.sent)
            self._by_session[key].remove(link)
            if not self._by_session[key]:
                del self._by_session[key]

    def take_closed(self) -> list[int]:
        """Return the ids of the links that were closed or refused since the last call."""
        closed, self._closed = self._closed, []
        return closed

    def attach(self, link: Link, session: SessionRow, sent: int) -> None:
        """Let the stream of ``session`` flow on ``link`` after number ``sent``, paced as far as it has waited."""
        link.session, link.sent, link.told, link.backlog = session.name, sent, sent, session.next - 1
        link.pace = TokenBucket(self._backlog_per_s, self.now)
        self._by_session.setdefault(session.key, []).append(link)

    def status(self, user: str) -> Status:
        """Return the User Status: CONNECTED while any device of the user can be reached (SPEC E-06, E-07)."""
        return "CONNECTED" if user in self._by_user else "DISCONNECTED"

    def handed(self, user: str, session: str, device: str) -> int:
        """Return the highest number of ``session`` that this device may have been sent on earlier links."""
        return self._handed.get((session_key(user, session), device), 0)

    def forget(self, user: str, device: str) -> None:
        """A device is no member of any session any more: if it comes back, it begins anew."""
        for session in self._state.sessions_of(user):
            self._handed.pop((session.key, device), None)

    def turn_away(self, link: int, refusal: protocol.RequestRefused) -> None:
        """Refuse a link, of which nothing is kept."""
        self._closed.append(link)
        self._journal.say(SendOnLink(link, protocol.encode(refusal)))
        self._journal.say(LinkDropped(link, refusal.reason))

    def say(self, link: Link, message: BrokerMessage) -> None:
        """Send ``message`` once everything it rests on is durable."""
        self._journal.say(SendOnLink(link.link, protocol.encode(message)))

    def go_on(self, link: Link) -> None:
        """Send the next slice of what has waited for a link."""
        if link.session is not None:
            self._pump_link(self._state.sessions[session_key(link.user, link.session)], link)

    def pump(self, session: SessionRow) -> None:
        """Send each link of ``session`` what it has not been sent, as far as its window and its pace allow."""
        for link in self._by_session.get(session.key, ()):
            self._pump_link(session, link)

    def _pump_link(self, session: SessionRow, link: Link) -> None:
        device = self._state.devices[link.key]
        link.sent = max(link.sent, session.first - 1, device.cursor)
        self._fill_window(session, link, device)
        while device.cursor < link.sent and device.cursor >= link.told:
            self._pass_over(session, link, link.sent)
            self._fill_window(session, link, device)

    def _fill_window(self, session: SessionRow, link: Link, device: DeviceRow) -> None:
        queue = self._state.queue[session.key]
        while (number := link.sent + 1) < session.next and link.sent - device.cursor < self._window:
            if number <= link.backlog and not self._paced(link):
                return
            entry = queue.covering(number)
            if isinstance(entry, Queued) and entry.event.at_us < self._state.wall_us and self._bounds.too_old(entry):
                self._bounds.expire(session)
                entry = queue.covering(number)
            assert entry is not None, (session.key, number)
            link.sent = entry.last
            if message := self._message(entry, device):
                if link.told <= device.cursor < number - 1:
                    self._pass_over(session, link, number - 1)
                link.told = entry.last
                self.say(link, message)

    def _paced(self, link: Link) -> bool:
        """Return whether the next notification that has waited may go out; if not, come back when some may."""
        assert link.pace is not None
        if link.pace.take(self.now):
            return True
        self._journal.say(SetTimer(("pace", link.link), link.pace.full_at()))
        return False

    def _pass_over(self, session: SessionRow, link: Link, number: int) -> None:
        """Take for the device, up to ``number``, what is not for it: what is bound to others (DESIGN 5.4)."""
        took = records.Took(
            at_us=self._state.wall_us,
            user=link.user,
            session=session.name,
            device=link.device,
            number=number,
        )
        self._journal.write(took, urgent=False)

    def _message(self, entry: Entry, device: DeviceRow) -> BrokerMessage | None:
        """Return what to say of an entry to a device; None if nothing of it is for that device."""
        lost = losses_for(entry.lost, device.device)
        if isinstance(entry, Queued) and (subscriptions := entry.subscriptions_for(device.device)):
            notify = protocol.Notify(
                entry.number,
                EventId(self._state.server, entry.event.offset),
                msgspec.Raw(entry.event.data),
                subscriptions,
                entry.number <= device.redelivered_through,
                lost,
            )
            if wants_xml(map(self._state.known, subscriptions)):
                return in_xml(notify, self._state.sessions[session_key(device.user, device.session)].epoch)
            return notify
        return protocol.NotifyGap(entry.number, entry.last, _reasons(lost), lost) if lost else None


def _reasons(lost: Iterable[Loss]) -> str:
    return ", ".join(dict.fromkeys(loss.reason for loss in lost))
