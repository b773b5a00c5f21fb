"""``./do enginekill``: a real engine and its server that are really killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faults import enginekill

pytestmark = pytest.mark.spark


def test_t06_agents_get_each_event_once_and_in_order_whatever_is_killed(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert enginekill.main(["--cycles", "1", "--seed", "4", "--json", str(report), "--strict"]) == 0
    written = json.loads(report.read_text())
    assert {goal["name"]: goal["value"] for goal in written["goals"]} == {
        "engine_lost": 0,
        "engine_repeated": 0,
        "engine_out_of_order": 0,
        "engine_integrity_errors": 0,
    }
    (result,) = written["results"]
    assert result["taken"] > 0
    assert sum(result["kills"].values()) == 1
