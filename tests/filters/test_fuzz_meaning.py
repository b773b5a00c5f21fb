"""The long comparison of the meaning of filters, in short; it finds inserted faults."""

from __future__ import annotations

import pytest

from fuzz import meaning, target_runs
from tests.short_fuzz import check_run, short_run
from wanderbus.filters import conjunctions, eci
from wanderbus.filters.ast import Node
from wanderbus.filters.normal import NormalForm
from wanderbus.filters.normalising import normal_form

INPUTS = 250
BY_NAME = {target.name: target for target in meaning.TARGETS}


@pytest.mark.parametrize("name", BY_NAME)
def test_nothing_differs_and_some_events_match(name: str) -> None:
    tally = short_run(BY_NAME[name], INPUTS)
    check_run(tally, INPUTS, least=4)


@pytest.mark.parametrize("name", BY_NAME)
def test_inputs_depend_on_seed_target_and_index_alone(name: str) -> None:
    one = [target_runs.input_of(BY_NAME[name], 3, index) for index in range(20)]
    assert one == [target_runs.input_of(BY_NAME[name], 3, index) for index in range(20)]
    assert len(set(one)) == 20


def broken(name: str) -> set[str]:
    """Return the kinds of the first failures, without their details."""
    tally = short_run(BY_NAME[name], INPUTS)
    return {failure.detail.split(":")[0] for failure in tally.failures}


@pytest.mark.parametrize("name", BY_NAME)
def test_unsound_covering_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "covers", lambda one, other: True)
    assert {"unsound", "no counterexample"} <= broken(name)


def test_incomplete_covering_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conjunctions, "covers", lambda *given: False)
    assert broken("meaning-trees") == {"neither covered nor a counterexample"}


def test_a_form_that_differs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def shortened(node: Node) -> NormalForm:
        return normal_form(node)[:1]

    monkeypatch.setattr(meaning, "normal_form", shortened)
    assert "the normal form differs" in broken("meaning-trees")


def test_a_text_that_is_not_read_as_it_was_written_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    write = eci.write
    monkeypatch.setattr(eci, "write", lambda node: write(node).replace(">=", ">"))
    assert "not read as it was written" in broken("meaning-trees")
