"""Work of a filter for an event, counted without evaluating it."""

from __future__ import annotations

from typing import Any

import pytest

from wanderbus.filters import parse
from wanderbus.filters.cesql import patterns
from wanderbus.filters.compiled import QUESTIONS_MAX
from wanderbus.filters.work import CASED_OTHERS, OPERATION, EverySize, Sizes, work_of


def units(text: str, language: str = "eci", /, **attributes: Any) -> int:
    return work_of(parse(text, language).root).units(Sizes(attributes))


def test_plain_comparisons_are_some_operations_however_long_the_text() -> None:
    assert units("a == 'x' and b < 5", a="y" * 30_000, b=3) == units("a == 'x' and b < 5", a="y", b=3) < 10 * OPERATION


def test_missing_attributes_cost_nothing() -> None:
    assert units("a contains 'x'") < units("a contains 'x'", a="y")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("a contains 'xyz'", "eci"),
        ("UPPER(a) = 'X'", "cesql"),
        ("TRIM(a) = 'X'", "cesql"),
        ("LOWER(a) LIKE '%x%'", "cesql"),
        ("CONCAT(a, a, a) = 'X'", "cesql"),
        ("INT(a) = 3", "cesql"),
    ],
)
def test_work_grows_with_the_text(text: str, language: str) -> None:
    short, long, longer = (units(text, language, a="y" * count) for count in (10, 16_000, 32_000))
    assert short < 2_000 < long
    assert long < longer < 2 * long + 1


def test_every_item_of_a_list_counts() -> None:
    one, many = (units("not a in (1, 2)", a=[5] * count) for count in (1, 1_000))
    assert many - one >= 999 * OPERATION


def test_texts_put_together_count_wherever_they_go() -> None:
    once, often = (units(f"UPPER(CONCAT({', '.join(['a'] * n)})) = 'X'", "cesql", a="y" * 10_000) for n in (1, 8))
    assert often > 7 * once


def test_a_text_that_was_cut_counts_as_what_is_left() -> None:
    assert (
        units("UPPER(LEFT(a, 3)) = 'X'", "cesql", a="y" * 30_000) < units("UPPER(a) = 'X'", "cesql", a="y" * 30_000) / 2
    )


def test_the_case_of_letters_beyond_ascii_costs_more() -> None:
    ascii_, others = (units("LOWER(a) = 'x'", "cesql", a=letter * 20_000) for letter in "yß")
    assert others > CASED_OTHERS / 2 * ascii_


def test_a_pattern_with_wildcards_for_one_character_counts_by_what_it_seeks() -> None:
    assert (
        patterns.eighths("%abc%")
        == patterns.eighths("%a%b%c%")
        < patterns.eighths("%a_c%")
        < patterns.eighths("%a__c%")
    )


def test_a_large_tree_counts_each_value_of_in_since_they_are_tried_in_turn() -> None:
    values = f"a in ({', '.join(map(str, range(300)))})"
    small = units(f"{values} and not b == 1", a=1)
    large = units(f"{values} and {' and '.join(['not b == 1'] * (QUESTIONS_MAX + 1))}", a=1)
    assert small < 20 * OPERATION
    assert large > 300 * OPERATION


def test_work_for_an_event_that_has_everything() -> None:
    work = work_of(parse("a contains 'x' or b contains 'x'").root)
    both = dict.fromkeys("ab", "y" * 253)  # quotes and a comma belong to the text of a list
    assert work.units(EverySize(256)) == work.units(Sizes(both))
