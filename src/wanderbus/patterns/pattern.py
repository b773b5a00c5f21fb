"""A compiled pattern of compound events (SPEC T-07, S-06)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from wanderbus.patterns import state as states
from wanderbus.patterns.automaton import MatchNode, Seen
from wanderbus.patterns.bounds import (
    EVENTS_PER_MATCH_MAX,
    EVENTS_WAITING_MAX,
    PARTIAL_MATCHES_MAX,
    WORK_PER_EVENT_MAX,
    Bounds,
)
from wanderbus.patterns.classification import Classifier
from wanderbus.patterns.construction import construct
from wanderbus.patterns.costs import EMPTY_DETECTION, cost_of, total
from wanderbus.patterns.evaluation import compile_expression
from wanderbus.patterns.matcher import PatternMatcher
from wanderbus.patterns.occurrence import AcceptedEvent
from wanderbus.patterns.reactions import Tables
from wanderbus.patterns.reading import read
from wanderbus.patterns.state import NEVER_US, Complete, Detection, KeyState, PatternState, StepEvent
from wanderbus.patterns.tree import Leaf
from wanderbus.patterns.turn_matching import TurnMatching
from wanderbus.patterns.turns import Turn

if TYPE_CHECKING:
    from numpy import ndarray

    from wanderbus.matching.table import EventTable


def compile_pattern(
    text: str,
    *,
    partial_matches_max: int = PARTIAL_MATCHES_MAX,
    events_waiting_max: int = EVENTS_WAITING_MAX,
    events_per_match_max: int = EVENTS_PER_MATCH_MAX,
    work_per_event_max: int = WORK_PER_EVENT_MAX,
) -> Pattern:
    """Return the pattern that ``text`` describes; raise :class:`wanderbus.errors.PatternError` with the position.

    The bounds hold for each key. What exceeds one is refused and counted in :attr:`PatternState.counts`.
    """
    return Pattern(text, Bounds(partial_matches_max, events_waiting_max, events_per_match_max, work_per_event_max))


class Pattern:
    """A compiled pattern: classifies events, and finds detections in them.

    It is immutable and has no state: :meth:`start` makes one and :meth:`advance` moves it. :func:`compile_pattern`
    makes patterns.
    """

    def __init__(self, text: str, bounds: Bounds, children: Mapping[str, tuple[str, ...]] = {}) -> None:
        """Compile ``text``; a step that takes a subject takes its ``children`` too, all subjects below it."""
        self.children = children
        self.declaration = read(text)
        """Syntax tree."""
        self.bounds = bounds
        self.automaton = construct(self.declaration)
        self._classifier = Classifier(self.declaration, children)
        places = {name: place for place, name in enumerate(self._classifier.attributes)}
        tables = Tables(self.automaton, self.declaration.steps, places)
        self._matcher = PatternMatcher(tables, self.declaration.within_us, self.declaration.selection, bounds)
        self._emitted = [
            (name, compile_expression(expression, places)) for name, expression in self.declaration.emitted
        ]
        emitted = total(cost_of(expression) for _, expression in self.declaration.emitted)
        self._detection_cost = emitted.plus(EMPTY_DETECTION)

    @property
    def text(self) -> str:
        """Text as given."""
        return self.declaration.text

    @property
    def name(self) -> str:
        """Name of the pattern, ``pattern`` if the text gives none."""
        return self.declaration.name

    @property
    def fingerprint(self) -> str:
        """Name of the meaning of a stored state: that of the text, as hexadecimal digits."""
        return blake2b(self.text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Subject and filter of each step, in the order of their bits in :attr:`Seen.leaves`."""
        return tuple(step.leaf for step in self.declaration.steps)

    @property
    def keys(self) -> tuple[str, ...]:
        """Attributes of the key; none if all events are one sequence."""
        return self.declaration.keys

    @property
    def attributes(self) -> tuple[str, ...]:
        """Attributes that conditions and detections use, in the order of :attr:`Seen.values`."""
        return self._classifier.attributes

    @property
    def within_us(self) -> int:
        """Longest time from the first to the last event of a match, in microseconds."""
        return self.declaration.within_us

    @property
    def lateness_us(self) -> int:
        """Time by which an event may come late, in microseconds."""
        return self.declaration.lateness_us

    def watermark_us(self, latest_us: int) -> int:
        """Return the watermark after an event of the time ``latest_us``: events below it count as late."""
        return latest_us - self.lateness_us

    def leaves_of(self, subject: str, attributes: Mapping[str, Any]) -> int:
        """Return a bit for each step whose leaf an event matches; an event without any bit takes no part."""
        return self._classifier.leaves(subject, attributes)

    def leaves_of_table(self, table: EventTable) -> ndarray[Any, Any]:
        """Return the same for each row of a table, as 64-bit integers, by the matching index; needs numpy."""
        return self._classifier.table_leaves(table)

    def seen(
        self,
        leaves: int,
        attributes: Mapping[str, Any],
        offset: int,
        id: str,
        received_us: int,
        published_us: int | None = None,
    ) -> Seen | None:
        """Return an event as :meth:`advance` takes it, None if it takes no part: no leaf, no key, or no time.

        ``attributes`` needs only those of :attr:`keys` and :attr:`attributes`, and the attribute of the event time.
        """
        return self._classifier.seen(leaves, attributes, offset, id, received_us, published_us)

    def classify(self, occurrences: Iterable[AcceptedEvent]) -> list[Seen]:
        """Return the events that take part, as :meth:`advance` takes them."""
        return self._classifier.classify(occurrences)

    def start(self) -> PatternState:
        """Return the state before the first event."""
        return PatternState()

    def advance(
        self, state: PatternState, events: Iterable[Seen], watermark_us: int, *, late_below_us: int | None = None
    ) -> tuple[PatternState, list[Detection]]:
        """Return the state after ``events`` and a watermark, and the detections that are certain by then.

        ``events`` may be in any order and contain repeats. Those below the watermark of the state are late: they are
        refused and counted. The others wait in the state until the watermark is above them. Detections are in order of
        :attr:`Detection.at_us`, which is below the watermark. A lower watermark than the last one changes nothing.

        Neither the division into batches nor the order of events within the lateness changes the detections. A state
        of a single key, that is not advanced while its key has no events, needs ``late_below_us``, the watermark
        before this batch.

        ``state`` is used up: use the one that is returned.
        """
        state = self.add(state, events, watermark_us, late_below_us=late_below_us)
        matched = self.match(state)
        return state, [self.detection(each) for each in matched]

    def add(
        self, state: PatternState, events: Iterable[Seen], watermark_us: int, *, late_below_us: int | None = None
    ) -> PatternState:
        """Return the state after events and a watermark, as :meth:`advance` does, before anything is matched."""
        bound_us = states.BEFORE_ALL_US if late_below_us is None else late_below_us
        self._add(state, events, max(state.watermark_us, bound_us))
        self._drop_stale(state)
        state.watermark_us = max(state.watermark_us, watermark_us)
        return state

    def match(self, state: PatternState, turn: Turn | None = None) -> list[Complete]:
        """Match the events below the watermark, and return the complete matches in order.

        With a ``turn``, no more than it allows; the next call continues.
        """
        if turn is None:
            found = self._match_all(state)
        else:
            found = TurnMatching(state, self._matcher, turn, self._detection_cost).run()
        self._drop_stale(state)
        state.counts.detections += len(found)
        return found

    def detection(self, match: Complete) -> Detection:
        """Return a complete match as a detection, with the values that the pattern emits."""
        attributes = {name: _scalar(value) for name, get in self._emitted if (value := get(match.node)) is not None}
        return self._detection(match, attributes)

    def empty_detection(self, match: Complete) -> Detection:
        """Return the same without any value, which takes little work."""
        return self._detection(match, {})

    def detection_work(self, match: Complete) -> int:
        """Return the most units of work of a detection with its values."""
        return self._detection_cost.units(match.node.units)

    def _match_all(self, state: PatternState) -> list[Complete]:
        watermark_us = state.watermark_us
        found, timers, keys = list(state.complete), state.timers, state.keys
        state.complete.clear()
        state.kept -= sum([each.node.units for each in found])
        while timers and timers[0][0] < watermark_us:
            due_us, name = heappop(timers)
            key = keys.get(name)
            if key is None or key.due_us != due_us:
                continue
            for at_us, node in self._matcher.advance(key, watermark_us, state.counts):
                found.append(Complete(at_us, node, name))
            state.kept += key.count()
            if key.due_us == NEVER_US:
                del keys[name]
            else:
                heappush(timers, (key.due_us, name))
        found.sort(key=states.in_order)
        state.steps = state.taken = 0
        return found

    def save(self, state: PatternState) -> bytes:
        """Return a state as bytes, which :meth:`load` of the same pattern reads."""
        return states.save(state, self.fingerprint)

    def load(self, data: bytes) -> PatternState:
        """Return the state that was saved.

        :raises OtherPattern: the bytes are the state of a pattern with another text, or none
        """
        return states.load(data, self.fingerprint)

    def _add(self, state: PatternState, events: Iterable[Seen], late_below_us: int) -> None:
        """Put events among those that wait."""
        keys, timers, counts = state.keys, state.timers, state.counts
        for seen in events:
            time_us = seen.time_us
            if time_us < late_below_us:
                counts.late += 1
                continue
            key = keys.get(seen.key)
            if key is None:
                key = keys[seen.key] = KeyState({}, [])
            place = (time_us, seen.offset)
            if place in key.waiting:
                counts.repeated += 1
            elif len(key.waiting) >= self.bounds.events_waiting_max:
                counts.waiting_full += 1
            else:
                state.kept += key.wait(place, seen)
                if time_us < key.due_us:
                    key.due_us = time_us
                    heappush(timers, (time_us, seen.key))

    def _drop_stale(self, state: PatternState) -> None:
        """Remove timers of keys whose time has changed, if they are first or many."""
        timers, keys = state.timers, state.keys
        if len(timers) > 2 * len(keys) + 16:
            timers[:] = [(key.due_us, name) for name, key in keys.items()]
            heapify(timers)
        while timers and ((key := keys.get(timers[0][1])) is None or key.due_us != timers[0][0]):
            heappop(timers)

    def _detection(self, match: Complete, attributes: dict[str, Any]) -> Detection:
        steps = self.declaration.steps
        taken: list[StepEvent] = []
        last: MatchNode | None = match.node
        while last is not None:
            taken.append(StepEvent(steps[last.step].name, last.seen.offset, last.seen.id))
            last = last.before
        events = tuple(reversed(taken))
        return Detection(self.name, match.key, match.at_us, events, self.declaration.subject, attributes)


def _scalar(value: Any) -> Any:
    """Return a value as an attribute: a duration in seconds, a list as a copy."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    return list(value) if isinstance(value, list) else value
