"""Checks of subscriptions that begin in the past, also in the log of another server (SPEC T-05)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from wanderbus.broker.state.replays import HISTORY_FAILED, is_read, read_below_of
from wanderbus.broker.state.state import BrokerState
from wanderbus.event import EventId
from wanderbus.records import Cut, Replayed, Subscribed

FOREVER: Final = 1 << 62


class PastCursor:
    """The past of a subscription by the log of its server: where it begins, and whether it has caught up."""

    def __init__(self) -> None:
        self.first: EventId | None = None
        """Place in the log of the leader from which on it gets events; None if it began with new events."""
        self.leader_epoch = 0
        """Epoch of that leader."""
        self.behind_until = 0
        """Offset at which it has caught up."""
        self.is_behind = False
        self.has_failed = False
        self.caught_up_in = 0
        """The life in which it has caught up, 0 if it has not."""
        self.pieces = self.seams = 0
        self._read_below: EventId | None = None

    def begin(self, record: Subscribed, state: BrokerState) -> None:
        """Take the record of the subscription, at the server with this ``state``."""
        if record.history is not None:
            self.first = EventId(*(record.log or (state.server, state.incarnation)), record.history)
            self.leader_epoch = record.leader_epoch
            self.is_behind, self.behind_until = True, FOREVER

    @property
    def is_elsewhere(self) -> bool:
        """Return whether it has caught up with the log of another server."""
        return self._read_below is not None

    def advance(self, record: Replayed, life: int, offset: int) -> None:
        """Take a piece of its past, or the switch to live."""
        self.pieces += 1
        self.seams += record.onward is not None
        if record.next is None:
            self.is_behind, self.caught_up_in, self.behind_until = False, life, offset
            self._read_below = None if record.log is None else read_below_of(record.log, record)

    def ended(self, reason: str) -> None:
        """Take the end of the subscription; one without its history is live when it is renewed."""
        if reason == HISTORY_FAILED:
            self.is_behind, self.has_failed = False, True

    def is_live_for(self, event: EventId) -> bool:
        """Return whether it gets an event that is accepted here, or arrives, now."""
        below = self._read_below
        return not self.is_behind and not (
            below is not None and is_read(event, (Cut(below, below),), decentralised=False)
        )


def check_past(
    what: str,
    past: PastCursor,
    got: Sequence[EventId],
    wanted: Sequence[EventId],
    *,
    place_of: Callable[[EventId], tuple[int, int]],
    lives: int,
    is_live: bool,
    has_gap: bool,
) -> Iterator[str]:
    """Yield how the notified events differ from the ``wanted`` ones, which are all of the leaders, in their order."""
    places = [place_of(each) for each in got]
    if places != sorted(places):
        yield f"{what} has events out of the order of the leaders: {places}"
    if more := sorted(set(got) - set(wanted)):
        yield f"{what} has {more} too much"
    if has_gap or past.has_failed or past.caught_up_in not in (0, lives):
        return  # it may lack what was lost, or what came between its lives
    missing = sorted(set(wanted[: None if is_live else len(got)]) - set(got))
    if missing:
        yield f"{what} lacks {missing}"
