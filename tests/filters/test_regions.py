"""Regions against single values: values inside, at their ends and just outside."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from wanderbus.filters import regions
from wanderbus.filters.normal import Interval
from wanderbus.filters.regions import EMPTY, WHOLE, Region

DAY = datetime(2026, 11, 21, tzinfo=UTC)
VALUES: dict[str, list[Any]] = {
    "number": [-math.inf, -(2**63), -1.5, 0, 5e-324, 1, math.nextafter(1, 2), 2, 2**53, 2**53 + 1, 2.0**53 + 2, 1e300],
    "string": ["", "\0", "a", "a\0", "a\0\0", "ab", "b", "\ud7ff", "\ue000", "\U0010ffff", "\U0010ffff\U0010ffff"],
    "boolean": [False, True],
    "date": [DAY, DAY + timedelta(microseconds=1), DAY + timedelta(microseconds=2), DAY + timedelta(days=1)],
}
VALUES["number"].append(math.inf)
SEEDS = range(400)


def any_region(random: Random, values: list[Any]) -> Region:
    pieces = []
    for _ in range(random.randrange(4)):
        low, high = (random.choice([None, *values]) for _ in range(2))
        pieces.append(regions.interval(low, high, random.random() < 0.5, random.random() < 0.5))
    return regions.union(*pieces)


def remade(each: Interval) -> Region:
    return regions.interval(each.low, each.high, each.low_open, each.high_open)


def members(region: Region, values: list[Any]) -> set[Any]:
    return {value for value in values if regions.has(region, value)}


@pytest.mark.parametrize("kind", VALUES)
def test_every_operation_is_that_of_the_sets(kind: str) -> None:
    values = VALUES[kind]
    for seed in SEEDS:
        random = Random(f"{kind} {seed}")
        one, other = any_region(random, values), any_region(random, values)
        mine, yours = members(one, values), members(other, values)
        assert members(regions.union(one, other), values) == mine | yours, seed
        assert members(regions.intersection(one, other), values) == mine & yours, seed
        assert members(regions.difference(one, other), values) == mine - yours, seed
        assert members(regions.complement(one), values) == set(values) - mine, seed
        assert regions.is_subset(one, other) == (regions.difference(one, other) == EMPTY), seed
        assert regions.is_subset(regions.intersection(one, other), one), seed


@pytest.mark.parametrize("kind", VALUES)
def test_intervals_are_sorted_disjoint_apart_and_never_empty(kind: str) -> None:
    values = VALUES[kind]
    for seed in SEEDS:
        random = Random(f"{kind} {seed}")
        one, other = any_region(random, values), any_region(random, values)
        for region in (one, regions.complement(one), regions.intersection(one, other), regions.union(one, other)):
            for before, after in pairwise(region):
                assert before.high is not None
                assert after.low is not None
                between = regions.interval(before.high, after.low, not before.high_open, not after.low_open)
                assert between != EMPTY, seed
            assert all(remade(each) == (each,) for each in region), seed


@pytest.mark.parametrize("kind", VALUES)
def test_a_set_and_its_complement_are_everything(kind: str) -> None:
    for seed in SEEDS:
        region = any_region(Random(f"{kind} {seed}"), VALUES[kind])
        assert regions.union(region, regions.complement(region)) == WHOLE
        assert regions.intersection(region, regions.complement(region)) == EMPTY
        again = regions.complement(regions.complement(region))
        assert regions.is_subset(again, region)
        assert regions.is_subset(region, again)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (1, math.nextafter(1.0, 2.0)),
        (2**60, 2**60 + 1),
        (0, 5e-324),
        (2.0**53, 2**53 + 1),
        (2**63 - 1, 2.0**63),
        ("a", "a\0"),
        (DAY, DAY + timedelta(microseconds=1)),
        (False, True),
    ],
)
def test_nothing_lies_between_neighbours(low: Any, high: Any) -> None:
    assert regions.interval(low, high, True, True) == EMPTY
    assert regions.interval(low, high, True, False) == regions.point(high)
    assert regions.interval(low, high, False, True) == regions.point(low)
    assert len(regions.union(regions.point(low), regions.point(high))) == 1
    assert regions.is_subset(regions.interval(low, None, True), regions.interval(high, None))
    assert regions.is_subset(regions.interval(None, high, False, True), regions.interval(None, low))


def test_something_lies_between_others() -> None:
    for low, high in ((1, 2), (2**53 - 1, 2**53 + 1), ("a", "b"), ("a", "a\0\0"), (DAY, DAY + timedelta(seconds=1))):
        assert regions.interval(low, high, True, True) == (Interval(low, high, True, True),)
        assert len(regions.union(regions.point(low), regions.point(high))) == 2


def test_the_least_and_the_greatest_are_no_ends() -> None:
    assert regions.interval("", None) == WHOLE
    assert regions.interval(-math.inf, math.inf) == WHOLE
    assert regions.interval(False, True) == WHOLE
    assert regions.interval(None, "", False, True) == EMPTY
    assert regions.interval(math.inf, None, True) == EMPTY
    assert regions.interval(None, -math.inf) == regions.point(-math.inf)


def test_equal_values_have_one_representation() -> None:
    for value, same in ((1.0, 1), (-0.0, 0), (2.0**62, 2**62)):
        assert repr(regions.canonical(value)) == repr(same)
    assert regions.canonical(2.0**63) == 2.0**63
    assert isinstance(regions.canonical(2.0**63), float)
    there = datetime(2026, 11, 21, 2, tzinfo=timezone(timedelta(hours=2)))
    assert repr(regions.canonical(there)) == repr(DAY)
    beyond = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
    assert regions.canonical(beyond) is beyond
    assert regions.canonical(True) is True


@pytest.mark.parametrize(
    ("prefix", "after"),
    [
        ("a", "b"),
        ("ab", "ac"),
        ("a\U0010ffff", "b"),
        ("\U0010ffff", None),
        ("a\ud7ff", "a\ue000"),
        ("\uffff", "\U00010000"),
        ("", None),
    ],
)
def test_the_strings_with_a_prefix_are_an_interval(prefix: str, after: str | None) -> None:
    assert regions.after_prefix(prefix) == after
    region = regions.prefixed(prefix)
    for text in (*VALUES["string"], prefix, prefix + "\U0010ffff" * 3, prefix[:-1], prefix + "\0", "a\ue000", "b"):
        assert regions.has(region, text) == text.startswith(prefix), text


@pytest.mark.parametrize(
    ("low", "high", "prefix"),
    [("ab", "ac", "ab"), ("ab", "ad", "a"), ("ab", "abz", "ab"), ("ab\0", "ac", "ab"), ("a", "c", ""), (None, "a", "")],
)
def test_common_prefix_of_an_interval_of_strings(low: str | None, high: str, prefix: str) -> None:
    assert regions.shared_prefix(Interval(low, high, False, True)) == prefix
    assert high.startswith(regions.shared_prefix(Interval(low, high)))


def test_the_work_is_near_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPEC B-09: twice the intervals, hardly more than twice the comparisons of ends."""
    counts = []
    for size in (200, 400, 800, 1_600):
        calls = 0

        def counted(value: Any) -> Any:
            nonlocal calls
            calls += 1
            return value

        class End(int):
            def __lt__(self, other: int) -> bool:
                return int.__lt__(counted(self), other)

            def __gt__(self, other: int) -> bool:
                return int.__gt__(counted(self), other)

        many = regions.union(*(regions.point(End(2 * number)) for number in Random(size).sample(range(size), size)))
        others = regions.union(*(regions.point(End(3 * number)) for number in range(size)))
        regions.intersection(many, regions.complement(others))
        assert not regions.is_subset(many, others)
        counts.append(calls)
    assert all(later < 2.5 * earlier for earlier, later in pairwise(counts)), counts
