"""The index against direct evaluation, with either kernel (SPEC A-03, B-01, J-04; DESIGN 7.4)."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.filters import trees
from tests.matching import workload
from wanderbus.event import Event
from wanderbus.filters import Filter, parse
from wanderbus.matching import Index, index
from wanderbus.matching.index import SCANNED_MAX, Kernel
from wanderbus.matching.rows import NUMBER

np = pytest.importorskip("numpy")
engine = pytest.importorskip("wanderbus.matching.engine")
store = pytest.importorskip("wanderbus.matching.store")
PLAIN = pytest.importorskip("wanderbus.matching.segment").PLAIN

KERNELS: list[Kernel] = ["numba", "numpy"]


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """Either kernel, where it is installed."""
    name: Kernel = request.param
    pytest.importorskip("numba" if name == "numba" else "numpy")
    return name


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows wait, and written rows are due for a rebuild at once, in the shortest steps."""
    monkeypatch.setattr(store, "WAITING_MAX", 8)
    monkeypatch.setattr(store, "STEP_US", 1)
    monkeypatch.setattr(store, "SWEPT_MIN", 8)
    write = store.Store._write

    def closing(its: Any) -> None:
        write(its)
        its._open = 0

    monkeypatch.setattr(store.Store, "_write", closing)


@pytest.mark.parametrize("seed", range(3))
def test_filters_of_any_shape(kernel: Kernel, seed: int, restless: None) -> None:
    assert workload.differences(Index(kernel), random.Random(seed), operations=400) > 20_000


@pytest.mark.parametrize("seed", range(3))
def test_comparisons_with_lists_and_great_integers(kernel: Kernel, seed: int, restless: None) -> None:
    rng = random.Random(seed)
    found = workload.differences(
        Index(kernel), rng, operations=600, node=workload.plain, event=workload.plain_event, ids=400
    )
    assert found > 20_000


def test_segments_of_several_blocks(kernel: Kernel) -> None:
    rng = random.Random(4)
    some = Index(kernel)
    filters = {f"{n}": (rng.choice("ST"), Filter("", "eci", workload.plain(rng))) for n in range(3_000)}
    for id, (subject, filter) in filters.items():
        some.add(id, subject, filter)
    for id in rng.sample(sorted(filters), 600):
        some.remove(id)
        del filters[id]
    events = [Event(rng.choice("ST"), workload.plain_event(rng).attributes) for _ in range(40)]
    for event, found in zip(events, some.match(events), strict=True):
        wanted = {id for id, (subject, its) in filters.items() if subject == event.subject and its.matches(event)}
        assert set(found) == wanted
        assert len(found) == len(wanted)


@given(st.lists(trees.nodes(residuals=True), max_size=6), st.lists(trees.events(), max_size=4))
@settings(max_examples=80, deadline=None)
def test_examples_found_by_hypothesis(nodes: list[Any], events: list[Event]) -> None:
    for kernel in KERNELS:
        for is_shaped in (False, True):
            some = Index(kernel)
            for number, node in enumerate(nodes):
                some.add(str(number), "S", Filter("", "eci", node))
            if is_shaped:
                shape(some)
            wanted = [[str(n) for n, node in enumerate(nodes) if Filter("", "eci", node).matches(e)] for e in events]
            assert [sorted(each) for each in some.match(events)] == wanted


def shape(some: Index) -> None:
    """Rebuild all added rows, so that there are buckets."""
    some._engine._store._write()
    some._engine._store._open = 0
    some._engine._store.settle()
    assert all(segment.shape is not PLAIN for segment in some._engine._store.segments.values())


def test_both_kernels_find_the_same_in_the_same_order(restless: None) -> None:
    pytest.importorskip("numba")
    answers = []
    for name in KERNELS:
        rng = random.Random(9)
        some = Index(name)
        for number in range(300):
            some.add(str(number), "", Filter("", "eci", workload.plain(rng)))
        answers.append(some.match([workload.plain_event(rng) for _ in range(30)]))
    assert answers[0] == answers[1]
    assert any(answers[0])


def test_integers_and_doubles_compare_exactly(kernel: Kernel) -> None:
    some = Index(kernel)
    some.add("above", "S", parse("n > 9007199254740992.0"))
    some.add("equal", "S", parse("n == 9007199254740993"))
    values = [2**53, 2**53 + 1, 2.0**53, 2**53 + 2]
    wanted = [[], ["above", "equal"], [], ["above"]]
    events = [Event("S", {"n": value}) for value in values]
    assert [sorted(each) for each in some.match(events)] == wanted
    shape(some)
    assert [sorted(each) for each in some.match(events)] == wanted


def test_an_id_of_several_conjunctions_comes_once(kernel: Kernel) -> None:
    some = Index(kernel)
    some.add("one", "S", parse("a > 1 or b > 1 or c > 1"))
    event = Event("S", {"a": 2, "b": 2, "c": 2})
    assert some.match([event, event]) == [["one"], ["one"]]
    shape(some)
    assert some.match([event, event]) == [["one"], ["one"]]


def test_two_items_of_a_list_may_satisfy_two_clauses(kernel: Kernel) -> None:
    some = Index(kernel)
    some.add("one", "S", parse("any a > 5 and any a < 3"))
    shape(some)
    assert some.match([Event("S", {"a": [9, 1]}), Event("S", {"a": [9, 4]}), Event("S", {"a": 4})]) == [["one"], [], []]


def test_slots_and_segments_of_removed_filters_are_used_again(kernel: Kernel, restless: None) -> None:
    """A removed filter leaves no state that grows."""
    some = Index(kernel)
    for number in range(2_000):
        some.add(f"{number % 40}", "S", parse(f"a == {number} and b == 'x{number}'"))
    some._engine._store.settle()
    assert some._engine._store.used < 200
    assert len(some._engine._store.segments) < 4
    assert sum(map(len, some._engine._store.segments.values())) == 40
    for number in range(40):
        some.add(f"{number}", "S", parse("a suffix x or b == 1"))
        some.remove(f"{number}")
    assert not some._engine._checks
    assert not some._engine._others


def test_an_index_comes_back_from_its_arrays(kernel: Kernel) -> None:
    rng = random.Random(5)
    some = Index(kernel)
    for number in range(700):
        some.add(str(number), rng.choice("ST"), parse(f"a == {number % 7} and s prefix 'p{number % 3}'"))
    some.add("suffix", "S", parse("s suffix 'x'"))
    some.add("words", "T", parse("LOWER(s) = 'p0'", "cesql"))
    for number in range(0, 700, 5):
        some.remove(str(number))
    again = Index.from_arrays({name: array.copy() for name, array in some.arrays().items()}, kernel)
    events = [Event(rng.choice("ST"), {"a": rng.randrange(7), "s": f"p{rng.randrange(3)}\0x"}) for _ in range(50)]
    events.append(Event("T", {"s": "P0"}))
    assert again.match(events) == some.match(events)
    assert len(again) == len(some)
    assert len(again._engine._store) == len(some._engine._store)
    again.remove("suffix")
    again.add("fresh", "T", parse("s == P0"))
    assert sorted(again.match(events)[-1]) == ["fresh", "words"]


def test_few_filters_are_tried_one_by_one_and_many_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    some = Index()
    for number in range(SCANNED_MAX):
        some.add(str(number), "S", parse(""))
    assert not isinstance(some._engine, engine.Engine)
    some.add("more", "S", parse("a == 1"))
    assert isinstance(some._engine, engine.Engine)
    assert len(some.match([Event("S", {"a": 1})])[0]) == SCANNED_MAX + 1
    monkeypatch.setattr(index, "find_spec", lambda name: None)
    assert index.best_kernel() == "scan"
    monkeypatch.setattr(index, "find_spec", lambda name: None if name == "numba" else name)
    assert index.best_kernel() == "numpy"


def test_a_rebuild_continues_in_short_steps(kernel: Kernel, restless: None) -> None:
    """While a segment is rebuilt from others, those still answer; filters removed meanwhile are in neither."""
    some = Index(kernel)
    for number in range(200):
        some.add(str(number), "S", parse(f"a >= {number}"))
    left = set(range(200))
    steps = 0
    while some._engine._store._work is not None:
        gone = left.pop()
        some.remove(str(gone))
        steps += 1
        assert sorted(map(int, some.match([Event("S", {"a": 150})])[0])) == sorted(n for n in left if n <= 150)
    assert steps > 5
    assert len(some._engine._store.segments) == 1


def test_a_shape_that_no_longer_fits_is_rebuilt(kernel: Kernel) -> None:
    """The index gets as many new rows as a segment holds, several times: none of its buckets fits them."""
    some = Index(kernel)
    for turn in range(5):
        for number in range(600):
            some.add(str(number), "S", parse(f"a{turn} == {number}"))
        some._engine._store.settle()
    shapes = [segment.shape for segment in some._engine._store.segments.values() if segment.shape is not PLAIN]
    column = some._engine._store.columns.attributes["a4"].columns[NUMBER]
    assert any(column in its.columns for its in shapes)
    assert some.match([Event("S", {"a4": 5, "a3": 7})]) == [["5"]]


def test_a_filter_of_very_many_values_finds_room(kernel: Kernel) -> None:
    some = Index(kernel)
    for number in range(600):
        some.add(str(number), "S", parse(f"b == {number}"))
    shape(some)
    for number in range(3):
        some.add(f"wide {number}", "S", parse(f"a in ({','.join(map(str, range(number, 2_100)))})"))
    assert [sorted(each) for each in some.match([Event("S", {"a": 2_099}), Event("S", {"a": 1, "b": 7})])] == [
        ["wide 0", "wide 1", "wide 2"],
        ["7", "wide 0", "wide 1"],
    ]


def test_infinity_is_above_the_greatest_double(kernel: Kernel) -> None:
    greatest = math.nextafter(math.inf, 0.0)
    asked = [(sign, end) for sign in ("<", "<=", ">", ">=", "==", "!=") for end in (greatest, math.inf, -greatest, 1.0)]
    some = Index(kernel)
    held = {str(at): Filter("", "eci", trees.question("a", *each)) for at, each in enumerate(asked)}
    for id, filter in held.items():
        some.add(id, "S", filter)
    values = [math.inf, -math.inf, greatest, -greatest, 1.0, 10**400, -(10**400), [math.inf]]
    events = [Event("S", {"a": value}) for value in values]
    wanted = [sorted(id for id, filter in held.items() if filter.matches(event)) for event in events]
    assert [sorted(each) for each in some.match(events)] == wanted
    shape(some)
    assert [sorted(each) for each in some.match(events)] == wanted


def test_arrays_do_not_change_with_the_index(kernel: Kernel) -> None:
    some = Index(kernel)
    for number in range(700):
        some.add(str(number), "S", parse(f"a == {number % 7} or b == {number}"))
    shape(some)
    arrays = some.arrays()
    before = {name: array.copy() for name, array in arrays.items()}
    for number in range(3_000):
        some.remove(str(number % 700))
        some.add(f"more {number}", "T", parse(f"a == {number}"))
    some.match([Event("S", {"a": 1})])
    for name, array in arrays.items():
        assert np.array_equal(array, before[name], equal_nan=array.dtype == np.float64), name


def test_strings_without_a_free_double_between_them_are_distinguished(kernel: Kernel) -> None:
    some = Index(kernel)
    several = ["0", "a", *("a" + "\0" * length + "b" for length in range(70))]
    held = {}
    for at, text in enumerate(several):
        for sign in ("<", "<=", ">", ">=", "prefix"):
            held[f"{sign} {at}"] = Filter("", "eci", trees.question("s", sign, text))
    for id, filter in held.items():
        some.add(id, "S", filter)
    events = [Event("S", {"s": text}) for text in [*several[::3], *several[-3:], "", "b", "a\0\0a"]]
    for _ in range(2):
        wanted = [sorted(id for id, filter in held.items() if filter.matches(event)) for event in events]
        assert [sorted(each) for each in some.match(events)] == wanted
        shape(some)


def test_many_events_are_matched_in_parts(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "EVENTS_MAX", 7)
    monkeypatch.setattr(engine, "_STAMPS_MAX", 20)
    some = Index(kernel)
    for number in range(40):
        some.add(str(number), "S", parse(f"a == {number} or b == {number}"))
    events = [Event("S", {"a": number % 50, "b": number % 40}) for number in range(100)]
    wanted = [sorted({str(number % 50), str(number % 40)} & set(map(str, range(40)))) for number in range(100)]
    assert [sorted(each) for each in some.match(events)] == wanted
    assert some.match([]) == []


def test_ids_match_later_events_also_after_stamps_restart(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_STAMPS_MAX", 20)
    some = Index(kernel)
    some.add("one", "S", parse("a == 1 or b == 1"))
    for _ in range(4):
        assert some.match([Event("S", {"a": 1, "b": 1})]) == [["one"]]
        for _ in range(19):
            assert some.match([Event("S", {"a": 2})]) == [[]]


def test_names_that_no_filter_has_any_more_are_forgotten(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SWEPT_MIN", 64)
    some = Index(kernel)
    for number in range(3_000):
        some.remove(str(number - 20))
        some.add(str(number), f"subject {number}", parse(f"a{number} == x and b == y{number} and c prefix z{number}"))
        if number % 50 == 0:
            event = Event(f"subject {number}", {f"a{number}": "x", "b": f"y{number}", "c": f"z{number}0"})
            assert some.match([event]) == [[str(number)]]
    for number in range(3_000, 3_300):
        some.add("last", "S", parse(f"b == {number}"))
        some._engine._store.settle()
    columns = some._engine._store.columns
    assert len(columns.attributes) < 60
    assert len(columns.subjects) < 60
    assert len(columns.attributes["b"].words) < 60
    assert len(columns.attributes["c"].marks.ends) < 60
    events = [Event(f"subject {n}", {f"a{n}": "x", "b": f"y{n}", "c": f"z{n}"}) for n in range(2_975, 3_000)]
    assert some.match(events) == [[str(n)] if n >= 2_980 else [] for n in range(2_975, 3_000)]


def test_names_that_come_back_while_they_are_swept_stay(kernel: Kernel, restless: None) -> None:
    some = Index(kernel)
    event = Event("ghost", {"word": "ghost", "range": "ghostly", "number": 7})
    texts = ("word == ghost", "any word (not in (ghost)) or word == ghost", "range prefix ghost", "number == 7")
    some.match([event])
    for turn in range(60):
        some.add("other", "S", parse(f"word == x{turn} or range prefix y{turn}"))
        some.match([event] * (1 + turn % 3))
        for number, text in enumerate(texts):
            some.add(f"{number}", "ghost", parse(text))
        for _ in range(turn % 7):
            assert sorted(some.match([event])[0]) == ["0", "1", "2", "3"]
        for number in range(4):
            some.remove(f"{number}")
        for _ in range(turn % 5):
            assert some.match([event]) == [[]]
    assert some._engine._store._since_sweep < 60


def test_values_beside_a_range_stay(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """An excluded word and an open end have no entry of their own."""
    monkeypatch.setattr(store, "SWEPT_MIN", 8)
    some = Index(kernel)
    for text in ("p == first", "q == first", "s >= a"):
        some.add(text, "S", parse(text))
    texts = ["p != x", "any q (not in (x, y))", "s > m", "s < c", "s prefix k"]
    for text in texts:
        some.add(text, "S", parse(text))
    for turn in range(80):
        some.add("other", "S", parse(f"p == {'uvw'[turn % 3]}{turn} or q == v{turn} or s >= z{turn}"))
        some._engine._store.settle()
    for number in range(9):
        some.add(f"fresh {number}", "T", parse(f"p == f{number} or q == f{number} or s > l{number}"))
        for value in ("x", "y", f"f{number}", "first"):
            event = Event("S", {"p": value, "q": value})
            wanted = {text for text in (*texts, "p == first", "q == first") if parse(text).matches(event)}
            assert set(some.match([event])[0]) == wanted
        for value in ("", "a", "b", "c", "k", "kk", "l", "l5", "m", "mm", "n"):
            event = Event("S", {"s": value})
            assert set(some.match([event])[0]) == {text for text in (*texts, "s >= a") if parse(text).matches(event)}


def test_a_column_of_a_shape_is_not_forgotten(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels read the values of all columns that have buckets, though no row names one any more."""
    monkeypatch.setattr(store, "SWEPT_MIN", -(10**6))
    some = Index(kernel)
    for number in range(500):
        some.add(str(number), "S", parse(f"{'a' if number < 400 else 'gone'} == {number}"))
    shape(some)
    for number in range(400, 500):
        some.remove(str(number))
    for number in range(130):
        some.add(f"more {number}", "S", parse("a == 399"))
        some.match([Event("S", {"a": 5})])
    some._engine._store.settle()
    named = [column for segment in some._engine._store.segments.values() for column in segment.shape.columns.tolist()]
    assert max(named) < some._engine._store.columns.count
    assert [sorted(each) for each in some.match([Event("S", {"a": 5, "gone": 450})])] == [["5"]]
