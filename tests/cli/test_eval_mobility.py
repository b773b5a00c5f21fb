"""``wanderbus eval mobility``: its output, files and errors."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from wanderbus.cli.application import run
from wanderbus.evaluation.hosts import NamespaceHosts

ONE_CELL = ("eval", "mobility", "--simulated", "--cell", "100/20")


def test_one_cell_in_virtual_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, plots = tmp_path / "report.json", tmp_path / "plots"
    options = ["--runs", "2", "--seed", "5", "--events", "700", "--outage", "ours", "--strict"]
    assert run([*ONE_CELL, *options, "--json", str(report), "--plots", str(plots)]) == 0
    printed = capsys.readouterr().out
    assert "seeds 5 to 6" in printed
    assert "loss_with_ours_max_percent: 0 %, goal 0: met" in printed
    written = msgspec.json.decode(report.read_bytes())
    assert written["command"] == "eval mobility"
    assert {goal["name"]: goal["met"] for goal in written["goals"]} == {
        "loss_with_ours_max_percent": True,
        "unaccounted_events": True,
    }
    assert [each["run"] for each in written["results"]["simulated"]["runs"]] == [5, 6]
    assert [path.name for path in plots.iterdir()] == ["mobility-simulated-ours.svg"]


def test_a_goal_that_is_not_met_is_an_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    """The outage of 4 s is not the paper's: cells lose nothing where the paper reports losses."""
    arguments = [*ONE_CELL, "--runs", "1", "--outage", "imposed", "--outage-s", "4"]
    assert run([*arguments, "--strict"]) == 1
    assert "cells_within_5_points: 0 cells, goal 1: NOT MET" in capsys.readouterr().out


def test_without_namespaces_no_outage_is_pretended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(NamespaceHosts, "missing", lambda: "network namespaces take root")
    assert run(["eval", "mobility", "--real"]) == 2
    assert "give --outage ours, or --simulated" in capsys.readouterr().err


def test_an_unknown_cell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", "mobility", "--simulated", "--cell", "7/7"]) == 2
    assert "there is no cell '7/7'" in capsys.readouterr().err
