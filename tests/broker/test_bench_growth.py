"""The measurements of growth and of full queues report every row and their figures."""

from __future__ import annotations

import pytest

from bench import broker_full, broker_growth
from bench.broker_full import KINDS, full
from bench.broker_growth import Scale, growth


@pytest.mark.integration
def test_growth_measures_each_dimension_and_a_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_growth, "GROWING", {"users": (1, 2), "subjects": (1, 2), "depth": (0, 50)})
    monkeypatch.setattr(broker_growth, "SETTLE_S", 0.2)
    monkeypatch.setattr(broker_growth, "WARMING", 20)
    found = growth(Scale(events=50, batches=1, values=2, backlog=100))
    assert [(row["dimension"], row["value"]) for row in found["rows"]] == [
        *(("users", 1), ("users", 2), ("subjects", 1), ("subjects", 2), ("depth", 0), ("depth", 50))
    ]
    assert all(row["us"] > 0 for row in found["rows"])
    assert found["backlog_vs_live"] > 0


@pytest.mark.integration
def test_full_queues_of_each_kind_are_compared_with_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_full, "SETTLE_S", 0.2)
    monkeypatch.setattr(broker_full, "DEPTH", 50)
    monkeypatch.setattr(broker_full, "WARMING", 60)
    found = full(events=50, batches=1, user_counts=(2,))
    assert {name: list(ratios) for name, ratios in found["ratios"].items()} == {name: [2] for name in KINDS}
    assert found["full_queues_vs_room"] == found["ratios"]["one"][2] > 0
    assert found["full_queues_of_other_kinds_vs_room"] > 0
