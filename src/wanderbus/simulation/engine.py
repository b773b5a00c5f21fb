"""A matching engine that reads the durable log of a simulated server, as the one on Spark does (SPEC T-06).

It names too many subscriptions: those that were added after an event, and those that had ended before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wanderbus import filters
from wanderbus.broker.engine.engine_event import engine_event, is_for_engine
from wanderbus.broker.messages import EngineEvent, MatchesRead, MatchesWanted
from wanderbus.broker.state.exported_session import decode_export
from wanderbus.channels.hierarchy import Hierarchy
from wanderbus.event import Event
from wanderbus.filters.work import Sizes, work_of
from wanderbus.records import Arrived, Changed, Published, SessionImported, Subscribed, decode_record
from wanderbus.subscription import PATTERN, Subscription, concerns

RETRY_S: Final = 0.4
"""Time after which an engine that is away is asked again, unless the world says otherwise."""


class SimulatedEngine:
    """Answers requests from ``log``, the payloads of the durable records, which the caller extends."""

    def __init__(self, log: Sequence[bytes]) -> None:
        self.log = log
        self.events_max = 256
        """Events of one answer."""
        self.retry_s = RETRY_S
        self.is_away = False
        """True while it cannot answer."""
        self._number = 0
        self._next = 0
        self._followed = 0
        """Records below this were searched for changes of subscriptions."""
        self._known: dict[str, tuple[Subscription, filters.Filter]] = {}
        self._work_max = 0
        self._lineage = Hierarchy({}).lineage

    def forget(self) -> None:
        """Lose everything, as a process that is killed and started again."""
        self._number, self._known = 0, {}

    def answer(self, wanted: MatchesWanted, end: int) -> MatchesRead:
        """Return the answer of an engine that may be away."""
        if self.is_away:
            return MatchesRead(wanted.number, wanted.first, failed="the engine is away", retry_s=self.retry_s)
        return self.read(wanted, end)

    def read(self, wanted: MatchesWanted, end: int) -> MatchesRead:
        """Return the matches in the records below ``end``."""
        if wanted.subscriptions is not None:
            self._number, self._next, self._followed = wanted.number, wanted.first, wanted.first
            self._known, self._work_max = {}, wanted.filter_work_max
            self._lineage = Hierarchy(wanted.parents).lineage
            for each in wanted.subscriptions:
                self._add(each)
        if wanted.number != self._number or not wanted.number or wanted.first < self._next:
            return MatchesRead(wanted.number, wanted.first, is_lost=True)
        self._next = wanted.first
        self._follow(end)
        found: list[EngineEvent] = []
        offset = wanted.first
        while offset < end and len(found) < self.events_max:
            record = decode_record(self.log[offset])
            if is_for_engine(record) and (matched := self._matched(offset, record)):
                found.append(matched)
            offset += 1
        return MatchesRead(wanted.number, max(offset, wanted.first), tuple(found))

    def _follow(self, end: int) -> None:
        for payload in self.log[self._followed : end]:
            match decode_record(payload):
                case Subscribed(subscription=subscription) | Changed(subscription=subscription):
                    self._add(subscription)
                case SessionImported(export=export):
                    exported = decode_export(export)
                    for row in (*exported.subscriptions, *exported.ended):
                        self._add(row.subscription)
        self._followed = max(self._followed, end)

    def _add(self, subscription: Subscription) -> None:
        if subscription.language == PATTERN:
            return
        self._known[subscription.id] = subscription, filters.parse(subscription.expression, subscription.language)

    def _matched(self, offset: int, record: Published | Arrived) -> EngineEvent | None:
        event = record.event
        subjects = self._lineage(event.subject)
        own = {
            each: test
            for each, (wanted, test) in self._known.items()
            if any(concerns(wanted.subject, subject) for subject in subjects)
        }
        undecided = tuple(each for each, test in own.items() if self._is_costly(test, event))
        matched = tuple(each for each, test in own.items() if each not in undecided and test.matches(event))
        if not matched and not undecided:
            return None
        return engine_event(offset, record, matched, undecided)

    def _is_costly(self, test: filters.Filter, event: Event) -> bool:
        return work_of(test.root).units(Sizes(event.attributes)) > self._work_max
