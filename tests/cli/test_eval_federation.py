"""``wanderbus eval federation``: its output, files and errors."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from wanderbus.cli.application import run


def test_a_quick_federation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, plots = tmp_path / "report.json", tmp_path / "plots"
    assert run(["eval", "federation", "--quick", "--strict", "--json", str(report), "--plots", str(plots)]) == 0
    printed = capsys.readouterr().out
    assert "seeds 1 to 1 of each combination" in printed
    assert "Federation, topology: random" in printed
    assert "cells_in_which_moves_cost_less_in_a_tree: 0 cells, goal 0: met" in printed
    written = msgspec.json.decode(report.read_bytes())
    assert all(goal["met"] for goal in written["goals"])
    assert len(written["results"]["cells"]) == 2 * 4
    assert [path.name for path in plots.iterdir()] == ["federation-random.svg"]


def test_given_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = tmp_path / "places.csv"
    places.write_text("0,0\n5000,0\n10000,10000\n")
    assert run(["eval", "federation", "--places", str(places), "--method", "tree", "--runs", "1"]) == 0
    assert "topology: given" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "error"), [("1;2\n", ":1: expected X,Y"), ("1,20000\n", "out of range"), ("", "0 places")]
)
def test_wrong_places(text: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = tmp_path / "places.csv"
    places.write_text(text)
    assert run(["eval", "federation", "--places", str(places)]) != 0
    assert error in capsys.readouterr().err


def test_topology_without_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", "federation", "--topology", "given"]) != 0
    assert "--places FILE" in capsys.readouterr().err
