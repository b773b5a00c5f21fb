"""The fuzzer of expressions in short: some hundred inputs for each language; it finds inserted faults (DESIGN 9)."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz import filters, target_runs
from tests.short_fuzz import check_run, short_run
from wanderbus.errors import FilterError
from wanderbus.filters import eci

INPUTS = 500
BY_NAME = {target.name: target for target in filters.TARGETS}


@pytest.mark.parametrize("name", BY_NAME)
def test_nothing_breaks_and_both_ways_are_gone(name: str) -> None:
    tally = short_run(BY_NAME[name], INPUTS)
    check_run(tally, INPUTS)
    assert 0 < tally.peak_bytes <= target_runs.MEMORY_BYTES_MAX


def refuse_what_is_good(text: str) -> Any:
    raise FilterError("no", text, len(text) + 1)


def fail_otherwise(text: str) -> Any:
    raise KeyError(text)


def give_another_tree(text: str) -> Any:
    return READ("not (" + text + ")" if text.strip() else text)


READ = eci.read


@pytest.mark.parametrize(
    ("sabotage", "kind"),
    [(refuse_what_is_good, "broken"), (fail_otherwise, "undeclared"), (give_another_tree, "broken")],
)
def test_the_fuzzer_notices(sabotage: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanderbus.filters.eci.read", sabotage)
    target = BY_NAME["filters-eci"]
    judged = (target_runs.judge(target, target_runs.input_of(target, 1, index))[2] for index in range(200))
    assert any(failure is not None and failure.kind == kind for failure in judged)


def test_the_fuzzer_notices_a_compiled_filter_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "compile_node", lambda node: lambda attributes: True)
    target = BY_NAME["filters-eci"]
    judged = (target_runs.judge(target, target_runs.input_of(target, 1, index))[2] for index in range(200))
    assert any(failure is not None and failure.kind == "broken" for failure in judged)
