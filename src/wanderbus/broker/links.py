"""Links: the broker's view of data channels, and delivery of each subscription to its readers over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final, TypeAlias, cast

import msgspec

from wanderbus import protocol, records
from wanderbus.broker.fair_queue import BYTES_A_UNIT
from wanderbus.broker.messages import LinkDropped, SendOnLink
from wanderbus.broker.queues.queue import SessionQueue
from wanderbus.broker.queues.queue_items import Item, Queued, QueuedGap
from wanderbus.broker.queues.queue_limits import QueueLimits
from wanderbus.broker.queues.return_pace import ReturnPace
from wanderbus.broker.reader_windows import ReaderWindows
from wanderbus.broker.readers import Link, OpenReader
from wanderbus.broker.rollback.earlier_positions import EarlierPositions
from wanderbus.broker.servers.server_readers import ServerReaders
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.rows import DeviceRow, SessionRow, Status, device_key, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.event import Loss, Position
from wanderbus.parameters.broker import BrokerConfig, setting_of
from wanderbus.protocol import BrokerMessage
from wanderbus.protocol.presentation import in_xml

_REASONS_MAX: Final = 100
"""Reasons that a gap lists separately, so that it fits a message."""

_OWED_UNITS: Final = 3.0
"""Units of work that a notification still causes after it was sent."""

_REFUSALS: Final = frozenset((protocol.RequestRefused, protocol.PublishRefused))

_Refusal: TypeAlias = protocol.RequestRefused | protocol.PublishRefused

_Next: TypeAlias = tuple[int, int, OpenReader, Item]
"""The number of a reader's next item and the reader's handle, which give the order; the reader, the item."""


class Links:
    """All open links; delivers notifications over them in order, a window ahead of the acknowledgements."""

    def __init__(self, state: BrokerState, journal: Journal, queue_limits: QueueLimits, config: BrokerConfig) -> None:
        self._state = state
        self._journal = journal
        self._queue_limits = queue_limits
        self._windows = ReaderWindows(config)
        self._server_readers = ServerReaders(self._windows, self.send, _losses)
        self._earlier = EarlierPositions(state)
        self.pace = ReturnPace(journal, config)
        """Pace of the backlogs."""
        self.event_bytes_max = config.event_bytes_max
        """Bytes of an event that the devices may publish here."""
        self._closed: list[int] = []
        self._by_id: dict[int, Link] = {}
        self._by_device: dict[str, Link] = {}
        self._by_user: dict[str, tuple[int, ...]] = {}
        self._by_session: dict[str, list[Link]] = {}
        self._handed: dict[str, dict[str, int]] = {}
        """Highest unacknowledged number sent on earlier links, by device and subscription."""
        self._handed_by_others: dict[str, dict[str, int]] = {}
        """Highest of these numbers of devices that have left, by session and subscription."""
        self._before = {key: state.sessions[key].next - 1 for key, _ in state.queue.waiting()}
        """Highest number that an earlier life of this broker may have sent, by session."""
        self.ready: dict[int, dict[int, OpenReader]] = {}
        """Readers to which something may be sent since the last flush, by link and handle."""
        self.now = 0.0
        """The monotonic second of the current step."""

    def begin_step(self, now: float) -> None:
        """Begin a step at monotonic second ``now``."""
        self.now = now
        self.pace.begin_step(now)

    def get(self, link: int) -> Link | None:
        """Return the open link with this id, or None."""
        return self._by_id.get(link)

    def is_open(self, link: Link) -> bool:
        """Return whether a link is still open: an answer that waited goes to nobody else."""
        return self._by_id.get(link.link) is link

    def all(self) -> Iterable[Link]:
        """Return every open link."""
        return self._by_id.values()

    def of_device(self, user: str, device: str) -> Link | None:
        """Return the open link of a device, or None."""
        return self._by_device.get(device_key(user, device))

    def of_user(self, user: str) -> Sequence[Link]:
        """Return the open links of a user, including those that are not attached to a session yet."""
        return [self._by_id[link] for link in sorted(self._by_user.get(user, ()))]

    @property
    def devices(self) -> Iterator[tuple[str, str]]:
        """User and device of each open link."""
        return ((link.user, link.device) for link in self._by_id.values())

    def of_session(self, key: str) -> Sequence[Link]:
        """Return the links that are attached to a session."""
        return self._by_session.get(key, ())

    def open(
        self,
        link: int,
        user: str,
        device: str,
        *,
        unattended: bool = False,
        reads_whole: bool = False,
        is_foreign: bool = False,
    ) -> None:
        """Add a new link."""
        key = device_key(user, device)
        whole = OpenReader(0, "", 0) if reads_whole else None
        opened = Link(link, user, device, key, unattended, whole=whole, is_foreign=is_foreign)
        self._by_id[link] = self._by_device[key] = opened
        self._by_user[user] = (*self._by_user.get(user, ()), link)

    def close(self, link: Link) -> None:
        """Remove a link and stop its readers."""
        self._closed.append(link.link)
        del self._by_id[link.link]
        self.ready.pop(link.link, None)
        if others := tuple([each for each in self._by_user[link.user] if each != link.link]):
            self._by_user[link.user] = others
        else:
            del self._by_user[link.user]
        if self._by_device.get(link.key) is link:
            del self._by_device[link.key]
        if link.session is not None:
            for reader in link.readers():
                self._stop(link, reader)
            key = session_key(link.user, link.session)
            self._by_session[key].remove(link)
            if not self._by_session[key]:
                del self._by_session[key]

    def take_closed(self) -> list[int]:
        """Return the ids of the links that were closed or refused since the last call."""
        closed, self._closed = self._closed, []
        return closed

    def attach(self, link: Link, session: SessionRow) -> None:
        """Attach ``link`` to ``session``; delivery of what has waited until now is paced."""
        link.session, link.backlog = session.name, session.next - 1
        self._by_session.setdefault(session.key, []).append(link)

    def status(self, user: str) -> Status:
        """Return the User Status: CONNECTED while any device of the user can be reached (SPEC E-06, E-07)."""
        return "CONNECTED" if user in self._by_user else "DISCONNECTED"

    def forget(self, session: str, device: str) -> None:
        """Forget the numbers sent to a device that has left its session; it is a new device if it comes back."""
        handed = self._handed.pop(device, None)
        if handed and self._state.queue.get(session) is not None:
            _raise_to(self._handed_by_others.setdefault(session, {}), handed)

    def take_over(self, session: SessionRow) -> None:
        """Count everything in an imported session as possibly sent by its former owner."""
        self._before[session.key] = session.next - 1

    def release(self, session: SessionRow) -> None:
        """Forget the numbers that were sent to the devices of a session, which has no links any more."""
        for device in session.devices:
            self.forget(session.key, device_key(session.user, device))
        self._before.pop(session.key, None)
        self._handed_by_others.pop(session.key, None)

    def refuse(self, link: int, user: str, refusal: protocol.RequestRefused) -> None:
        """Refuse and drop a link of ``user``; nothing is stored about it."""
        self._closed.append(link)
        self._note(refusal, user)
        self._journal.emit(SendOnLink(link, protocol.encode(refusal)))
        self._journal.emit(LinkDropped(link, refusal.reason))

    def send(self, link: Link, message: BrokerMessage) -> None:
        """Send ``message`` once all it depends on is durable; count it if it is a refusal because of a bound."""
        if type(message) in _REFUSALS:
            self._note(cast(_Refusal, message), link.user)
        payload = protocol.encode(message)
        self._journal.emit(SendOnLink(link.link, payload), len(payload))

    def _note(self, refusal: _Refusal, user: str) -> None:
        if refusal.limit not in (None, protocol.SESSION_MOVED):
            self._journal.tally.note(setting_of(refusal.limit), user, refusal.reason)

    # Readers ----------------------------------------------------------------------------------------------------

    def read(self, link: Link, handle: int, subscription: str, group: int | None = None) -> None:
        """Open a reader of a subscription at its device's cursor; an open reader with this handle goes on."""
        if link.unattended or link.reads_whole:
            return
        reader = link.reader(subscription)
        if reader is None or reader.handle != handle:
            if reader is not None:
                self._stop(link, reader)
            if (other := link.reader(handle)) is not None:
                self._stop(link, other)
            row = self._state.known(subscription)
            cursor = (row.cursors or {}).get(link.device, 0) if row is not None else 0
            former = None if reader is None else reader.handle
            reader = OpenReader(handle, subscription, cursor, former, group=group)
            link.open(reader)
            if (gap := self._earlier.take(link, subscription, handle)) is not None:
                self.send(link, gap)
        self._is_ready(link, reader)

    def pause_s(self, user: str, events: int) -> float:
        """Return the pause after so many events of the past for a user."""
        return self.pace.pause_s(events, self._by_user.get(user, ()))

    def is_contested(self, user: str) -> bool:
        """Return whether others than a user are active."""
        return self.pace.is_contested(self._by_user.get(user, ()))

    def stop_reading(self, link: Link, handle: int) -> None:
        """End a reader; unacknowledged items wait for the next one, and acknowledged ones are never sent again."""
        reader = link.reader(handle)
        if reader is not None and reader.handle == handle:
            for other in link.with_groups([reader]):
                self._is_ready(link, other)
            self._stop(link, reader)
            self._journal.hurry()

    def _stop(self, link: Link, reader: OpenReader) -> None:
        if reader.unacknowledged is not None:
            handed = self._handed.setdefault(link.key, {})
            handed[reader.subscription] = max(handed.get(reader.subscription, 0), reader.sent)
        link.close(reader)

    def rename(self, session: SessionRow, ended: str, successor: str) -> None:
        """Move the readers of an ended subscription to the one that inherits its queue."""
        by_device = [self._handed.get(device_key(session.user, device)) for device in session.devices]
        for handed in (*by_device, self._handed_by_others.get(session.key)):
            if handed is not None and ended in handed:
                handed[successor] = handed.pop(ended)
        for link in self.of_session(session.key):
            link.rename(ended, successor)

    def take(self, link: Link, handle: int, number: int) -> None:
        """Acknowledge for a device what a reader was sent, on this link or on an earlier one."""
        if link.whole is not None:
            self._take_whole(link, link.whole, number)
            return
        if (reader := link.reader(handle)) is None:
            return
        if number <= reader.sent or number <= self._may_have_sent(link, reader.subscription):
            session = self._state.sessions[session_key(link.user, link.session or "")]
            self.acknowledge(session, link.device, number, (reader.subscription,))
            reader.take(number)
            self._is_ready(link, reader)

    def _take_whole(self, link: Link, whole: OpenReader, number: int) -> None:
        """Acknowledge all subscriptions of a server's session up to a number, and send what there is room for."""
        session = self._state.sessions[session_key(link.user, link.session or "")]
        self.acknowledge(session, link.device, number)
        whole.take(min(number, session.next - 1))
        self.notify(session, ())

    def begin(self, link: Link, session: SessionRow, resume: Position | None, *, is_first: bool) -> None:
        """Go on behind the position that the application has committed; ``is_first`` if this begins a life of it."""
        if is_first:
            self._earlier.begin(link, session, resume)
        if resume is not None:
            self.acknowledge(session, link.device, session.in_common(resume), resumed=True)

    def resume(self, link: Link, session: SessionRow, position: Position, subscription: str) -> None:
        """Go on with one subscription behind the position that the application has committed, in a new reader."""
        if (reader := link.reader(subscription)) is None or reader.is_inherited:
            self._earlier.resume(link, session, position, (subscription,))
        self.acknowledge(session, link.device, session.in_common(position), (subscription,), resumed=True)

    def acknowledge(
        self,
        session: SessionRow,
        device: str,
        number: int,
        subscriptions: tuple[str, ...] = (),
        *,
        resumed: bool = False,
    ) -> None:
        """Record that a device acknowledged these subscriptions, or all, up to ``number``, if a cursor moves."""
        if not resumed and not self._moves_cursor(session, device, number, subscriptions):
            return
        acknowledged = records.Acknowledged(
            at_us=self._state.wall_us,
            user=session.user,
            session=session.name,
            device=device,
            number=min(number, session.next - 1),
            subscriptions=subscriptions,
            resumed=resumed,
        )
        self._journal.write(acknowledged, urgent=False)

    def _moves_cursor(self, session: SessionRow, device: str, number: int, subscriptions: tuple[str, ...]) -> bool:
        if (queue := self._state.queue.get(session.key)) is None:
            return False
        waiting = self._state.queued_for(session)
        for identity in subscriptions or queue.reached(number):
            row = self._state.known(identity)
            if row is not None and identity in waiting and number > (row.cursors or {}).get(device, 0):
                return True
        return False

    def _may_have_sent(self, link: Link, subscription: str) -> int:
        """Return the highest number of a subscription that a device may have been sent on earlier links."""
        assert link.session is not None
        handed = self._handed.get(link.key, {}).get(subscription, 0)
        return max(handed, self._before.get(session_key(link.user, link.session), 0))

    def may_have_seen(self, link: Link, name: str) -> tuple[tuple[str, int], ...]:
        """Return the numbers that may have been seen unacknowledged, by subscription.

        Those of an earlier life of the device, or for a new member of the session those of any other device.
        """
        key = session_key(link.user, name)
        if (session := self._state.sessions.get(key)) is None or self._state.queue.get(key) is None:
            return ()
        if link.device in session.devices:
            # Marks from when it became a member; its lives since may have been sent nothing.
            handed = dict(self._state.devices[link.key].redelivered or {})
            _raise_to(handed, self._handed.get(link.key, {}))
        else:
            handed = self._handed_to_others(session)
        before = self._before.get(key, 0)
        seen = []
        for identity in self._state.queued_for(session):
            row = self._state.known(identity)
            number = max(handed.get(identity, 0), before)
            if (
                row
                and row.subscription.device in (None, link.device)
                and number > (row.cursors or {}).get(link.device, 0)
            ):
                seen.append((identity, number))
        return tuple(seen)

    def _handed_to_others(self, session: SessionRow) -> dict[str, int]:
        """Return the highest number of each subscription of a session that was sent to any device."""
        handed = self._handed_by_others.get(session.key, {})
        waiting = self._state.queued_for(session)
        for identity in [each for each in handed if each not in waiting]:
            del handed[identity]
        handed = dict(handed)
        for device in session.devices:
            _raise_to(handed, self._handed.get(device_key(session.user, device), {}))
        for link in self.of_session(session.key):
            _raise_to(handed, {reader.subscription: reader.sent for reader in link.readers()})
        return handed

    def taken_by_others(self, link: Link, name: str) -> tuple[tuple[str, int], ...]:
        """Return the numbers up to which the devices of a session have acknowledged what waits, by subscription.

        The device of ``link``, which is about to be a member, begins behind them. Empty if it is one already.
        """
        key = session_key(link.user, name)
        session = self._state.sessions.get(key)
        if session is None or self._state.queue.get(key) is None or link.device in session.devices:
            return ()
        taken = []
        for identity in self._state.queued_for(session):
            row = self._state.known(identity)
            if row is not None and row.subscription.device is None:
                number = max(row.taken, *(row.cursors or {}).values(), 0)
                taken += [(identity, number)] if number else []
        return tuple(taken)

    # Delivery ---------------------------------------------------------------------------------------------------

    def unserved(self) -> Iterator[tuple[Link, OpenReader]]:
        """Yield readers without unacknowledged items for which something unpaced waits: always none."""
        for link in self._by_id.values():
            queue = self._state.queue.get(session_key(link.user, link.session or ""))
            for reader in link.readers() if queue is not None else ():
                item = queue.after(reader.subscription, reader.sent) if queue is not None else None
                if any(each.full_since is not None for each in link.with_groups([reader])):
                    continue  # it may have to wait for an earlier item of its group
                if item is not None and reader.unacknowledged is None and item.number > link.backlog:
                    yield link, reader

    def go_on(self, link: Link) -> None:
        """Send the next part of a link's backlog."""
        for reader in link.readers():
            self._is_ready(link, reader)

    def notify(self, session: SessionRow, subscriptions: Iterable[str]) -> None:
        """Send new items of these subscriptions on each link of ``session``, as far as the readers' windows allow."""
        key = session.key
        if (queue := self._state.queue.get(key)) is None:
            return
        for link in self._by_session.get(key, ()):
            if link.unattended:
                self._send_unattended(session, queue, link)
            elif link.whole is not None:
                self._server_readers.deliver(queue, link, session.next - 1)
            elif link.reading:
                ready: list[OpenReader] = []
                for each in subscriptions:
                    # A reader with a full window becomes ready by its next acknowledgement; skip it to save time.
                    if (reader := link.reader(each)) is not None and reader.full_since is None:
                        ready.append(reader)
                if ready:
                    self._deliver(session, queue, link, ready)

    def flush(self) -> None:
        """Deliver to every reader that became ready since the last call."""
        while self.ready:
            identity, readers = self.ready.popitem()
            link = self._by_id[identity]
            assert link.session is not None
            key = session_key(link.user, link.session)
            if (queue := self._state.queue.get(key)) is not None:
                opened = [each for each in readers.values() if link.reader(each.handle) is each]
                self._deliver(self._state.sessions[key], queue, link, opened)

    def _is_ready(self, link: Link, reader: OpenReader) -> None:
        self.ready.setdefault(link.link, {})[reader.handle] = reader

    def _deliver(self, session: SessionRow, queue: SessionQueue, link: Link, readers: Sequence[OpenReader]) -> None:
        """Send the items for which these readers have room, in order; one message serves several readers.

        An item that one reader of a group has no room for holds up all later items of the group.
        """
        coming: list[_Next] = []
        held: dict[int, int] = {}
        for reader in link.with_groups(readers) if link.grouped else readers:
            self._look_up(queue, link, reader, coming, held)
        device = self._state.devices[link.key]
        while coming:
            number, _, reader, item = heappop(coming)
            if held and reader.group in held and number >= held[reader.group]:
                continue
            if self._is_too_old(session, reader, item):
                self._look_up(queue, link, reader, coming, held)
                continue
            if number <= link.backlog and not self.pace.may_send(link, _units_of(item)):
                return
            served = [reader]
            if type(item) is QueuedGap:
                self.send(link, _gap(item.beyond(reader.sent), reader))
                reader.send(item)
            else:
                while coming and coming[0][3] is item and not self._is_too_old(session, coming[0][2], item):
                    if (each := heappop(coming)[2]).group not in held or number < held[each.group]:
                        served.append(each)
                for each in served:
                    each.send(item)
                self._send_notification(link, device, item, served)
            for each in served:
                self._look_up(queue, link, each, coming, held)

    def _look_up(
        self, queue: SessionQueue, link: Link, reader: OpenReader, coming: list[_Next], held: dict[int, int]
    ) -> None:
        """Add the next item of a reader to ``coming``, or its number to ``held`` if the window has no room."""
        own = queue.queues.get(reader.subscription)
        if own is None or reader.is_stopped or (item := own.after(reader.sent)) is None:
            return
        if self._windows.has_room(link, reader):
            heappush(coming, (item.number, reader.handle, reader, item))
            return
        if reader.full_since is None:
            reader.full_since = self.now
        if reader.group is not None:
            held[reader.group] = min(item.number, held.get(reader.group, item.number))

    def _is_too_old(self, session: SessionRow, reader: OpenReader, item: Item) -> bool:
        """Return whether an item has waited for too long; drop it if so."""
        if type(item) is QueuedGap or item.event.at_us >= self._state.wall_us:
            return False
        if not self._queue_limits.too_old(item, reader.subscription):
            return False
        self._queue_limits.expire(session)
        return True

    def _send_notification(self, link: Link, device: DeviceRow, entry: Queued, readers: Sequence[OpenReader]) -> None:
        """Send a notification to these readers, in two messages if only some of them may have seen it."""
        self._journal.owed += _OWED_UNITS
        if device.redelivered is None:
            self.send(link, self._notification(entry, device, readers, redelivered=False))
            return
        seen = [each for each in readers if entry.number <= device.redelivered.get(each.subscription, 0)]
        unseen = [each for each in readers if each not in seen]
        for redelivered, several in ((True, seen), (False, unseen)):
            if several:
                self.send(link, self._notification(entry, device, several, redelivered=redelivered))

    def _notification(
        self, entry: Queued, device: DeviceRow, readers: Sequence[OpenReader], *, redelivered: bool
    ) -> BrokerMessage:
        event, known = entry.event, self._state.known
        subscriptions = entry.subscriptions_for(device.device) if entry.bound else entry.subscriptions
        handles: list[int] = []
        served: list[str] = []
        for reader in readers:
            handles.append(reader.handle)
            served.append(reader.subscription)
        raw = msgspec.Raw(event.data)
        is_history = entry.history_us > 0
        notify = protocol.Notify(entry.number, event.id, raw, subscriptions, redelivered, tuple(handles), is_history)
        for each in served or subscriptions:
            # A forgotten subscription asks for nothing.
            if (row := known(each)) is not None and row.subscription.format == "xml":
                session = self._state.sessions[session_key(device.user, device.session)]
                return in_xml(notify, session.position(entry.number).epoch)
        return notify

    def _send_unattended(self, session: SessionRow, queue: SessionQueue, link: Link) -> None:
        """Send all waiting items on an unattended link, and count them as acknowledged."""
        device = self._state.devices[link.key]
        for group in list(queue.items_from(link.sent + 1)):
            link.sent = max(link.sent, group[0][1].number)
            for identity, item in group:
                if isinstance(item, QueuedGap):
                    self.send(link, protocol.NotifyGap(item.number, item.last, _losses(identity, item)))
            entry = next((item for _, item in group if isinstance(item, Queued)), None)
            if entry is not None and entry.subscriptions_for(device.device):
                self.send(link, self._notification(entry, device, (), redelivered=False))
        self.acknowledge(session, link.device, session.next - 1)


def _raise_to(numbers: dict[str, int], others: Mapping[str, int]) -> None:
    """Raise each of the ``numbers`` to that of ``others`` with the same key."""
    for key, number in others.items():
        numbers[key] = max(numbers.get(key, 0), number)


def _units_of(item: Item) -> float:
    return 1.0 if type(item) is QueuedGap else 1 + _OWED_UNITS + len(item.event.data) / BYTES_A_UNIT


def _gap(gap: QueuedGap, reader: OpenReader) -> BrokerMessage:
    return protocol.NotifyGap(gap.number, gap.last, _losses(reader.subscription, gap), reader.handle)


def _losses(subscription: str, gap: QueuedGap) -> tuple[Loss, ...]:
    counts = list(gap.lost.items())
    losses = [Loss(subscription, reason, count) for reason, count in counts[:_REASONS_MAX]]
    if rest := sum(count for _, count in counts[_REASONS_MAX:]):
        losses.append(Loss(subscription, "others", rest))
    return tuple(losses)
