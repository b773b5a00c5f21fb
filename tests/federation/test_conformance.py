"""Conformance: the same deliveries with each method, each model of channels, and each merging (SPEC M-05)."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.federation.conformance import CELLS, MODELS, Cell, Model, problems_of
from wanderbus.channels.interest.interest_set import MODES
from wanderbus.federation.exports import Exports


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_m05_deliveries_are_the_same_in_each_cell(cell: Cell) -> None:
    assert problems_of(cell) == []


def test_m05_each_combination_is_a_cell() -> None:
    assert get_args(Model) == MODELS
    assert {each[1:] for each in CELLS if each.method == "rendezvous"} == {
        (source, target, merging) for source in MODELS for target in MODELS for merging in MODES
    }


@pytest.mark.parametrize("place", [0, len(CELLS) - 1])
def test_m05_a_lost_event_is_noticed(monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    monkeypatch.setattr(Exports, "_forward", lambda self, arrived, now: None)
    assert any("expected" in each for each in problems_of(CELLS[place]))
