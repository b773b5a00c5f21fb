"""The time of looking up values of `in` among the items of a list."""

from __future__ import annotations

import time

import pytest

from wanderbus.event import Event
from wanderbus.filters import parse
from wanderbus.limits import EVENT_LIST_ITEMS_MAX
from wanderbus.matching import Index
from wanderbus.matching.index import Kernel

TIMES_MAX = 60
"""Times as long as a list of one item may take the largest one: values are looked up, not compared with each item."""


def seconds(index: Index, items: int) -> float:
    event = Event("s", {"a": [100_000 * (each % 1_400) + 2 * each + 1 for each in range(items)], "b": 1})
    least = 1e9
    for _ in range(5):
        began = time.process_time()
        assert index.match([event]) == [[]]
        least = min(least, time.process_time() - began)
    return least


@pytest.mark.parametrize("kernel", ["numba", "numpy"])
def test_a_value_is_not_compared_with_every_item(kernel: Kernel) -> None:
    pytest.importorskip(kernel)
    index = Index(kernel)
    for number in range(60):
        values = ", ".join(str(100_000 * each + 2 * number) for each in range(1_400))
        index.add(str(number), "s", parse(f"a in ({values}) and b == 1"))
    assert seconds(index, EVENT_LIST_ITEMS_MAX) < TIMES_MAX * seconds(index, 1)
