"""The measurement of growth reports rows of every dimension and its two figures."""

from __future__ import annotations

import pytest

from bench import broker_growth
from bench.broker_growth import Scale, growth


@pytest.mark.integration
def test_growth_measures_each_dimension_and_both_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_growth, "GROWING", {"users": (1, 2), "subjects": (1, 2), "depth": (0, 50)})
    monkeypatch.setattr(broker_growth, "SETTLE_S", 0.2)
    monkeypatch.setattr(broker_growth, "FULL_DEPTH", 50)
    monkeypatch.setattr(broker_growth, "WARMING", 20)
    found = growth(Scale(events=50, batches=1, values=2, full_users=(2,), backlog=100))
    assert [(row["dimension"], row["value"]) for row in found["rows"]] == [
        *(("users", 1), ("users", 2), ("subjects", 1), ("subjects", 2), ("depth", 0), ("depth", 50))
    ]
    assert all(row["us"] > 0 for row in found["rows"])
    assert found["full_queues_vs_room"] > 0
    assert found["backlog_vs_live"] > 0
