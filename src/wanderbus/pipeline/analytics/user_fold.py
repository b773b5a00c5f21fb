"""Fate of every match of one user, by the rules of the broker's queues (SPEC G-21; decision 0020).

A match is a notification for one subscription. It is delivered when every member device has acknowledged it, or the one
device to which its subscription is bound. The fold knows neither Spark nor events: it takes entries in the order of
the log, and so needs only the memory of the matches that wait.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from wanderbus.pipeline.analytics.device_times import DevicePast, DeviceTimes
from wanderbus.pipeline.analytics.handovers import Handover, SessionMoves

Outcome = Literal["delivered", "dropped", "queued", "handed_over"]

COMPACTED_ABOVE: Final = 1_000
"""Removed matches at the begin of a queue that are kept until they are as many as the others."""


class FoldEntry(NamedTuple):
    """An entry of :data:`wanderbus.pipeline.analytics.entries.ENTRY`, without its user."""

    session: str | None
    offset: int
    at_us: int
    kind: str
    subject: str | None = None
    first: int | None = None
    last: int | None = None
    subscriptions: list[str] | None = None
    device: str | None = None
    value: str | None = None
    reason: str | None = None
    resumed: bool | None = None


class Match(NamedTuple):
    """A notification for one subscription."""

    session: str
    subject: str
    number: int
    subscription: str
    offset: int
    at_us: int
    event_offset: int


class Fate(NamedTuple):
    """The end of a match; a queued one has none. ``reason`` is that of a drop, ``device`` the last to acknowledge."""

    match: Match
    outcome: Outcome
    ended_us: int | None = None
    reason: str | None = None
    device: str | None = None


class Taking(NamedTuple):
    """A device acknowledged a match; ``away_us`` of the time in between it was away."""

    match: Match
    device: str
    taken_us: int
    away_us: int
    is_redelivered: bool


class _Queue:
    """Matches of one subscription that wait, in the order of their numbers, with the cursors of the devices."""

    def __init__(self) -> None:
        self.cursors: dict[str, int] = {}
        self._numbers: list[int] = []
        self._matches: list[Match] = []
        self._start = 0

    def add(self, match: Match) -> None:
        self._numbers.append(match.number)
        self._matches.append(match)

    def between(self, above: int, through: int) -> list[Match]:
        """Return the matches numbered from behind ``above`` up to ``through``."""
        begin = bisect_right(self._numbers, above, self._start)
        return self._matches[begin : bisect_right(self._numbers, through, begin)]

    def take(self, first: int, last: int) -> list[Match]:
        """Remove and return the matches numbered ``first`` to ``last``."""
        begin = bisect_left(self._numbers, first, self._start)
        end = bisect_right(self._numbers, last, begin)
        taken = self._matches[begin:end]
        if begin == self._start:
            self._start = end
        else:
            del self._numbers[begin:end], self._matches[begin:end]
        if self._start > COMPACTED_ABOVE and self._start * 2 > len(self._numbers):
            del self._numbers[: self._start], self._matches[: self._start]
            self._start = 0
        return taken

    def take_all(self) -> list[Match]:
        """Remove and return all matches; no device has acknowledged any of the next ones."""
        taken = self._matches[self._start :]
        self._numbers, self._matches, self._start, self.cursors = [], [], 0, {}
        return taken

    def waiting(self) -> list[Match]:
        """Return the matches that wait."""
        return self._matches[self._start :]


class _Session:
    def __init__(self) -> None:
        self.members: list[str] = []
        self.queues: dict[str, _Queue] = {}
        self.arrival: Handover | None = None
        """Handover that brought it here, until a device has acknowledged something."""


class _MovedDevice(NamedTuple):
    """State of a member of a session that moves."""

    name: str
    past: DevicePast
    epoch: int | None
    has_begun: bool
    redelivered: dict[str, int]


class MovedSession(NamedTuple):
    """A session that has left a server, as the next one takes it over."""

    session: _Session
    devices: list[_MovedDevice]

    def matches(self) -> Iterator[Match]:
        """Yield the matches that wait."""
        for queue in self.session.queues.values():
            yield from queue.waiting()


class UserFold:
    """The fold over the entries of one user in one log; :meth:`step` and :meth:`close` yield what they settle.

    :param moves: what the folds over other logs of the user have to do with this one
    """

    def __init__(self, moves: SessionMoves[MovedSession] | None = None) -> None:
        self.times = DeviceTimes()
        self.server: str | None = None
        """Name of the server of the log."""
        self._moves = moves if moves is not None else SessionMoves[MovedSession]()
        self._last_move: dict[str, int] = {}
        """Owner epoch in the last step of a handover of each session."""
        self._sessions: dict[str, _Session] = {}
        self._session_of: dict[str, str] = {}
        self._bound = self._moves.bound
        self._redelivered: dict[str, dict[str, int]] = {}
        self._epochs: dict[str, int] = {}
        self._begun: set[str] = set()
        """Devices whose last attachment began another life of their agent."""

    def step(self, entry: FoldEntry) -> Iterator[Fate | Taking]:
        """Apply one entry, and yield the matches that it ends and the acknowledgements of devices."""
        match entry.kind:
            case "notified":
                yield from self._on_notified(entry)
            case "acknowledged":
                yield from self._on_acknowledged(entry)
            case "dropped":
                yield from self._on_dropped(entry)
            case "attached":
                yield from self._on_attached(entry)
            case "begins_behind":
                yield from self._begin_behind(entry)
            case "left":
                yield from self._on_left(entry)
            case "forgotten":
                for queue in self._queues_of(entry):
                    yield from _dropped(queue.take_all(), entry.at_us, "forgotten")
            case _:
                self._on_other(entry)

    def close(self) -> Iterator[Fate]:
        """Yield the matches that still wait, and end the times of the devices."""
        self.times.close()
        for session in self._sessions.values():
            for queue in session.queues.values():
                for match in queue.take_all():
                    yield Fate(match, "queued")

    def _on_other(self, entry: FoldEntry) -> None:
        device, identities = entry.device or "", entry.subscriptions or []
        match entry.kind:
            case "bound":
                self._bound[identities[0]] = device
            case "inherited":
                self._inherit(entry, *identities)
            case "redelivered" if device in self._begun:
                self._redelivered.setdefault(device, {})[identities[0]] = entry.last or 0
            case "started":
                self.server = entry.value or self.server
                self.times.started(entry.at_us)
            case "session_awaited" | "session_not_awaited" | "session_fenced" | "session_imported" | "export_dropped":
                self._on_handover(entry)
            case "queue_continued":
                handover = self._moves.handover((entry.session or "", entry.first or 0))
                handover.bytes = (handover.bytes or 0) + (entry.last or 0)
            case "status":
                self.times.status(device, entry.value or "", entry.reason or "", entry.at_us)
            case "dialog_stored" if entry.value:
                self.times.address(device, entry.value, entry.at_us)

    # Queues -----------------------------------------------------------------------------------------------------

    def _on_notified(self, entry: FoldEntry) -> Iterator[Fate]:
        session = self._session(entry.session)
        for identity in entry.subscriptions or ():
            own = (entry.last or 0, identity, entry.offset, entry.at_us, entry.first or 0)
            match = Match(entry.session or "", entry.subject or "", *own)
            bound_to = self._bound.get(identity)
            if bound_to is not None and session.members and bound_to not in session.members:
                yield Fate(match, "dropped", entry.at_us, "device_left")
                continue
            if (queue := session.queues.get(identity)) is None:
                queue = session.queues[identity] = _Queue()
            queue.add(match)

    def _on_acknowledged(self, entry: FoldEntry) -> Iterator[Fate | Taking]:
        session, device, number = self._session(entry.session), entry.device or "", entry.last or 0
        self.times.stays(device)
        marks = self._redelivered.get(device, {})
        for identity in entry.subscriptions or list(session.queues):
            if (queue := session.queues.get(identity)) is None:
                continue
            former = queue.cursors.get(device, 0)
            if number > former:
                if self._bound.get(identity, device) == device:
                    for match in queue.between(former, number):
                        away_us = self.times.away_us(device, match.at_us, entry.at_us)
                        is_again = not entry.resumed and match.number <= marks.get(identity, 0)
                        yield Taking(match, device, entry.at_us, away_us, is_again)
                        _end_gap(session, match, entry.at_us)
                queue.cursors[device] = number
            yield from self._trim(session, identity, queue, entry.at_us, device)
        for identity in entry.subscriptions or list(marks):
            if entry.resumed or marks.get(identity, 0) <= number:
                marks.pop(identity, None)

    def _trim(self, session: _Session, identity: str, queue: _Queue, at_us: int, device: str | None) -> Iterator[Fate]:
        """Deliver what every target device has acknowledged."""
        bound_to = self._bound.get(identity)
        targets = [each for each in session.members if bound_to in (None, each)]
        taken = min((queue.cursors.get(each, 0) for each in targets), default=0)
        for match in queue.take(0, taken):
            yield Fate(match, "delivered", at_us, device=device)

    def _on_dropped(self, entry: FoldEntry) -> Iterator[Fate]:
        for queue in self._queues_of(entry):
            yield from _dropped(queue.take(entry.first or 0, entry.last or 0), entry.at_us, entry.reason or "")

    def _inherit(self, entry: FoldEntry, ended: str, successor: str) -> None:
        session = self._session(entry.session)
        if (queue := session.queues.pop(ended, None)) is not None:
            session.queues[successor] = queue
        for marks in self._redelivered.values():
            if ended in marks:
                marks[successor] = marks.pop(ended)

    # Members ----------------------------------------------------------------------------------------------------

    def _on_attached(self, entry: FoldEntry) -> Iterator[Fate]:
        name, device = entry.session or "", entry.device or ""
        session = self._session(entry.session)
        former = self._session_of.get(device)
        if former is not None and former != name:
            yield from self._leave(former, device, entry.at_us)
        self._session_of[device] = name
        if device not in session.members:
            session.members.append(device)
            self._redelivered.pop(device, None)
            yield from self._trim_all(session, entry.at_us)
        if self._epochs.get(device) == entry.first:
            self.times.stays(device)
            self._begun.discard(device)
        else:
            self.times.begins(device)
            self._epochs[device] = entry.first or 0
            self._redelivered.pop(device, None)
            self._begun.add(device)

    def _begin_behind(self, entry: FoldEntry) -> Iterator[Fate]:
        """Let a new member begin behind what other devices have acknowledged."""
        session = self._session(entry.session)
        for identity in entry.subscriptions or ():
            if (queue := session.queues.get(identity)) is not None:
                queue.cursors[entry.device or ""] = entry.last or 0
                yield from self._trim(session, identity, queue, entry.at_us, None)

    def _on_left(self, entry: FoldEntry) -> Iterator[Fate]:
        device = entry.device or ""
        self.times.left(device, entry.at_us)
        yield from self._leave(entry.session or "", device, entry.at_us)
        for known in (self._session_of, self._redelivered, self._epochs):
            known.pop(device, None)

    def _leave(self, name: str, device: str, at_us: int) -> Iterator[Fate]:
        session = self._sessions.get(name)
        if session is None or device not in session.members:
            return
        session.members.remove(device)
        for queue in session.queues.values():
            queue.cursors.pop(device, None)
        yield from self._trim_all(session, at_us)

    def _trim_all(self, session: _Session, at_us: int) -> Iterator[Fate]:
        """Settle what no member waits for; the queue of a device that is no member is dropped if there are others."""
        if not session.members:
            return
        for identity, queue in session.queues.items():
            if self._bound.get(identity) in (None, *session.members):
                yield from self._trim(session, identity, queue, at_us, None)
            else:
                yield from _dropped(queue.take_all(), at_us, "device_left")

    # Handovers --------------------------------------------------------------------------------------------------

    def _on_handover(self, entry: FoldEntry) -> None:
        name = entry.session or ""
        epoch = self._last_move[name] = self._last_move.get(name, 0) if entry.first is None else entry.first
        key, at_us = (name, epoch), entry.at_us
        handover = self._moves.handover(key)
        match entry.kind:
            case "session_awaited":
                handover.source, handover.target = entry.value, self.server
                handover.awaited_us = handover.awaited_us or at_us
            case "session_not_awaited":
                handover.withdrawn_us = at_us
            case "session_fenced":
                handover.source, handover.target = self.server, entry.value or handover.target
                handover.fenced_us, handover.cause = at_us, entry.reason
                self._fence(key, handover)
            case "session_imported":
                handover.target, handover.imported_us, handover.bytes = self.server, at_us, entry.last
                self._import(key, handover)
            case "export_dropped":
                handover.done_us = at_us

    def _fence(self, key: tuple[str, int], handover: Handover) -> None:
        """Let a session leave with its matches and its devices."""
        session = self._sessions.pop(key[0], None) or _Session()
        session.arrival = None
        devices = []
        for name in session.members:
            self._session_of.pop(name, None)
            own = self._epochs.pop(name, None), name in self._begun, self._redelivered.pop(name, {})
            devices.append(_MovedDevice(name, self.times.leave_server(name), *own))
        moved = MovedSession(session, devices)
        handover.notifications = len({match.number for match in moved.matches()})
        self._moves.fence(key, moved)

    def _import(self, key: tuple[str, int], handover: Handover) -> None:
        """Go on with a session as it has left its former server; one that no log has begins with nothing."""
        name, moved = key[0], self._moves.arrive(key)
        for device in self._session(name).members:
            self._session_of.pop(device, None)
        if moved is None:
            del self._sessions[name]
            return
        self._sessions[name] = moved.session
        for each in moved.devices:
            self._session_of[each.name] = name
            self.times.come_to_server(each.name, each.past, handover.imported_us or 0)
            self._redelivered[each.name] = each.redelivered
            if each.epoch is not None:
                self._epochs[each.name] = each.epoch
            (self._begun.add if each.has_begun else self._begun.discard)(each.name)
        if any(each.past.was_connected for each in moved.devices):
            moved.session.arrival = handover

    def _session(self, name: str | None) -> _Session:
        return self._sessions.setdefault(name or "", _Session())

    def _queues_of(self, entry: FoldEntry) -> list[_Queue]:
        queues = self._session(entry.session).queues
        return [queues[each] for each in entry.subscriptions or list(queues) if each in queues]


def _dropped(matches: Iterable[Match], at_us: int, reason: str) -> Iterator[Fate]:
    for match in matches:
        yield Fate(match, "dropped", at_us, reason)


def _end_gap(session: _Session, match: Match, at_us: int) -> None:
    """Note the first match that a device acknowledges after a handover."""
    if (handover := session.arrival) is not None:
        session.arrival = None
        handover.taken_us, handover.matched_us, handover.event_offset = at_us, match.at_us, match.event_offset
