"""Bulk addition of filters: the index is settled afterwards, and finds the same as after adding one by one."""

from __future__ import annotations

import random

import pytest

from tests.matching import workload
from wanderbus.event import Event
from wanderbus.filters import Filter, parse
from wanderbus.matching import SCANNED_MAX, Index
from wanderbus.matching.index import Kernel

np = pytest.importorskip("numpy")
store = pytest.importorskip("wanderbus.matching.store")

Added = tuple[str, str, Filter]


@pytest.fixture(params=["numba", "numpy"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """Either kernel, where it is installed."""
    name: Kernel = request.param
    pytest.importorskip("numba" if name == "numba" else "numpy")
    return name


def some_filters(rng: random.Random, count: int, first: int = 0) -> list[Added]:
    return [(str(n), rng.choice("ST"), Filter("", "eci", workload.plain(rng))) for n in range(first, first + count)]


def check(some: Index, held: dict[str, tuple[str, Filter]], rng: random.Random) -> None:
    """Compare the matches of events with evaluation; each id occurs once."""
    events = [Event(rng.choice("ST"), workload.plain_event(rng).attributes) for _ in range(30)]
    for event, found in zip(events, some.match(events), strict=True):
        wanted = [id for id, (subject, its) in held.items() if subject == event.subject and its.matches(event)]
        assert sorted(found) == sorted(wanted)


def has_engine(some: Index) -> bool:
    return some._engine is not None


def is_settled(some: Index) -> bool:
    """Return whether the index has no pending writes or rebuilds, and is in one segment."""
    its = some._engine._store
    [segment] = its.segments.values()
    return its._work is None and its._rows == [] and not segment.is_worn


def test_many_are_settled_at_once(kernel: Kernel) -> None:
    rng = random.Random(1)
    several = some_filters(rng, 3_000)
    some = Index(kernel)
    some.add_many(several)
    assert len(some) == 3_000
    assert is_settled(some)
    check(some, {id: (subject, filter) for id, subject, filter in several}, rng)


def test_very_many_are_written_in_parts_and_settled_as_one(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "WRITTEN_AT_ONCE", 700)
    rng = random.Random(2)
    several = some_filters(rng, 3_000)
    some = Index(kernel)
    some.add_many(several)
    assert is_settled(some)
    check(some, {id: (subject, filter) for id, subject, filter in several}, rng)


def test_those_that_were_there_are_replaced_and_settled_with_the_others(kernel: Kernel) -> None:
    rng = random.Random(3)
    first, second = some_filters(rng, 2_000), some_filters(rng, 2_500, 1_000)
    some = Index(kernel)
    for each in first:
        some.add(*each)
    some.add_many([*second, *second[:300]])  # the same id twice, too
    assert len(some) == 3_500
    assert is_settled(some)
    held = {id: (subject, filter) for id, subject, filter in [*first, *second]}
    check(some, held, rng)
    for id in rng.sample(sorted(held), 1_700):
        some.remove(id)
        del held[id]
    check(some, held, rng)


def test_few_are_added_as_they_are_one_by_one(kernel: Kernel) -> None:
    """A large index is not rebuilt for a handful of filters."""
    rng = random.Random(4)
    several = some_filters(rng, 3_020)
    some = Index(kernel)
    some.add_many(several[:3_000])
    before = dict(some._engine._store.segments)
    some.add_many(several[3_000:])
    assert some._engine._store.segments == before
    check(some, {id: (subject, filter) for id, subject, filter in several}, rng)


def test_filters_that_were_scanned_before_are_moved_too(kernel: Kernel) -> None:
    rng = random.Random(5)
    several = some_filters(rng, 600)
    some = Index("scan")
    some.add_many(several[:100])
    assert not has_engine(some)
    some.use(kernel)
    some.add_many(several[50:])
    assert len(some) == 600
    assert is_settled(some)
    check(some, {id: (subject, filter) for id, subject, filter in several}, rng)


def test_a_handful_loads_no_kernel() -> None:
    some = Index()
    some.add_many((str(n), "S", parse(f"a == {n}")) for n in range(SCANNED_MAX))
    assert not has_engine(some)
    assert some.match([Event("S", {"a": 3})]) == [["3"]]
    some.add_many([("more", "S", parse("a == 3"))])
    assert has_engine(some)
    assert sorted(some.match([Event("S", {"a": 3})])[0]) == ["3", "more"]


def test_no_filters_are_no_harm(kernel: Kernel) -> None:
    some = Index(kernel)
    some.add_many([])
    assert some.match([Event("S", {"a": 3})]) == [[]]


def test_a_kernel_takes_over_from_another_with_all_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(store, "STEP_US", 1)
    rng = random.Random(6)
    several = some_filters(rng, 4_000)
    some = Index("numpy")
    for each in several[:1_500]:
        some.add(*each)
    assert some._engine._store._work is not None
    some.use("numba")
    for each in several[1_500:]:
        some.add(*each)
    check(some, {id: (subject, filter) for id, subject, filter in several}, rng)
    some.use("scan")  # the compiled form is kept
    assert some._kernel == "numba"
    check(some, {id: (subject, filter) for id, subject, filter in several}, rng)
