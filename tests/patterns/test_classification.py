"""Leaves of a pattern: a table is classified as its events are one by one (SPEC T-07)."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from wanderbus.matching.columns import ABSENT
from wanderbus.matching.table import EventTable
from wanderbus.matching.table_columns import Texts
from wanderbus.patterns import compile_pattern

PATTERN = compile_pattern("""
match A: a (x > 1) then not B: b (x > 1 or y == 'q') then C: * (x < 2) then D: * cesql [[ABS(x) = 1]]
 then E: b within 1 hour
""")

ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from([-1, 0, 1, 2, 3.5, "q", True, [1, 5]])),
    ),
    max_size=8,
)


@settings(max_examples=60)
@given(ROWS)
def test_the_rows_of_a_table_match_the_leaves_that_their_events_match(rows: list[tuple[str, dict[str, Any]]]) -> None:
    subjects = sorted({subject for subject, _ in rows})
    table = EventTable(
        Texts(np.array([subjects.index(subject) for subject, _ in rows], np.int64), subjects),
        {name: [attributes.get(name, ABSENT) for _, attributes in rows] for name in ("x", "y")},
        lambda row: rows[row][1],
    )
    expected = [PATTERN.leaves_of(subject, attributes) for subject, attributes in rows]
    assert PATTERN.leaves_of_table(table).tolist() == expected


def test_an_event_has_a_bit_for_each_leaf_that_it_matches() -> None:
    assert PATTERN.leaves_of("a", {"x": 1}) == 0b01100
    assert PATTERN.leaves_of("b", {"y": "q"}) == 0b10010
    assert PATTERN.leaves_of("c", {"x": "text"}) == 0
