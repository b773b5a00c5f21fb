"""Fuzzing of the matching index against evaluation, while filters are added and removed (SPEC B-01, J-04; DESIGN 7.4).

An input is a seed, of filters in every language, of events drawn from what they ask about and from just beside it, and
of steps: a filter is added, replaced or removed, events are matched, alone and together. After each match the ids have
to be those whose filter evaluates to true, each once. It goes on until :data:`PAIRS` pairs of a filter and an event
were compared, so ``--pairs 1000000`` is so many inputs for each kernel.

One input in :data:`CROWDED_EACH` is played once more among thousands of ids, with filters that others have too and with
many that compare with values of their own: what an index does only with many. These pairs are not counted.

An input is accepted if something matched.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final
from unittest.mock import patch

from fuzz.target_runs import Broken, Target
from tests.filters import cesql_trees, trees
from wanderbus import matching
from wanderbus.errors import EventError
from wanderbus.event import Event, check_event
from wanderbus.filters import Filter, cesql
from wanderbus.filters.ast import And, Clause, Node, Or, Predicate, Quantified
from wanderbus.filters.cesql.writing import write as write_cesql
from wanderbus.filters.evaluate import evaluate
from wanderbus.matching import store
from wanderbus.matching.index import Kernel

PAIRS: Final = 400
CROWDED_EACH: Final = 40
CROWD: Final = (300, 3_000)
"""Number of ids that are added at once, from the least to the most."""
KERNELS: Final[dict[str, Kernel | None]] = {"numba": "numba", "numpy": "numpy", "chosen": None}
"""Kernel that a target forces; the last target lets the index choose, beginning with the scan."""
WAITING_MAX: Final = (2, 5, 20, store.WAITING_MAX)
"""Rows that wait to be written together."""
CLOSED: Final = (0.0, 0.3, 1.0)
"""Frequency of closing the segment to which rows were written, so that it is due for a merge."""
STEP_US: Final = (1, store.STEP_US)
SWEPT_MIN: Final = (3, 20, store.SWEPT_MIN)
"""Rows that are written before a sweep of unused names."""
CPU_S_MAX: Final = 2.0
"""CPU seconds of an input: some hundred steps, not one text of a client."""
SUBJECTS: Final = ("S", "S", "S", "T")
NAMES: Final = trees.NAMES[:4]


class Play:
    """An index of one kernel beside its model: filters by id, tried one by one."""

    def __init__(self, kernel: str, random: Random, filters: Sequence[Filter]) -> None:
        self._kernel, self._random, self._filters = kernel, random, filters
        self._index = index_of(kernel)
        self._held: dict[str, tuple[str, Filter]] = {}
        self._added = 0
        self.pairs = 0
        self.matched = False

    def step(self) -> None:
        """Do one random action."""
        chance = self._random.random()
        if chance < 0.55 or not self._held:
            self._added += 1
            self.put(f"id {self._added}")
        elif chance < 0.65:
            self.put(self._random.choice(list(self._held)))
        elif chance < 0.68:
            old = self._random.sample(list(self._held), min(len(self._held), self._random.randint(0, 9)))
            self.put_together([*old, *(f"id {self._added + each}" for each in range(1, 30))])
            self._added += 30
        elif chance < 0.8:
            self.remove(self._random.choice([*self._held, "nobody"]))
        else:
            self.match(self._random.choice((1, 1, 3, 18)))

    def put(self, id: str) -> None:
        """Add a filter, or replace the one with this id."""
        subject, filter = self._random.choice(SUBJECTS), self._random.choice(self._filters)
        self._held[id] = subject, filter
        self._index.add(id, subject, filter)

    def remove(self, id: str) -> None:
        """Remove a filter, if there is one with this id."""
        self._held.pop(id, None)
        self._index.remove(id)

    def crowd(self, count: int) -> None:
        """Add many one by one, and remove as many of some others; then add as many together."""
        for number in range(count):
            self.put(f"of {count}, {number}")
            if number % 3 == 0:
                self.remove(f"of {count}, {number // 2}")
        self.put_together([f"of {count}, {number}" for number in range(count // 2, 2 * count)])

    def put_together(self, ids: Sequence[str]) -> None:
        """Add or replace filters in one call."""
        fresh = {id: (self._random.choice(SUBJECTS), self._random.choice(self._filters)) for id in ids}
        self._held |= fresh
        self._index.add_many([(id, subject, filter) for id, (subject, filter) in fresh.items()])

    def match(self, count: int) -> None:
        """Match events, and raise :class:`Broken` if evaluation disagrees."""
        events = [self._event() for _ in range(count)]
        found = self._index.match(events)
        if len(found) != count or len(self._index) != len(self._held):
            raise Broken(f"{len(found)} answers to {count} events, {len(self._index)} of {len(self._held)} filters")
        for event, ids in zip(events, found, strict=True):
            truth = {id(filter): evaluate(filter.root, event) is True for filter in self._filters}
            expected = [each for each, (subject, filter) in self._held.items() if subject == event.subject]
            expected = [each for each in expected if truth[id(self._held[each][1])]]
            if sorted(ids) != sorted(expected):
                raise Broken(self._shown(event, ids, expected))
            self.pairs += len({id(filter) for _, filter in self._held.values()})
            self.matched |= bool(ids)

    def _event(self) -> Event:
        """Return an event that can be published, with attributes of some filter and sometimes of others."""
        while True:
            attributes: dict[str, object] = {}
            for _ in range(self._random.choice((1, 1, 2, 3))):
                near = self._random.choice(self._filters).root
                attributes |= trees.random_event(self._random, near, NAMES).attributes
            if self._random.random() < 0.3:
                attributes |= cesql_trees.random_attributes(self._random)
            event = Event(self._random.choice(SUBJECTS), attributes)
            try:
                return check_event(event)
            except EventError:
                continue

    def _shown(self, event: Event, found: Sequence[str], expected: Sequence[str]) -> str:
        wrong = sorted(set(found) ^ set(expected))
        if not wrong:
            return f"an id came more than once: {sorted(found)}"
        subject, filter = self._held.get(wrong[0], ("", None))
        kind = "missing" if wrong[0] in expected else "too many"
        if filter is None:
            return f"{kind}: {wrong[0]!r}, which was removed"
        alone = index_of(self._kernel)
        alone.add(wrong[0], subject, filter)
        among = "among others only" if (alone.match([event])[0] == []) == (wrong[0] not in expected) else "alone too"
        return f"{kind} ({among}): {filter.root!r} | event {event.subject} {dict(event.attributes)!r}"


def index_of(kernel: str) -> matching.Index:
    """Return an empty index with the kernel of one of :data:`KERNELS`."""
    return matching.Index(KERNELS[kernel])


def make(random: Random) -> bytes:
    """Return the seed of an input."""
    return b"%d" % random.getrandbits(64)


def handle(kernel: str, data: bytes) -> bool:
    """Play until enough pairs were compared."""
    random = Random(data.decode(errors="replace"))
    play = Play(kernel, random, [random_filter(random) for _ in range(random.randint(4, 16))])
    with _restless(random):
        while play.pairs < PAIRS:
            play.step()
    return play.matched


@contextmanager
def _restless(random: Random) -> Iterator[None]:
    """Make an index do with few filters what it otherwise does with many: make segments, merge them and clear them."""
    closed, write = random.choice(CLOSED), store.Store._write

    def closing(its: store.Store) -> None:
        write(its)
        if random.random() < closed:
            its._open = 0

    with (
        patch.object(store, "WAITING_MAX", random.choice(WAITING_MAX)),
        patch.object(store, "STEP_US", random.choice(STEP_US)),
        patch.object(store, "SWEPT_MIN", random.choice(SWEPT_MIN)),
        patch.object(store.Store, "_write", closing),
    ):
        yield


def examine(kernel: str, data: bytes) -> None:
    """Play among many, if this is the input for it."""
    if zlib.crc32(data) % CROWDED_EACH:
        return
    random = Random("crowded " + data.decode(errors="replace"))
    filters = [random_filter(random) for _ in range(60)] + [_scattered(random) for _ in range(300)]
    play = Play(kernel, random, filters)
    for _ in range(4):
        play.crowd(random.randint(*CROWD))
        play.match(random.choice((1, 8, 24)))
        for _ in range(20):
            play.step()


def random_filter(random: Random) -> Filter:
    """Return a filter of any language: half of them conjunctions of comparisons, or few such."""
    chance = random.random()
    if chance < 0.15:
        text = write_cesql(cesql_trees.random_expression(random))
        return Filter(text, "cesql", cesql.read(text))
    if chance < 0.5:
        return Filter("", "eci", trees.random_node(random, 3, NAMES, residuals=True))
    several = tuple(_conjunction(random) for _ in range(random.choice((1, 1, 1, 2, 3))))
    return Filter("", "eci", several[0] if len(several) == 1 else Or(several))


def _conjunction(random: Random) -> Node:
    return And(tuple(_comparison(random) for _ in range(random.choice((1, 2, 2, 3)))))


def _comparison(random: Random) -> Node:
    asked = trees.random_predicate(random)
    return trees.question(random.choice(NAMES), asked.operator, asked.operand)


def _scattered(random: Random) -> Filter:
    """Return a conjunction of comparisons with values that are rare in other filters."""
    asked: list[Node] = []
    for name in random.sample(NAMES, random.choice((1, 2, 2, 3))):
        low, high = sorted((_value(random, kind := random.randrange(4)), _value(random, kind)))
        clause: Clause = Predicate(random.choice(("==", "==", "!=", "<", ">=")), low)
        if random.random() < 0.5:
            clause = And((Predicate(random.choice((">", ">=")), low), Predicate(random.choice(("<", "<=")), high)))
        elif random.random() < 0.2:
            clause = Predicate("in", (low, high))
        asked.append(Quantified(random.choice(("any", "any", "all")), name, clause))
    return Filter("", "eci", And(tuple(asked)))


def _value(random: Random, kind: int) -> Any:
    match kind:
        case 0:
            return random.choice((random.randrange(10_000), random.randrange(10_000) / 100))
        case 1:
            return random.choice((2**53, 2**62, -(2**60))) + random.randrange(2_000)
        case 2:
            return f"v{random.randrange(2_000)}"
        case _:
            return datetime(2026, 11, 21, tzinfo=UTC) + timedelta(microseconds=random.randrange(10**10))


TARGETS: Final = tuple(
    Target(
        f"matching-{kernel}", make, partial(handle, kernel), partial(examine, kernel), pairs=PAIRS, cpu_s_max=CPU_S_MAX
    )
    for kernel in KERNELS
)
