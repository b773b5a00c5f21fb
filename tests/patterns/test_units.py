"""Size of events that a pattern keeps."""

from __future__ import annotations

from typing import Any

import pytest

from wanderbus.patterns.automaton import Seen, node_after


def seen(*values: Any, key: str = "") -> Seen:
    return Seen(key, 0, 0, "", 1, values)


@pytest.mark.parametrize(
    ("event", "units"),
    [
        (seen(1, None, True, "short"), 1),
        (seen("x" * 1_023), 1),
        (seen("x" * 1_024), 2),
        (seen("x" * 512, "y" * 512), 2),
        (seen(key="x" * 2_048), 3),
        (seen("é" * 256), 2),
        (seen([1] * 16), 2),
        (seen(["x" * 960, 1]), 2),
    ],
)
def test_an_event_counts_once_more_for_each_full_kib(event: Seen, units: int) -> None:
    assert event.units == units


def test_a_partial_match_counts_all_its_events() -> None:
    first = node_after(None, 0, seen("x" * 2_048))
    assert (first.length, first.units) == (1, 3)
    second = node_after(first, 1, seen("x" * 1_024))
    assert (second.length, second.units) == (2, 5)
