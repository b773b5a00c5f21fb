"""Compound events: events per second of the automaton and of classification, beside a program written by hand.

The pattern is a late arrival, then a later departure of the same aircraft within two hours without a change of aircraft
between. Events of 2,000 aircraft, one every tenth of a second, come in batches of 5,000; in the skewed stream every
fourth event is of one aircraft. Rates are of processor time. The program by hand answers the same question with a
dictionary and two comparisons, for this one pattern, without repeats, lateness or bounds; its detections are compared.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from harness.reporting import Goal, finish, goal, median, progress
from wanderbus.event import Event
from wanderbus.matching.rows import NUMBER
from wanderbus.matching.table import EventTable
from wanderbus.matching.table_columns import Doubles, Texts
from wanderbus.patterns import NEVER_US, AcceptedEvent, Detection, Pattern, Seen, compile_pattern

PATTERN: Final = """
pattern late_turnaround by Tail
match A: arrival (delay > 30)
 then not C: swap
 then B: departure (delay > 15) where (B.delay > A.delay)
within 2 hours
emit late_turnaround with Tail = A.Tail, added = B.delay - A.delay
"""
WITHIN_US: Final = 7_200_000_000
SUBJECTS: Final = ("arrival", "departure", "departure", "swap", "boarding")
AIRCRAFT: Final = 2_000
BATCH: Final = 5_000
ROUNDS: Final = 5


class Stream(NamedTuple):
    """Events with their offsets and times, and the same as a table."""

    occurrences: list[AcceptedEvent]
    table: EventTable


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status."""
    options = _options(arguments)
    pattern = compile_pattern(PATTERN)
    figures: list[Goal] = []
    rows, rates = [], {}
    for name, skew in (("keyed", 0.0), ("skewed", 0.25)):
        progress(f"{name} stream of {options.events} events")
        row, measured = _measured(pattern, make_stream(options.events, skew))
        rows.append({"stream": name, **row})
        rates[name] = measured.pop("events_per_s")
        figures += [goal(f"{name}_pattern_{figure}", value, "1/s") for figure, value in measured.items()]
    goals = [
        goal("pattern_events_per_s", rates["keyed"], "1/s", least=50_000),
        goal("skewed_pattern_events_per_s", rates["skewed"], "1/s", least=50_000),
        goal("pattern_bench_differences", sum(row["differences"] for row in rows), "detections or events", most=0),
        *figures,
    ]
    return finish("bench patterns", rows, goals, file=options.json, strict=options.strict)


def _measured(pattern: Pattern, stream: Stream) -> tuple[dict[str, Any], dict[str, float]]:
    """Return a row of the results, and the figures; each rate is the median of some rounds, which take turns."""
    count = len(stream.occurrences)
    seen = pattern.classify(stream.occurrences)
    pattern.leaves_of_table(stream.table)
    times: dict[str, list[float]] = {"advance": [], "classify": [], "table": [], "by_hand": []}
    for _ in range(ROUNDS):
        times["advance"].append(_processor_s(lambda: detections_of(pattern, seen)))
        times["classify"].append(_processor_s(lambda: pattern.classify(stream.occurrences)))
        times["table"].append(_processor_s(lambda: pattern.leaves_of_table(stream.table)))
        times["by_hand"].append(_processor_s(lambda: by_hand(stream.occurrences)))
    detections = detections_of(pattern, seen)
    expected = by_hand(stream.occurrences)
    got = [(each.events[0].offset, each.events[1].offset, each.attributes["added"]) for each in detections]
    took = {name: median(each) for name, each in times.items()}
    figures = {
        "events_per_s": len(seen) / took["advance"],
        "classified_per_s": count / took["classify"],
        "table_rows_per_s": count / took["table"],
        "by_hand_per_s": count / took["by_hand"],
    }
    row = {
        "events": count,
        "taking_part": len(seen),
        "detections": len(got),
        "times_as_long_as_by_hand": (took["classify"] + took["advance"]) / took["by_hand"],
        "differences": len(set(got) ^ set(expected)) + _leaf_differences(pattern, stream),
        **{f"{name}_s": value for name, value in took.items()},
    }
    return row, figures


def _leaf_differences(pattern: Pattern, stream: Stream) -> int:
    """Return the number of events that the table classifies in another way than one by one."""
    events = (each.event for each in stream.occurrences)
    one_by_one = [pattern.leaves_of(event.subject, event.attributes) for event in events]
    return int((pattern.leaves_of_table(stream.table) != np.array(one_by_one)).sum())


def detections_of(pattern: Pattern, seen: Sequence[Seen]) -> list[Detection]:
    """Return the detections in events that come in batches, in order of time."""
    state, found = pattern.start(), list[Detection]()
    for first in range(0, len(seen), BATCH):
        batch = seen[first : first + BATCH]
        state, detections = pattern.advance(state, batch, batch[-1].time_us)
        found += detections
    state, detections = pattern.advance(state, (), NEVER_US)
    return found + detections


def by_hand(occurrences: Sequence[AcceptedEvent]) -> list[tuple[int, int, int]]:
    """Return offset of arrival, offset of departure and added delay, for events in order of time."""
    waiting: dict[str, list[tuple[int, int, int]]] = {}
    found = []
    for each in occurrences:
        subject, attributes = each.event.subject, each.event.attributes
        tail, delay, at_us = attributes["Tail"], attributes["delay"], each.received_us
        if subject == "arrival" and delay > 30:
            waiting.setdefault(tail, []).append((at_us, each.offset, delay))
        elif subject == "swap":
            waiting.pop(tail, None)
        elif subject == "departure" and delay > 15 and tail in waiting:
            left = []
            for arrival in waiting[tail]:
                arrived_us, offset, late = arrival
                if at_us - arrived_us > WITHIN_US:
                    continue
                if delay > late:
                    found.append((offset, each.offset, delay - late))
                else:
                    left.append(arrival)
            waiting[tail] = left
    return found


def make_stream(count: int, skew: float) -> Stream:
    """Return a stream in which a ``skew`` share of the events is of one aircraft."""
    draw = random.Random(20_130_101)
    tails = [f"N{number:05}" for number in range(AIRCRAFT)]
    subjects = [draw.choice(SUBJECTS) for _ in range(count)]
    aircraft = [0 if draw.random() < skew else draw.randrange(AIRCRAFT) for _ in range(count)]
    delays = [draw.randrange(-15, 120) for _ in range(count)]
    occurrences = [
        AcceptedEvent(Event(subject, {"Tail": tails[tail], "delay": delay}), offset, offset * 100_000, f"s-1-{offset}")
        for offset, (subject, tail, delay) in enumerate(zip(subjects, aircraft, delays, strict=True))
    ]
    distinct = sorted(set(SUBJECTS))
    table = EventTable(
        Texts(np.array([distinct.index(each) for each in subjects], np.int32), distinct),
        {
            "Tail": Texts(np.array(aircraft, np.int32), tails),
            "delay": Doubles(NUMBER, np.array(delays, np.float64), None),
        },
        lambda row: occurrences[row].event.attributes,
    )
    return Stream(occurrences, table)


def _processor_s(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./do bench patterns", description=__doc__)
    parser.add_argument("--events", type=int, default=200_000, help="events of each stream")
    parser.add_argument("--json", type=Path, help="write the report to this file")
    parser.add_argument("--strict", action="store_true", help="exit status 1 if a goal is not met")
    return parser.parse_args(arguments)
