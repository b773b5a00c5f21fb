"""Subscriptions and events for matching, drawn as flat arrays; filters and events are made of them one by one.

Twenty attributes: eight strings, of 5 to 1,000 values by Zipf's law, eight integers below 10,000 and four doubles
below 100 with two decimals. An event has 10 to 20 of them. As arrays, values are whole numbers: a string's rank, a
double's hundredths, -1 for what is missing. A subscription is one or more conjunctions of predicates about different
attributes, of which few are asked about often:

========= ==========================================================================================================
study     one conjunction of 3 to 5: strings by equality; numbers by a range of 5 to 40 % of all, or one bound
ranges    one conjunction of 4 to 6, of numbers alone: no equality that would thin the subscriptions out
dnf       2 or 3 conjunctions of 5 or 6: strings also by prefix (3 in 10) and `!=` (2 in 10), some numbers by `!=`
subjects  as study, of 10,000 subjects by Zipf's law, those of the events too; all others have one subject
========= ==========================================================================================================

In each an event matches few of a thousand filters of its subject, ``ranges`` and ``dnf`` having more predicates
because theirs say less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from wanderbus.event import Event
from wanderbus.filters import Filter
from wanderbus.filters.ast import And, Clause, Node, Or, Predicate, Quantified

Ints = npt.NDArray[np.integer[Any]]
Generator = np.random.Generator

STRINGS: Final = 8
NAMES: Final = (*(f"s{i}" for i in range(8)), *(f"i{i}" for i in range(8)), *(f"d{i}" for i in range(4)))
DOUBLES: Final = 16
"""The first attribute of the doubles; strings come first, then integers."""
WORDS: Final = (5, 8, 10, 20, 50, 100, 500, 1000)
"""Number of values of each string attribute."""
DOMAIN: Final = 10_000
SUBJECTS: Final = 10_000
PREFIX_CHARACTERS: Final = 2
BETWEEN, UNEQUAL, PREFIX = range(3)
"""Kinds of a predicate: the value is from ``low`` to ``high``, is not ``low``, or begins like the string ``low``."""

_FEW: Final = 1 / np.sqrt(np.arange(1, 9)) * 1.6
_POPULARITY: Final = np.concatenate([[3, 2.5, 2, 1.5, 1.2, 1, 0.8, 0.6], _FEW, _FEW[:4]])


@dataclass(frozen=True)
class Shape:
    """Form of a workload's subscriptions; numbers are from the least to the most."""

    predicates: tuple[int, int] = (3, 5)
    conjunctions: tuple[int, int] = (1, 1)
    subjects: int = 1
    numbers_alone: bool = False
    mixed: bool = False
    """True if strings also use prefixes and `!=`."""


SHAPES: Final = {
    "study": Shape(),
    "ranges": Shape(predicates=(4, 6), numbers_alone=True),
    "dnf": Shape(predicates=(5, 6), conjunctions=(2, 3), mixed=True),
    "subjects": Shape(subjects=SUBJECTS),
}


@dataclass(frozen=True, eq=False)
class Workload:
    """Subscriptions by number, and events: predicates of conjunction ``c`` are those from ``start[c]`` on, and
    conjunctions of subscription ``n`` those from ``first[n]`` on.
    """

    name: str
    attribute: Ints
    low: Ints
    high: Ints
    operator: Ints
    start: Ints
    first: Ints
    subject: Ints
    encoded: Ints
    """The events, a row each."""
    event_subject: Ints

    def __len__(self) -> int:
        return len(self.first) - 1

    def filter(self, number: int) -> Filter:
        """Return the filter of a subscription; its text is empty, because nothing reads it here."""
        conjunctions = tuple(map(self._conjunction, range(*self.first[number : number + 2].tolist())))
        return Filter("", "eci", conjunctions[0] if len(conjunctions) == 1 else Or(conjunctions))

    def subject_of(self, number: int) -> str:
        """Return the subject of a subscription."""
        return f"S{self.subject[number]}"

    def event(self, number: int) -> Event:
        """Return an event."""
        row = self.encoded[number].tolist()
        values = {NAMES[place]: _value(place, code) for place, code in enumerate(row) if code >= 0}
        return Event(f"S{self.event_subject[number]}", values)

    def events(self) -> list[Event]:
        """Return all events."""
        return [self.event(number) for number in range(len(self.encoded))]

    def _conjunction(self, number: int) -> Node:
        part = slice(*self.start[number : number + 2].tolist())
        columns = (column[part].tolist() for column in (self.attribute, self.low, self.high, self.operator))
        return And(tuple(_question(*row) for row in zip(*columns, strict=True)))


def workload(name: str, subscriptions: int, events: int, seed: int = 7) -> Workload:
    """Draw a workload; the same for the same arguments."""
    shape = SHAPES[name]
    rng = np.random.default_rng(seed)
    fewest, most = shape.conjunctions
    first = _sums(rng.integers(fewest, most + 1, subscriptions))
    fewest, most = shape.predicates
    sizes = rng.integers(fewest, most + 1, int(first[-1]))
    attribute = _attributes(rng, shape, sizes, most)
    low, high, operator = _predicates(rng, shape, attribute)
    return Workload(
        name=name,
        attribute=attribute,
        low=low,
        high=high,
        operator=operator,
        start=_sums(sizes),
        first=first,
        subject=_zipf(rng, shape.subjects, subscriptions).astype(np.int16),
        encoded=_events(rng, events),
        event_subject=_zipf(rng, shape.subjects, events).astype(np.int16),
    )


def _attributes(rng: Generator, shape: Shape, sizes: Ints, most: int) -> Ints:
    """Draw, for each conjunction, that many different attributes by their popularity."""
    offered = np.arange(STRINGS, len(NAMES)) if shape.numbers_alone else np.arange(len(NAMES))
    weights = np.log(_POPULARITY[offered]).astype(np.float32)
    chosen = []
    for block in np.array_split(sizes, max(1, len(sizes) // 100_000)):
        keys = weights + rng.gumbel(size=(len(block), len(offered)))
        ranked = np.argsort(-keys, axis=1)[:, :most]
        chosen.append(offered[ranked[np.arange(most) < block[:, None]]].astype(np.int8))
    return np.concatenate(chosen)


def _predicates(rng: Generator, shape: Shape, attribute: Ints) -> tuple[Ints, Ints, Ints]:
    count = len(attribute)
    low, high = np.zeros(count, np.int16), np.full(count, DOMAIN - 1, np.int16)
    for place in range(STRINGS):
        asked = attribute == place
        low[asked] = high[asked] = _zipf(rng, WORDS[place], int(asked.sum()))
    numbers, drawn = np.flatnonzero(attribute >= STRINGS), rng.random(count)
    kind = drawn[numbers]
    of_range, from_low, to_high = numbers[kind < 0.5], numbers[(kind >= 0.5) & (kind < 0.75)], numbers[kind >= 0.75]
    width = (rng.uniform(0.05, 0.40, len(of_range)) * DOMAIN).astype(np.int16)
    low[of_range] = (rng.random(len(of_range)) * (DOMAIN - width)).astype(np.int16)
    high[of_range] = low[of_range] + width
    low[from_low] = rng.integers(2000, 9000, len(from_low))
    high[to_high] = rng.integers(1000, 8000, len(to_high))
    operator = np.full(count, BETWEEN, np.int8)
    if shape.mixed:
        operator[(attribute < STRINGS) & (drawn < 0.5)] = PREFIX
        operator[(attribute < STRINGS) & (drawn < 0.2)] = UNEQUAL
        operator[(attribute >= STRINGS) & (drawn < 0.1)] = UNEQUAL
    return low, high, operator


def _events(rng: Generator, count: int) -> Ints:
    rows = np.empty((count, len(NAMES)), np.int32)
    for place, words in enumerate(WORDS):
        rows[:, place] = _zipf(rng, words, count)
    rows[:, STRINGS:DOUBLES] = rng.integers(0, DOMAIN, (count, DOUBLES - STRINGS))
    doubles = rng.normal(5000, 2000, (count, len(NAMES) - DOUBLES))
    rows[:, DOUBLES:] = np.clip(doubles, 0, DOMAIN - 1).astype(np.int32)
    present = rng.integers(10, len(NAMES) + 1, count)
    ranks = np.argsort(np.argsort(rng.random(rows.shape), axis=1), axis=1)
    rows[ranks >= present[:, None]] = -1
    return rows


def _zipf(rng: Generator, values: int, count: int) -> Ints:
    sums = np.cumsum(1 / np.arange(1, values + 1))
    found: Ints = np.searchsorted(sums, rng.random(count) * sums[-1]).clip(0, values - 1)
    return found


def _sums(sizes: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(sizes)])


def _value(place: int, code: int) -> str | int | float:
    if place < STRINGS:
        return _STRING[code]
    return code if place < DOUBLES else code / 100


def _question(place: int, low: int, high: int, operator: int) -> Node:
    return Quantified("any", NAMES[place], _clause(place, low, high, operator))


def _clause(place: int, low: int, high: int, operator: int) -> Clause:
    if operator == PREFIX:
        return Predicate("prefix", _STRING[low][:PREFIX_CHARACTERS])
    if operator == UNEQUAL:
        return Predicate("!=", _value(place, low))
    if low == high:
        return Predicate("==", _value(place, low))
    bounds: list[Clause] = []
    if low > 0:
        bounds.append(Predicate(">=", _value(place, low)))
    if high < DOMAIN - 1:
        bounds.append(Predicate("<=", _value(place, high)))
    return bounds[0] if len(bounds) == 1 else And(tuple(bounds))


_STRING: Final = tuple(f"v{code}" for code in range(max(WORDS)))
