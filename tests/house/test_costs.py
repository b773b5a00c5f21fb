"""The table of computations that others choose, and the search for the dearest input of each."""

from __future__ import annotations

import re
import time
from pathlib import Path
from random import Random

import pytest

from fuzz import __main__ as command
from fuzz.cost import OUT_OF_PROPORTION, Dearest, climb, goals_of, search
from fuzz.cost_targets import COMPUTATIONS, Computation, Prepared
from fuzz.target_runs import Failure

PAGE = Path("docs/SECURITY.md")


def rows() -> list[list[str]]:
    """Return the cells of the table of computations."""
    section = PAGE.read_text().partition("## Computations that others choose\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_every_computation_of_the_table_is_searched_or_says_why_not() -> None:
    targets = [row[-1] for row in rows()]
    searched = [each.strip("`") for each in targets if each.startswith("`")]
    assert sorted(searched) == sorted(each.name for each in COMPUTATIONS)
    assert all(re.fullmatch(r"`\w+`|none: .{10,}", each) for each in targets)


@pytest.mark.parametrize("computation", COMPUTATIONS, ids=lambda each: each.name)
def test_some_inputs_of_each_computation_are_permitted_and_counted(computation: Computation) -> None:
    found, tried, beyond = climb(computation, 40, Random(1), time.monotonic() + 20)
    assert tried > 0
    assert not beyond
    assert found
    assert all(0 < each.units <= computation.bound and each.calls > 0 for each in found)


def _spinning(units: float, calls: int, bound: float = 1_000) -> Computation:
    def run() -> None:
        for _ in range(calls):
            len(b"")

    prepared = Prepared(units, run)
    return Computation("spin", lambda random: random.randbytes(4), lambda *_: b"x", lambda _: prepared, bound, 10.0)


def test_time_out_of_proportion_to_the_counted_work_is_found() -> None:
    found = search(_spinning(100, 200_000), 5, 1, time.monotonic() + 20, 1.0)
    assert found.unit_ns > OUT_OF_PROPORTION * 10
    assert {each.kind for each in found.failures} == {"disproportion"}


def test_a_permitted_input_beyond_the_bound_is_found() -> None:
    found = search(_spinning(2_000, 10), 5, 1, time.monotonic() + 20, 1.0)
    assert [each.kind for each in found.failures] == ["beyond"]


def test_climbing_finds_dearer_inputs_than_chance() -> None:
    def prepare(data: bytes) -> Prepared:
        return Prepared(len(data), lambda: [len(b"") for _ in range(len(data))])

    longer = Computation("text", lambda random: b"x", lambda random, one, other: one + other, prepare, 10**9, 10.0)
    found, _, _ = climb(longer, 60, Random(1), time.monotonic() + 20)
    assert found[0].units > 100


def test_goals_count_failures_by_kind() -> None:
    failures = [Failure("x", "disproportion", "", b""), Failure("x", "beyond", "", b"")]
    dearest = Dearest(COMPUTATIONS[0], 1, 1, climb(_spinning(1, 1), 1, Random(1), 1e12)[0][0], 0.0, 0.0, failures)
    assert [each["value"] for each in goals_of([dearest])] == [1, 1]


def test_an_unknown_computation_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["cost", "--target", "nothing"]) == 2
    assert "cost has no target 'nothing'; use one of: parse_eci" in capsys.readouterr().err
