"""Estimated size of a filter: the share of names, comparisons, values and other languages."""

from __future__ import annotations

import pytest

from wanderbus.filters import parse
from wanderbus.filters.sizes import (
    CHARACTER_BYTES,
    FILTER_BYTES,
    NAME_BYTES,
    QUESTION_BYTES,
    VALUE_BYTES,
    has_questions,
    size_of,
)


@pytest.mark.parametrize(
    ("more", "less", "bytes_more"),
    [
        ("a == 1 and b == 1 and c == 1", "a == 1 and b == 1 and b == 1", NAME_BYTES),
        ("a in (1, 2, 3)", "a in (1, 2)", VALUE_BYTES),
        ('a in ("x", "yyy")', 'a in ("x", "y")', 2),
        ('a contains "xyz"', 'a contains "x"', 2),
        ("not exists a", "exists a", QUESTION_BYTES),
        ("", None, FILTER_BYTES + QUESTION_BYTES),
    ],
)
def test_each_part_adds_its_share(more: str, less: str | None, bytes_more: int) -> None:
    assert size_of(parse(more)) - (0 if less is None else size_of(parse(less))) == bytes_more


def test_an_expression_of_another_language_counts_by_its_text() -> None:
    long, short = (parse(f"UPPER(a) = '{'X' * count}'", "cesql") for count in (10, 3))
    assert size_of(long) - size_of(short) == 7 * CHARACTER_BYTES


@pytest.mark.parametrize("text", ["a == 1 or b == 2 or c == 3", "all a >= 1 and not b == 2 and exists c"])
def test_questions_are_counted_up_to_the_bound(text: str) -> None:
    root = parse(text).root
    assert has_questions(root, 2)
    assert not has_questions(root, 4)


def test_values_of_in_are_a_quarter_of_a_question_each() -> None:
    root = parse(f"a in ({', '.join(map(str, range(40)))})").root
    assert has_questions(root, 9)
    assert not has_questions(root, 10)
