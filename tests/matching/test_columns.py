"""Columns of an index: words, marks, and filters as doubles (DESIGN 7.4)."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from wanderbus.event import Event
from wanderbus.filters import parse
from wanderbus.filters.evaluate import evaluate
from wanderbus.matching.columns import ABSENT, UNKNOWN, Columns, Marks, Words
from wanderbus.matching.layout import OPEN_HIGH, OPEN_LOW, OR_NEXT, PLACE
from wanderbus.matching.rows import EMPTY, MISSING, PRESENT, rows_of

INF = math.inf


def texts(rng: random.Random, count: int) -> list[str]:
    return ["".join(rng.choice("ab\0\uffff\U0010ffff") for _ in range(rng.randrange(6))) for _ in range(count)]


# Words ---------------------------------------------------------------------------------------------------------------


def test_words_are_numbered_as_they_come() -> None:
    words = Words()
    assert [words[each] for each in ("b", "a", "b", "")] == [0.0, 1.0, 0.0, 2.0]
    assert math.isnan(words[ABSENT])
    assert words.get("c", UNKNOWN) == UNKNOWN == -1.0
    assert words["c"] == 3.0


def test_words_that_come_back_keep_their_numbers_and_new_ones_have_others() -> None:
    words = Words({"x": 4.0, "y": 1.0})
    assert (words["x"], words["y"]) == (4.0, 1.0)
    fresh = [words[str(number)] for number in range(6)]
    assert sorted(fresh) == [0.0, 2.0, 3.0, 5.0, 6.0, 7.0]


# Marks ---------------------------------------------------------------------------------------------------------------


def in_order(marks: Marks, several: Sequence[str]) -> None:
    """Hold that marks of ends are in their order, and those of other strings between them."""
    assert marks.ends == sorted(set(marks.ends))
    assert all(low < high for low, high in pairwise(marks.values))
    known = dict(zip(marks.ends, marks.values, strict=True))
    for text in several:
        mark = marks.of(text)
        if text in known:
            assert mark == known[text]
        else:
            assert all((end < text) == (value < mark) and value != mark for end, value in known.items())


@pytest.mark.parametrize("seed", range(4))
def test_marks_are_in_the_order_of_the_strings(seed: int) -> None:
    rng = random.Random(seed)
    marks = Marks()
    several = texts(rng, 60)
    for text in several[:40]:
        mark, is_own = marks.add(text)
        assert is_own
        assert mark == marks.of(text)
        assert marks.add(text) == (mark, True)
        in_order(marks, several)
    again = Marks(marks.ends, marks.values)
    assert [again.of(text) for text in several] == [marks.of(text) for text in several]


def test_only_strings_have_marks() -> None:
    marks = Marks(["a"], [0.0])
    assert all(math.isnan(marks.of(value)) for value in (ABSENT, 1, 0.0, True, None))
    assert Marks().of("a") == 0.0


def narrowing(count: int) -> list[str]:
    """Return strings each of which is between the second of them and the one before."""
    return ["0", "a", *("a" + "\0" * length + "b" for length in range(count))]


def test_an_end_without_a_free_double_is_shared_by_near_strings() -> None:
    marks = Marks()
    several = narrowing(80)
    own = [marks.add(text)[1] for text in several]
    assert own == sorted(own, reverse=True)
    assert 40 < own.count(True) < 80
    in_order(marks, several)
    mark, is_own = marks.add(several[-1])
    assert (mark, is_own) == (marks.of(several[-1]), False)
    assert mark == marks.of(several[-2])


@pytest.mark.parametrize("is_falling", [True, False])
def test_there_is_room_beyond_the_first_end_and_the_last(is_falling: bool) -> None:
    marks = Marks()
    several = sorted((f"{number:04}" for number in range(2_000)), reverse=is_falling)
    assert all(marks.add(text)[1] for text in several)
    in_order(marks, ["", *several[::50], "9"])


def test_the_greatest_marks_leave_no_room_beyond_them() -> None:
    for value, text, mark in (
        (2.0**74, "b", 2.0**74),
        (2.0**73 - 2.0**20, "b", 2.0**73),
        (-(2.0**74), "", -(2.0**74)),
        (2.0**20 - 2.0**73, "", -(2.0**73)),
    ):
        marks = Marks(["a"], [value])
        assert marks.add(text) == (mark, False)
        assert marks.ends == ["a"]


# Filters as doubles --------------------------------------------------------------------------------------------------


def encoded(columns: Columns, text: str) -> tuple[list[list[list[tuple[int, float, float]]]], bool]:
    """Return of each row of a filter the clauses, with columns and ends of the entries; and whether all is exact."""
    found = rows_of(parse(text).root)
    is_exact = found.is_exact
    rows = []
    for row in found.rows:
        asked: list[int] = []
        ends: list[float] = []
        is_exact &= columns.encode(row, asked, ends)
        assert len(ends) == 2 * len(asked)
        clauses: list[list[tuple[int, float, float]]] = [[]]
        for column, low, high in zip(asked, ends[::2], ends[1::2], strict=True):
            clauses[-1].append((column & ~OR_NEXT, low, high))
            if not column & OR_NEXT:
                clauses.append([])
        assert clauses.pop() == []
        rows.append(clauses)
    return rows, is_exact


def test_columns_are_numbered_as_they_are_asked_for_beginning_with_the_subject() -> None:
    columns = Columns()
    assert columns.count == 1
    assert encoded(columns, "any a == 1 and b == x and exists a and any b > y and any a == 2")[0] == [
        [[(1, 1.0, 1.0)], [(2, 0.0, 0.0)], [(3, PRESENT, EMPTY)], [(4, math.nextafter(0.0, INF), INF)], [(1, 2.0, 2.0)]]
    ]
    assert columns.count == 5
    assert columns.presences == [3]
    assert encoded(columns, "c == true or not exists c")[0] == [[[(5, 1.0, 1.0)]], [[(6, MISSING, MISSING)]]]
    assert columns.presences == [3, 6]
    assert columns.count == 7
    columns.settle()
    assert (columns.count, columns.presences) == (7, [3, 6])


def test_entries_of_one_clause_are_joined_and_mark_open_ends() -> None:
    columns = Columns()
    above, below = math.nextafter(1.0, INF), math.nextafter(1.0, -INF)
    assert encoded(columns, "a != 1")[0] == [[[(1 | OPEN_HIGH, -INF, below), (1 | OPEN_LOW, above, INF)]]]
    assert encoded(columns, "a > 1 and a < 2")[0] == [[[(1 | OPEN_LOW | OPEN_HIGH, above, math.nextafter(2.0, 0))]]]
    assert encoded(columns, "a in (3, 4)")[0] == [[[(1, 3.0, 3.0), (1, 4.0, 4.0)]]]
    assert encoded(columns, "b in (x, y)")[0] == [[[(2, 0.0, 0.0), (2, 1.0, 1.0)]]]


@pytest.mark.parametrize(
    ("excluded", "ranges"),
    [
        ("0", [(-1.0, -1.0), (1.0, INF)]),
        ("1", [(-1.0, 0.0), (2.0, INF)]),
        ("0, 1", [(-1.0, -1.0), (2.0, INF)]),
        ("2, 0", [(-1.0, -1.0), (1.0, 1.0), (3.0, INF)]),
        ("3, 1, 2", [(-1.0, 0.0), (4.0, INF)]),
    ],
)
def test_all_words_but_some_are_ranges_of_numbers(excluded: str, ranges: list[tuple[float, float]]) -> None:
    columns = Columns()
    encoded(columns, 'a in ("0", "1", "2", "3")')
    quoted = ", ".join(f'"{each}"' for each in excluded.split(", "))
    (row,), is_exact = encoded(columns, f"any a (not in ({quoted}))")
    assert [(low, high) for _, low, high in row[0]] == ranges
    assert is_exact


@pytest.mark.parametrize("seed", range(3))
def test_ranges_of_strings_hold_of_the_same_strings_also_after_other_ends_came(seed: int) -> None:
    rng = random.Random(seed)
    columns = Columns()
    several = [each for each in texts(rng, 40) if each and "\0" not in each] + narrowing(70)
    asked = []
    for text in several:
        quoted = text.replace("\0", "\\u0000")
        for sign in ("<", "<=", ">", ">=", "prefix"):
            node = parse(f'a {sign} "{quoted}"').root
            rows, is_exact = encoded(columns, f'a {sign} "{quoted}"')
            asked.append((node, rows, is_exact))
    marks = columns.attributes["a"].marks
    told = 0
    for node, rows, is_exact in asked:
        for value in several:
            mark = marks.of(value)
            held = any(all(any(low <= mark <= high for _, low, high in clause) for clause in row) for row in rows)
            wanted = evaluate(node, Event("S", {"a": value})) is True
            assert held or not wanted
            assert held == wanted or not is_exact
        told += is_exact
    assert 0 < told < len(asked)


def test_old_strings_are_removed_for_new_ones() -> None:
    columns = Columns()
    encoded(columns, "any a == x and any a >= y and b == z and exists b")
    encoded(columns, "c == 1")
    columns.forget([True, False, True, False, False])
    assert {name: max(its.columns) for name, its in columns.attributes.items()} == {"a": 2, "c": 5}
    assert (columns.count, columns.presences) == (6, [])
    fresh = {encoded(columns, f"{name} == 1")[0][0][0][0][0] for name in "defg"}
    assert fresh == {1, 3, 4, 6}


def test_a_forgotten_word_gives_its_number_to_the_next_and_a_forgotten_end_its_room() -> None:
    words = Words()
    assert [words[each] for each in "abc"] == [0.0, 1.0, 2.0]
    words.forget("b")
    assert (words.all(), words.get("b", UNKNOWN), words["d"], words.size) == (["a", "c"], UNKNOWN, 1.0, 3)
    marks = Marks()
    added = {text: marks.add(text)[0] for text in "bdf"}
    assert marks.of("e") < added["f"]
    marks.forget({added["d"]})
    assert marks.ends == ["b", "f"]
    assert added["b"] < marks.of("d") == marks.of("c") == marks.of("e") < added["f"]


def test_columns_fit_beside_the_other_bits_of_an_entry() -> None:
    columns = Columns()
    for number in range(300):
        encoded(columns, f"a{number} == {number}")
    assert PLACE & (OR_NEXT | OPEN_LOW | OPEN_HIGH) == 0
    assert columns.count == 301 <= PLACE
