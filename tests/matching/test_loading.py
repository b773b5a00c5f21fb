"""An index that is used while its kernel is loaded, and moves to it by and by (DESIGN 7.4)."""

from __future__ import annotations

import random
from importlib import import_module
from typing import Any

import pytest

from wanderbus.event import Event
from wanderbus.filters import parse
from wanderbus.matching import Index, ScanIndex, index, load_kernel
from wanderbus.matching.index import MOVED_AT_ONCE

pytest.importorskip("numba")
engine = pytest.importorskip("wanderbus.matching.engine")


def added(some: Index | ScanIndex, number: int) -> None:
    some.add(f"id{number}", "S", parse(f"a >= {number % 10}"))


def found(some: Index | ScanIndex, *values: int) -> list[list[str]]:
    return [sorted(ids) for ids in some.match([Event("S", {"a": value}) for value in values])]


def test_scanned_filters_are_moved_in_steps_without_missing_a_match() -> None:
    some = Index("scan")
    for number in range(4 * MOVED_AT_ONCE):
        added(some, number)
    some.use("numba")
    assert (len(some), len(some._few)) == (4 * MOVED_AT_ONCE, 4 * MOVED_AT_ONCE)
    for left in (3, 2, 1, 0):
        everything = found(some, 9)
        assert len(everything[0]) == len(set(everything[0])) == 4 * MOVED_AT_ONCE
        assert len(some) == 4 * MOVED_AT_ONCE
        assert len(some._few) == left * MOVED_AT_ONCE


def test_adding_moves_too() -> None:
    some = Index("scan")
    for number in range(3 * MOVED_AT_ONCE):
        added(some, number)
    some.use("numba")
    for number in range(3):
        added(some, 1_000 + number)
    assert len(some._few) == 0
    assert len(some) == 3 * MOVED_AT_ONCE + 3


@pytest.mark.parametrize("seed", range(10))
def test_it_is_right_at_any_time_of_the_move(seed: int) -> None:
    rng = random.Random(seed)
    some, reference = Index("scan"), ScanIndex()
    for step in range(400):
        if step == 150:
            some.use("numba")
        number = rng.randrange(300)
        match rng.randrange(4):
            case 0 | 1:
                filter, subject = parse(f"a >= {rng.randrange(10)}"), rng.choice("ST")
                some.add(f"id{number}", subject, filter)
                reference.add(f"id{number}", subject, filter)
            case 2:
                some.remove(f"id{number}")
                reference.remove(f"id{number}")
            case _ if rng.random() < 0.2:
                values = [rng.randrange(10) for _ in range(rng.randint(1, 3))]
                assert found(some, *values) == found(reference, *values), seed
        assert len(some) == len(reference), seed
    assert found(some, *range(10)) == found(reference, *range(10)), seed


def test_a_broker_without_a_kernel_keeps_scanning() -> None:
    some = Index("scan")
    for number in range(100):
        added(some, number)
    some.use("scan")
    assert len(found(some, 9)[0]) == 100
    some.use("numba")
    assert len(found(some, 9)[0]) == 100
    assert len(some.arrays()["slots"]) == 100


def test_the_best_that_works_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_kernel() == "numba"
    broken = {"kernel_numba"}

    def imported(name: str) -> Any:
        if name.rpartition(".")[2] in broken:
            raise OSError("a library is missing")
        return import_module(name.replace("kernel_numpy", "kernel_numba"))

    monkeypatch.setattr(index, "import_module", imported)
    assert load_kernel() == "numpy"
    monkeypatch.setattr(engine.Engine, "match", lambda *_: 1 / 0)
    assert load_kernel() == "scan"
