"""python -m faults conformance: its cells, its command line and its report (SPEC M-05)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faults import conformance
from tests.federation.conformance import CELLS, Cell


def test_a_run_reports_the_cells_that_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = CELLS[3]

    def problems_of(cell: Cell) -> list[str]:
        return ["lost"] if cell == failing else []

    monkeypatch.setattr(conformance, "problems_of", problems_of)
    report = tmp_path / "report.json"
    assert conformance.main(["--json", str(report)]) == 1
    said = capsys.readouterr()
    assert f"{failing}: lost" in said.err
    assert said.out.startswith(f"{len(CELLS)} cells, 1 failed\n")
    found = json.loads(report.read_text())
    assert [(each["name"], each["value"], each["met"]) for each in found["goals"]] == [("conformance_failed", 1, False)]
    assert [each["cell"] for each in found["results"] if each["result"] == "failed"] == [str(failing)]


def test_some_cells_alone() -> None:
    assert conformance.main(["--cell", str(CELLS[0])]) == 0


def test_a_cell_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert conformance.main(["--cell", "pigeon/*"]) == 2
    assert f"no cell is called pigeon/* (expected such as {CELLS[0]})" in capsys.readouterr().err
