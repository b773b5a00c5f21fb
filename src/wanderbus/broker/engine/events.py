"""Events for the matching engine: they are accepted and acknowledged before they are matched (SPEC T-06)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Final

from wanderbus.broker.interest.phase_counts import PhaseCounts
from wanderbus.broker.signals import BrokerOutput
from wanderbus.broker.state.engine_events import is_waited_for
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.rows import SubscriptionRow
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.hierarchy import Hierarchy
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.event import EventId
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.subject_globs import any_of
from wanderbus.records import SPARK, Acceptance, Arrival, Arrived, Published
from wanderbus.subscription import EVERY_SUBJECT, PATTERN, Subscription

WAITING_MAX: Final = 65_536
"""Arrivals that are remembered; older ones are left out of the figures, as are those from before a restart."""


class WaitingArrivals:
    """Arrivals that wait for the engine, by the offsets of their records, to report whether a subscription matched."""

    def __init__(self, journal: Journal, phases: PhaseCounts) -> None:
        self._journal = journal
        self._phases = phases
        self._waiting: deque[tuple[int, Callable[[bool], BrokerOutput] | None]] = deque(maxlen=WAITING_MAX)

    def add(self, offset: int, report: Callable[[bool], BrokerOutput] | None) -> None:
        """Remember the arrival at ``offset``; ``report`` makes the output that tells whether it was matched."""
        self._waiting.append((offset, report))

    def reach(self, end: int, matched: Container[int]) -> None:
        """Report the arrivals below ``end``; ``matched`` has the offsets of those that a subscription matched."""
        while self._waiting and self._waiting[0][0] < end:
            offset, report = self._waiting.popleft()
            is_matched = offset in matched
            self._phases.at_destination(is_matched=is_matched)
            if report is not None:
                self._journal.emit_now(report(is_matched))


class EngineEvents:
    """The subjects that the engine matches, and the offset below which it has matched their events."""

    def __init__(
        self,
        state: BrokerState,
        journal: Journal,
        config: BrokerConfig,
        channels: OwnChannels | None,
        phases: PhaseCounts,
    ) -> None:
        self.arrivals = WaitingArrivals(journal, phases)
        """Events of other servers that wait for the engine."""
        self.parents: Mapping[str, str] = {} if channels is None else channels.parents
        """Parents of subjects."""
        self._state = state
        self._journal = journal
        server = state.servers[state.server]
        # A subject stays with the engine while its events wait there: the broker's own match would overtake them.
        left = server.engine_subjects if is_waited_for(state) else ()
        self.subjects: tuple[str, ...] = tuple(dict.fromkeys((*config.spark_subjects, *left)))
        """Patterns of the subjects that the engine matches until the next start."""
        self.remaining: tuple[str, ...] = tuple(each for each in left if each not in config.spark_subjects)
        """Those of them that are there only because their events wait."""
        self._pattern = any_of(self.subjects)
        self._below = Hierarchy({}).below if channels is None else channels.below
        self._decentralised = None if channels is None else channels.decentralised
        # An effect that the broker matches would overtake its cause that waits for the engine: all of them or none.
        self._has_every_subject = EVERY_SUBJECT in self.subjects
        self.away_reason = ""
        """Why the engine does not answer, "" while it does."""
        self._reached = 0

    def is_for_engine(self, subject: str) -> bool:
        """Return whether the engine matches the events of ``subject``.

        Those of decentralised channels are in causal order, across subjects. So the engine has all or none of them.
        """
        if self._pattern is None or self._pattern.match(subject) is None:
            return False
        return self._has_every_subject or self._decentralised is None or not self._decentralised.has(subject)

    def concerns(self, subject: str) -> bool:
        """Return whether the engine matches events for a subscription to ``subject``."""
        if subject == EVERY_SUBJECT:
            return bool(self.subjects)
        return any(map(self.is_for_engine, self._below(subject)))

    def accept(self, acceptance: Acceptance, causal: bytes = b"") -> EventId:
        """Write an accepted event, which the engine will match; return its id. ``causal`` is its encoded header."""
        published = Published(at_us=self._state.wall_us, acceptance=acceptance, engine=SPARK, causal=causal)
        self._journal.write(published, urgent=True)
        return acceptance.id

    def take(self, arrival: Arrival, report: Callable[[bool], BrokerOutput] | None, causal: bytes = b"") -> None:
        """Write an event of another server, which the engine will match; ``report`` is made once it has."""
        arrived = Arrived(at_us=self._state.wall_us, arrival=arrival, engine=SPARK, causal=causal)
        self.arrivals.add(self._journal.write(arrived, urgent=True), report)

    @property
    def is_in_use(self) -> bool:
        """Return whether there are such subjects, or such events."""
        return self._pattern is not None or is_waited_for(self._state)

    @property
    def is_waiting(self) -> bool:
        """Return whether an event waits for the engine."""
        return self.matched_below < self._state.servers[self._state.server].engine_end

    @property
    def is_mixed(self) -> bool:
        """Return whether the engine has some subjects only, so that matches come in another order than their events."""
        return bool(self.subjects) and not self._has_every_subject

    def has_matched(self, offset: int) -> bool:
        """Return whether no event below ``offset`` waits for the engine."""
        return not self.is_waiting or self.matched_below >= offset

    @property
    def records_behind(self) -> int:
        """Return the number of records up to the last one that waits for the engine."""
        return max(0, self._state.servers[self._state.server].engine_end - self.matched_below)

    def lag(self, offset: int) -> str:
        """Return how far the engine is behind, "" if no event below ``offset`` waits for it."""
        if self.has_matched(offset):
            return ""
        reason = self.away_reason and f", and away: {self.away_reason}"
        count = self.records_behind
        return f"its matching engine is {count} record{'s' * (count != 1)} behind{reason}"

    @property
    def matched_below(self) -> int:
        """Return the offset below which the engine has matched all its events."""
        return max(self._reached, self._state.servers[self._state.server].engine_next)

    def is_coming(self, row: SubscriptionRow) -> bool:
        """Return whether the engine may still match events for former lives of a subscription."""
        return self.is_waiting and any(life.end > self.matched_below for life in row.former)

    def note_away(self, reason: str) -> None:
        """Remember why the engine does not answer, with "" that it does."""
        self.away_reason = reason

    def reach(self, offset: int) -> None:
        """Remember that the engine has matched all its events below ``offset``."""
        self._reached = max(self._reached, offset)

    def subscriptions(self) -> Iterator[Subscription]:
        """Yield every subscription that may get events that the engine has not matched."""
        for row in self._state.subscriptions.values():
            if self._has_events_for(row.subscription):
                yield row.subscription
        for row in self._state.tombstones.values():
            if self._has_events_for(row.subscription) and self.is_coming(row):
                yield row.subscription

    def _has_events_for(self, subscription: Subscription) -> bool:
        return subscription.language != PATTERN and self.concerns(subscription.subject)
