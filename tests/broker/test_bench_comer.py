"""The benchmark of others beside a backlog, small, with real agents (SPEC U-03)."""

from __future__ import annotations

import pytest

from bench import broker_comer

pytestmark = pytest.mark.integration


def test_turns_with_and_without_the_comer_are_measured_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_comer, "TURNS", 2)
    # The comer is a new device each time, so some events have to wait after its first turn.
    figures = broker_comer.comer(20_000, 0.5)
    assert figures["queued"] == 20_000
    assert figures["taken"] > 0
    assert min(figures[name] for name in ("alone_p50_ms", "beside_p50_ms", "p50_ratio", "p99_ratio")) > 0
