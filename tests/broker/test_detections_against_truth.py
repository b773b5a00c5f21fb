"""Patterns inside the broker find what the automaton and the enumerator find, over crashes and late events (T-07)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.desk import ALICE, BOB, START_US, Desk, rows_of
from tests.patterns.cases import SECOND_US, patterns, streams, text_of
from tests.patterns.enumerator import E, P, matches, steps_of
from wanderbus import protocol
from wanderbus.errors import PatternError
from wanderbus.event import Event, EventId
from wanderbus.patterns import NEVER_US, AcceptedEvent, compile_pattern
from wanderbus.records import Detected, Published, decode_record
from wanderbus.subscription import PATTERN

LATENESS_S = 2
FLUSH_S = 100


class Match(NamedTuple):
    """A detection: when it was complete, in seconds of the stream, and the offsets of its events in the log."""

    at: float
    offsets: tuple[int, ...]


class Stand:
    """A desk with one subscription to a pattern, which crashes on request."""

    def __init__(self, text: str) -> None:
        self.desk = Desk()
        self.text = text
        self.lives = 1
        self.link = self.desk.attach()
        self.desk.subscribed(self.link, text, subject="p", language=PATTERN)
        self.bob = self.desk.attach(BOB, "laptop")

    def crash(self, how: str) -> None:
        """Do nothing, save the state, or restart with or without it."""
        if how in ("save", "both"):
            self.desk.save()
        if how in ("restart", "both"):
            self.desk.restart(with_rows=True)
        if how == "lose":
            self.desk.restart()
        if how in ("restart", "both", "lose"):
            self.lives += 1
            self.bob = self.desk.attach(BOB, "laptop", epoch=self.lives)

    def publish(self, event: E, **more: datetime) -> None:
        """Publish an event of the stream."""
        value = {} if event.value is None else {"v": event.value}
        self.desk.publish(self.bob, 0, "event", k=event.key, kind=event.kind, **value, **more)

    def published(self) -> list[tuple[int, int, Event]]:
        """Offset, time and event of each record of an event."""
        found = [(n, decode_record(payload)) for n, payload in enumerate(self.desk.log)]
        return [(n, record.at_us, record.event) for n, record in found if isinstance(record, Published)]

    def detected(self) -> list[Match]:
        """All detections, as they were recorded; each was sent to the subscriber, once and in order."""
        records = [each for payload in self.desk.log if isinstance(each := decode_record(payload), Detected)]
        events = [protocol.decode_event(bytes(one.event)) for record in records for one in record.events]
        link = self.desk.attach(epoch=self.lives + 1)
        self.desk.later(10)  # the backlog is paced
        sent = [protocol.decode_event(bytes(each.event)) for each in self.desk.received(link, protocol.Notify)]
        assert sent == events
        assert rows_of(self.desk.recovered(from_log_alone=True)) == rows_of(self.desk.broker.state)
        assert rows_of(self.desk.recovered()) == rows_of(self.desk.broker.state)
        return [
            Match(
                ((each.published_us or 0) - START_US) / SECOND_US,
                tuple(EventId.parse(str(name)).number for name in each.get_all("events")),
            )
            for each in events
        ]


def of_enumerator(pattern: P, events: Sequence[E]) -> list[Match]:
    return [Match(each.at, tuple(offset for _, offset, _ in each.events)) for each in matches(pattern, events)]


def of_batch(text: str, events: Sequence[tuple[int, int, Event]]) -> list[Match]:
    pattern = compile_pattern(text)
    seen = pattern.classify(AcceptedEvent(event, offset, at_us) for offset, at_us, event in events)
    _, found = pattern.advance(pattern.start(), seen, NEVER_US)
    return [Match((each.at_us - START_US) / SECOND_US, tuple(one.offset for one in each.events)) for each in found]


crashes = st.lists(st.sampled_from(["", "", "", "save", "restart", "lose", "both"]), min_size=12, max_size=12)


def compiles(text: str) -> bool:
    try:
        compile_pattern(text)
    except PatternError:
        return False
    return True


@settings(max_examples=150, deadline=None)
@given(patterns(), streams(), crashes, st.booleans())
def test_receipt_time(pattern: P, stream: list[E], plan: list[str], pauses: bool) -> None:
    text = text_of(pattern)
    if not compiles(text):
        return
    stand = Stand(text)
    for event, how in zip(sorted(stream), plan, strict=False):
        stand.desk.later(max(0, event.time - stand.desk.now))
        stand.publish(event)
        if pauses:
            stand.desk.later(0.25)
        stand.crash(how)
    stand.desk.later(FLUSH_S)
    published = stand.published()
    found = stand.detected()
    assert found == of_batch(text, published)
    if not pauses:
        own = sorted(stream)
        truth = [
            E(event.time, offset, event.key, event.kind, event.value)
            for event, (offset, _, _) in zip(own, published, strict=True)
        ]
        assert sorted(found) == sorted(of_enumerator(pattern, truth))


@settings(max_examples=150, deadline=None)
@given(patterns(), st.permutations(range(9)), streams(), crashes)
def test_event_time_with_late_and_repeated_events(
    pattern: P, order: list[int], stream: list[E], plan: list[str]
) -> None:
    text = f"{text_of(pattern)} on event time at lateness {LATENESS_S} seconds"
    if not compiles(text):
        return
    coming = [stream[place] for place in order if place < len(stream)]
    stand = Stand(text)
    stand.desk.later(10 * FLUSH_S)
    kinds = set("".join(step.kinds for step in steps_of(pattern.root)))
    for event, how in zip(coming, plan, strict=False):
        stand.publish(event, at=_at(event.time))
        stand.desk.later(0.001)
        stand.crash(how)
    kept, latest = list[E](), -(10**9)
    for event, (offset, _, _) in zip(coming, stand.published(), strict=True):
        if event.kind in kinds:
            if event.time >= latest - LATENESS_S:
                kept.append(event._replace(offset=offset))
            latest = max(latest, event.time)
    last = len(stand.desk.log)
    for kind in "abc":
        stand.publish(E(0, 0, "flush", kind, None), at=_at(FLUSH_S))
    stand.desk.later(1)
    found = [each for each in stand.detected() if max(each.offsets) < last]
    assert sorted(found) == sorted(of_enumerator(pattern, kept))


def _at(seconds: int) -> datetime:
    return datetime.fromtimestamp(START_US / SECOND_US, UTC) + timedelta(seconds=seconds)


def test_streams_have_detections() -> None:
    """The worlds above are not empty: a plain pattern over a plain stream has detections on both kinds of time."""
    stand = Stand("pattern p by k match A: event (kind == a) then B: event (kind == b) within 5 seconds")
    for time, kind in enumerate("aab"):
        stand.desk.later(max(0, time - stand.desk.now))
        stand.publish(E(time, 0, "x", kind, 1))
        stand.crash("both")
    stand.desk.later(FLUSH_S)
    assert len(stand.detected()) == 2
    assert stand.desk.broker.state.sessions[f"{ALICE}/default"].generated == 2
