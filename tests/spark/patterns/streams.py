"""Streams of events for patterns, in the forms that the pipeline has."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa

from tests.published import published
from tests.spark.history.batches import Form, batch_of
from wanderbus.event import Event, EventId
from wanderbus.patterns import NEVER_US, AcceptedEvent, Detection, Pattern
from wanderbus.records import encode_record

START_US = 1_700_000_000_000_000


def random_stream(count: int, seed: int) -> list[AcceptedEvent]:
    """Return events of some keys at times that are often equal; some lack the key, and some belong to no step."""
    draw = random.Random(seed)
    found, at_us = [], START_US
    for offset in range(count):
        at_us += draw.choice([0, 0, 1, 400_000, 1_500_000])
        attributes = {"k": draw.choice(["x", "y", "z", 1, 1.0, 2]), "kind": draw.choice("abcd"), "v": draw.randrange(4)}
        if draw.random() < 0.05:
            del attributes["k"]
        event = Event(draw.choice(["event", "event", "event", "other"]), attributes, at_us - draw.randrange(3_000_000))
        found.append(AcceptedEvent(event, offset, at_us, f"s-1-{offset}"))
    return found


def batch(occurrences: Sequence[AcceptedEvent], form: Form) -> pa.RecordBatch:
    """Return events as a batch with the columns that patterns need."""
    rows = batch_of([each.event for each in occurrences], form)
    offsets = pa.array([each.offset for each in occurrences], pa.int64())
    rows = rows.set_column(0, "offset", offsets)
    rows = rows.append_column("at_us", pa.array([each.received_us for each in occurrences], pa.int64()))
    if form == "record":
        records = [
            encode_record(published(each.event, number=each.offset, id=EventId("s", 1, each.offset)))
            for each in occurrences
        ]
        return rows.set_column(2, "record", pa.array(records, pa.binary()))
    published_us = pa.array([each.event.published_us for each in occurrences], pa.int64())
    rows = rows.append_column("published_us", published_us)
    rows = rows.append_column("server", pa.array(["s"] * len(occurrences), pa.string()))
    rows = rows.append_column("incarnation", pa.array([1] * len(occurrences), pa.int64()))
    return rows.append_column("number", offsets)


def expected(pattern: Pattern, occurrences: Sequence[AcceptedEvent]) -> list[Detection]:
    """Return the detections of the automaton alone, which gets all events at once."""
    return pattern.advance(pattern.start(), pattern.classify(occurrences), NEVER_US)[1]
