"""``wanderbus eval federation``: its output, files and errors."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from wanderbus.cli.application import run
from wanderbus.cli.eval.distance_files import read_regions


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
    ("text", "error"),
    [("1;2\n", ":1: expected X,Y"), ("1,20000\n", ":1: expected X,Y from 0 to 10000"), ("", "0 places")],
)
def test_wrong_places(text: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = tmp_path / "places.csv"
    places.write_text(text)
    assert run(["eval", "federation", "--places", str(places)]) != 0
    assert error in capsys.readouterr().err


def test_given_round_trips(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times, report = tmp_path / "times.csv", tmp_path / "report.json"
    times.write_text("region,a,b,c\na,0,20,200\nb,20,0,180\nc,200,180,0\n")
    arguments = ["--round-trips", str(times), "--method", "rendezvous", "--runs", "1", "--json", str(report)]
    assert run(["eval", "federation", *arguments]) == 0
    assert "topology: given" in capsys.readouterr().out
    (ran,) = msgspec.json.decode(report.read_bytes())["results"]["runs"]
    assert ran["events"]["delivery_s_max"] in (0.01, 0.09, 0.1)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ":1: 0 names"),
        ("region,a,b\na,0,1\nc,1,0\n", "a line for each name"),
        ("region,a,b\na,0,1\nb,1\n", ":3: expected 2 times from 0 to 10000 ms"),
        ("region,a\na,-1\n", ":2: expected 1 times"),
        ("region,a\na,x\n", ":2: expected 1 times"),
    ],
)
def test_wrong_round_trips(text: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = tmp_path / "times.csv"
    times.write_text(text)
    assert run(["eval", "federation", "--round-trips", str(times)]) != 0
    assert error in capsys.readouterr().err


def test_regions_of_a_public_cloud() -> None:
    times = read_regions()
    assert len(times) == 36
    for one, of_one in enumerate(times):
        assert of_one[one] == 0
        assert all(0 < of_one[other] == times[other][one] for other in range(36) if other != one)


def test_two_files_of_distances(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", "federation", "--places", str(tmp_path), "--round-trips", str(tmp_path)]) != 0
    assert "exclude each other" in capsys.readouterr().err


def test_topology_without_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", "federation", "--topology", "given"]) != 0
    assert "--places FILE" in capsys.readouterr().err
