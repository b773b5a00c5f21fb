"""Answers from past events that Spark reads (SPEC T-04)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pyspark.sql import DataFrame

from wanderbus.pipeline.history import matches
from wanderbus.pipeline.history.answers import Found, PastDecision
from wanderbus.pipeline.history.arrivals import arrivals
from wanderbus.pipeline.history.event_files import Selection
from wanderbus.pipeline.history.event_lookup import explain
from wanderbus.pipeline.history.explanation import EventExplanation
from wanderbus.pipeline.history.lifetimes import Change, SubscriptionVersion, UserAbsence, changes_in
from wanderbus.pipeline.history.replays import replay
from wanderbus.pipeline.history.spark_batches import Events, at_offsets
from wanderbus.subscription import Subscription


class SparkHistory:
    """Events that are meant, those of the ``selection``, which are found in an ``order`` of columns.

    ``records`` reads the records of all at each call: a source of Spark must not be shared by scans with other filters.
    """

    def __init__(
        self,
        events: Events,
        records: Callable[[], DataFrame],
        selection: Selection,
        order: Sequence[str] = ("offset",),
    ) -> None:
        self.events = events
        self._order = order
        self._records = records
        self._selection = selection

    def matching(self, subscriptions: Iterable[Subscription], work_max: int) -> Iterator[Found]:
        """Return the events that match any of the subscriptions."""
        return self._found(self.events, subscriptions, work_max)

    def count(self, subscriptions: Iterable[Subscription], work_max: int) -> int:
        """Return the number of pairs of an event and a subscription that it matches."""
        return sum(row.events for row in matches.count(self.events, subscriptions, work_max).collect())

    def sample(self, subscriptions: Iterable[Subscription], size: int, seed: int, work_max: int) -> Iterator[Found]:
        """Return up to ``size`` of the events that match the subscriptions."""
        several = list(subscriptions)
        offsets = [row.offset for row in matches.sample(self.events, several, size, seed, work_max).collect()]
        return self._found(at_offsets(self.events, offsets), several, work_max)

    def undecided(self, subscriptions: Iterable[Subscription], work_max: int) -> int:
        """Return the number of pairs of an event and a subscription that are undecided."""
        return sum(matches.undecided(self.events, subscriptions, work_max).values())

    def explain(
        self, subscription: Subscription, offset: int, work_max: int, children: Mapping[str, tuple[str, ...]]
    ) -> EventExplanation:
        """Return the reason for which the event at ``offset`` matches, or does not."""
        return explain(self.events, subscription, offset, work_max, children)

    def changes(self) -> list[Change]:
        """Return the records of subscriptions, devices and starts."""
        return changes_in(self._records())

    def replay(
        self, versions: Sequence[SubscriptionVersion], absences: Iterable[UserAbsence], work_max: int
    ) -> Iterator[PastDecision]:
        """Return the decisions on the notifications of one subscription's versions."""
        arrived = self._selection.of_rows(arrivals(self._records()))
        rows = replay(self.events, versions, absences, arrived=arrived, work_max=work_max).orderBy("offset")
        for row in rows.toLocalIterator():
            yield PastDecision(row.offset, row.at_us, row.restricted_by, row.undecided)

    def _found(self, events: Events, subscriptions: Iterable[Subscription], work_max: int) -> Iterator[Found]:
        found = matches.matching_events(events, subscriptions, work_max).orderBy(*self._order)
        for row in found.toLocalIterator():
            yield Found(row.offset, row.at_us, bytes(row.event), row.user)
