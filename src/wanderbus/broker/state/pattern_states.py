"""Patterns of the subscriptions, each with the state of its automaton, applied to the state (SPEC T-07).

The record of an event names the steps that it matches; the event then waits here. :class:`wanderbus.records.Detected`
moves the watermark above it, and has the detections with their notifications. Both are folded, so that the state after
a restart is that of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from wanderbus import records
from wanderbus.broker.state.drops import drop_each
from wanderbus.broker.state.engine_events import apply_events
from wanderbus.broker.state.expiry_index import ExpiryIndex
from wanderbus.broker.state.rows import PatternRow
from wanderbus.broker.state.running_pattern import Advance, RunningPattern
from wanderbus.errors import PatternError
from wanderbus.event import Event, EventId
from wanderbus.patterns import Counts, OtherPattern, compile_pattern
from wanderbus.patterns.state import BEFORE_ALL_US, of_former_log
from wanderbus.patterns.turns import Turn
from wanderbus.protocol import decode_event
from wanderbus.subscription import Subscription

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState

_SHARED_MAX: Final = 1_024
"""Compiled patterns that are kept, to be shared by subscriptions with the same text."""

WRITTEN_SIZE: Final = 1_000
"""Size of the states that one save writes whole, unless they must be; it takes about 5 ms, while everybody waits."""

compiled = lru_cache(maxsize=_SHARED_MAX)(compile_pattern)
"""Return the pattern of a text; :class:`PatternError` if it is none. It is compiled once for all subscriptions."""


class PatternStates:
    """The states of all patterns, by subscription; a table of the broker's state."""

    name = "patterns"

    def __init__(self) -> None:
        self._running: dict[str, RunningPattern] = {}
        self._kept: dict[str, int] = {}
        """Events that the patterns of each user keep."""
        self._due = ExpiryIndex()
        self._changed: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, subscription: Subscription) -> None:
        """Begin with the empty state; a text that is no pattern any more detects nothing."""
        try:
            pattern = compiled(subscription.expression)
        except PatternError:
            return
        self._put(subscription.id, RunningPattern(subscription.owner, pattern, pattern.start()))

    def end(self, identity: str) -> None:
        """Forget the state of a subscription; does nothing for one without a pattern."""
        if (running := self._running.pop(identity, None)) is not None:
            self._count(running.owner, -running.kept)
            self._due.drop(identity, running.owner)
            self._changed[identity] = None

    def take(self, offset: int, identity: EventId, record: records.Published | records.Arrived) -> None:
        """Let the event of the record at ``offset`` wait in the patterns whose steps it matches.

        Those that read the log are passed over: they come to it there.
        """
        for subscription, leaves in record.delivery.steps:
            if (running := self._running.get(subscription)) is not None and running.read_us is None:
                self._take(subscription, running, leaves, offset, identity, record.event, record.at_us)

    def take_read(self, stepped: records.SteppedEvent) -> None:
        """Let an event wait in the patterns that have read it in the log."""
        event = decode_event(bytes(stepped.event))
        for subscription, leaves in stepped.steps:
            if (running := self._running.get(subscription)) is not None:
                self._take(subscription, running, leaves, stepped.offset, stepped.id, event, stepped.at_us)

    def _take(
        self,
        subscription: str,
        running: RunningPattern,
        leaves: int,
        offset: int,
        identity: EventId,
        event: Event,
        at_us: int,
    ) -> None:
        received_us = at_us
        if running.goes_by_receipt:
            # The clock of this server may be behind that of the one from which the subscription has come.
            received_us = max(at_us, running.latest_us, running.state.watermark_us)
        seen = running.pattern.seen(leaves, event.attributes, offset, str(identity), received_us, event.published_us)
        if seen is None:
            return
        running.take(seen, at_us)
        # An event from the future would make all others late.
        running.latest_us = max(running.latest_us, min(seen.time_us, received_us))
        if running.read_us is not None:
            running.read_us = running.latest_us
        self._put(subscription, running)

    def read_log(self, subscription: str) -> None:
        """Let a pattern take only what is read for it from the log; does nothing for a subscription without one."""
        if (running := self._running.get(subscription)) is not None:
            running.read_us = BEFORE_ALL_US
            self._put(subscription, running)

    def go_live(self, subscription: str) -> None:
        """Let a pattern that has read the log take events as they come."""
        if (running := self._running.get(subscription)) is not None:
            running.read_us = None
            self._put(subscription, running)

    def advance(self, subscription: str, now_us: int, turn: Turn) -> Advance:
        """Match what is certain at the broker's clock ``now_us``, as far as ``turn`` allows.

        The record of it has to follow at once: its fold repeats this, which changes nothing more.
        """
        running = self._running[subscription]
        watermark_us = running.watermark_us(now_us)
        matches = running.reach(watermark_us, turn)
        self._put(subscription, running)
        state = running.state
        is_whole = state.due_us >= state.watermark_us
        return Advance(
            running.pattern, watermark_us, matches, *((None, None) if is_whole else (state.steps, state.taken))
        )

    def repeat(self, record: records.Detected) -> None:
        """Match a pattern as far as a record says; does nothing for one that has ended."""
        if (running := self._running.get(record.subscription)) is not None:
            running.repeat(record)
            self._put(record.subscription, running)

    def take_over(self, subscription: str, row: PatternRow) -> None:
        """Continue with the state that another server has exported."""
        try:
            self._put(subscription, _loaded(msgspec.structs.replace(row, state=of_former_log(row.state), read_us=None)))
        except (PatternError, OtherPattern, msgspec.DecodeError):
            return  # a state of another version: the pattern detects nothing until it is subscribed again

    def row(self, subscription: str) -> PatternRow | None:
        """Return the state of a subscription, None if it has no pattern."""
        if (running := self._running.get(subscription)) is None:
            return None
        return running.whole_row()

    def is_due(self, subscription: str, now_us: int) -> bool:
        """Return whether a subscription has a pattern with something to match at the broker's clock ``now_us``."""
        running = self._running.get(subscription)
        return running is not None and (due_us := running.due_us) is not None and due_us <= now_us

    def kept(self, subscription: str) -> int | None:
        """Return how many events the pattern of a subscription keeps, None if it has no pattern."""
        return running.kept if (running := self._running.get(subscription)) else None

    def counts(self, subscription: str) -> Counts:
        """Return the counts of the pattern of a subscription."""
        return self._running[subscription].state.counts

    def kept_of(self, user: str) -> int:
        """Return how many events the patterns of a user keep."""
        return self._kept.get(user, 0)

    def due(self, now_us: int, most: int) -> list[str]:
        """Return at most ``most`` subscriptions with something to match at the broker's clock; advance each of them."""
        return self._due.due(now_us, most)

    @property
    def next_us(self) -> int | None:
        """Return the time of the broker's clock at which there is something to match, None if nothing is certain."""
        return self._due.next_us

    def _put(self, identity: str, running: RunningPattern) -> None:
        self._running[identity] = running
        self._count(running.owner, running.state.kept - running.kept)
        running.kept = running.state.kept
        self._due.put(identity, running.owner, running.due_us)
        self._changed[identity] = None

    def _count(self, owner: str, change: int) -> None:
        self._kept[owner] = self._kept.get(owner, 0) + change
        if not self._kept[owner]:
            del self._kept[owner]

    # As a table -------------------------------------------------------------------------------------------------

    def items(self) -> Iterator[tuple[str, PatternRow]]:
        """Yield all keys and rows."""
        return ((identity, row) for identity in self._running if (row := self.row(identity)))

    def load(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Take over rows as the store holds them; ``msgspec.DecodeError`` if one is not of this table."""
        decode = msgspec.msgpack.Decoder(PatternRow).decode
        for identity, data in rows:
            try:
                self._put(identity, _loaded(decode(data)))
            except PatternError:
                continue
            except OtherPattern as error:
                raise msgspec.DecodeError(f"the pattern of {identity}: {error}") from None
        self._changed.clear()

    def changes(self) -> Mapping[str, bytes | None]:
        """Return the rows changed since the last call, encoded; None for a row that is gone."""
        rows: dict[str, bytes | None] = {}
        size = WRITTEN_SIZE
        for identity in self._changed:
            running = self._running.get(identity)
            if running is None:
                rows[identity] = None
                continue
            former = running.stored
            rows[identity] = msgspec.msgpack.encode(running.row(size))
            size -= running.kept if running.stored is not former else 0
        self._changed.clear()
        return rows


def _loaded(row: PatternRow) -> RunningPattern:
    return RunningPattern.of_row(row, compiled(row.text))


def apply_detected(state: BrokerState, record: records.Detected) -> None:
    """Match a pattern as far as the record says, and add the notifications of its detections to the queues."""
    state.patterns.repeat(record)
    apply_events(state, record.events)
    drop_each(state, record.dropped)
