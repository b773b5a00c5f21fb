"""The piece of a log that is being read, and the part of it that becomes notifications."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from wanderbus import records
from wanderbus.broker.messages import HistoryRead, HistoryWanted, PastEvent
from wanderbus.broker.state.rows import SubscriptionRow, session_key
from wanderbus.subscription import Subscription


def session_of(subscription: Subscription) -> str:
    """Return the key of the session of a subscription."""
    return session_key(subscription.owner, subscription.session)


class AskedPiece(msgspec.Struct):
    """The piece that is being read; ``held`` are the later matches, None if its subscriptions cannot switch to live."""

    wanted: HistoryWanted
    held: list[PastEvent] | None
    is_sent: bool = False
    leader: str = ""
    """The server that reads it, "" for this one."""

    @property
    def sessions(self) -> dict[str, list[str]]:
        """Return the ids of its subscriptions by session."""
        found: dict[str, list[str]] = {}
        for each in self.wanted.readers:
            found.setdefault(session_of(each.subscription), []).append(each.subscription.id)
        return found

    def hold(self, event: PastEvent, most: int) -> None:
        """Hold a later match, which is not in the piece; with more than ``most`` of them all are given up."""
        if self.held is None:
            return
        if self.leader:
            if event.id.origin != self.wanted.server:
                self.held = None  # another server leads the channel by now
                return
            event = msgspec.structs.replace(event, offset=event.id.number)
        elif event.offset < self.wanted.end:
            return
        if len(self.held) >= most:
            self.held = None
        else:
            self.held.append(event)

    def end_at(self, given: HistoryRead) -> None:
        """Note where the leader has ended the piece: the seam is there if it is the end of the leader's log."""
        if not given.is_at_end:
            self.held = None
            return
        self.wanted = msgspec.structs.replace(self.wanted, end=given.end)
        if self.held is not None:
            self.held = [each for each in self.held if each.offset >= given.end]


class TakenEvents(msgspec.Struct):
    """Events of a piece that become notifications, and those that patterns take part of.

    ``is_history`` says for each of the former whether it came from the log.
    """

    last_us: dict[str, int | None]
    """Time of the last notification of each subscription."""
    restricted: dict[str, int]
    """Notifications of each that restrictions blocked."""
    events: list[PastEvent] = []
    subscriptions: list[tuple[str, ...]] = []
    """Those that get each event."""
    is_history: list[bool] = []
    stepped: list[records.SteppedEvent] = []
    bytes: int = 0

    @property
    def count(self) -> int:
        """Return how many events were taken, those for both counted twice."""
        return len(self.events) + len(self.stepped)

    def add(
        self, event: PastEvent, matching: Iterable[SubscriptionRow], allowed: Sequence[str], *, is_history: bool
    ) -> None:
        """Add an event for those of the ``matching`` subscriptions whose restrictions have ``allowed`` it."""
        for identity in (row.subscription.id for row in matching):
            if identity not in allowed:
                self.restricted[identity] += 1
        if allowed:
            self.events.append(event)
            self.subscriptions.append(tuple(allowed))
            self.is_history.append(is_history)
            self.bytes += len(event.event)
            self.last_us.update(dict.fromkeys(allowed, event.at_us))

    def add_steps(self, event: PastEvent, steps: dict[str, int]) -> None:
        """Add an event for patterns, with the ``steps`` of each that it matches."""
        if steps:
            raw = msgspec.Raw(event.event)
            self.stepped.append(records.SteppedEvent(event.offset, event.id, event.at_us, raw, tuple(steps.items())))
            self.bytes += len(event.event)

    def copy(self) -> TakenEvents:
        """Return a copy to which events can be added."""
        lists = list(self.events), list(self.subscriptions), list(self.is_history), list(self.stepped)
        return TakenEvents(dict(self.last_us), dict(self.restricted), *lists, self.bytes)
