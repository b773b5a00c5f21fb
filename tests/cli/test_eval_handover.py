"""``wanderbus eval handover``: its output, files and errors."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from wanderbus.cli.application import run


def test_a_quick_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, plots = tmp_path / "report.json", tmp_path / "plots"
    assert run(["eval", "handover", "--quick", "--strict", "--json", str(report), "--plots", str(plots)]) == 0
    printed = capsys.readouterr().out
    assert "seeds 1 to 1 of each combination" in printed
    assert "channel_updates_2x2_uncovered_unneeded: 2 messages, goal 2: met" in printed
    assert "updates_at_full_saturation: 0 messages, goal 0: met" in printed
    assert "Costs of a handover, movement: gauss-markov" in printed
    assert "Costs of the move of a channel group to another leader" in printed
    written = msgspec.json.decode(report.read_bytes())
    assert written["results"]["channel_updates_2x2"] == [0, 1, 1, 2]
    assert all(goal["met"] for goal in written["goals"])
    cells = [each["cell"] for each in written["results"]["cells"]]
    assert len(cells) == 3 * 3 * 4 + 2 * 2 * 4
    assert sorted(path.name for path in plots.iterdir()) == [
        *("handover-gauss-markov.svg", "handover-once.svg", "handover-waypoint.svg")
    ]
    assert all("<polyline" in path.read_text() for path in plots.iterdir())


def test_a_given_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, report = tmp_path / "walks.csv", tmp_path / "report.json"
    trace.write_text("0,0,0,0\n2,0,10000,10000\n5.5,0,0,0\n0,1,5000,5000\n")
    options = ["--trace", str(trace), "--servers", "9", "--routing", "tree", "--runs", "2", "--json", str(report)]
    assert run(["eval", "handover", *options]) == 0
    assert "movement: trace" in capsys.readouterr().out
    runs = msgspec.json.decode(report.read_bytes())["results"]["runs"]
    assert [(each["movement"], each["routing"], each["walks"]) for each in runs] == [("trace", "tree", 2)] * 2


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("0,0,1\n", "line 1: '0,0,1' is not SECOND,USER,X,Y"),
        ("0,0,1,1\n1,zero,1,1\n", "line 2: '1,zero,1,1' is not SECOND,USER,X,Y"),
        ("0,0,1,10001\n", "is out of range (users 0 to 999, X and Y 0 to 10000)"),
        ("0,1000,1,1\n", "is out of range"),
        ("-1,0,1,1\n", "is out of range"),
        ("nan,0,1,1\n", "is out of range"),
        ("", "has no places; expected lines SECOND,USER,X,Y"),
    ],
)
def test_a_line_that_is_no_place_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: str, complaint: str
) -> None:
    trace = tmp_path / "walks.csv"
    trace.write_text(lines)
    assert run(["eval", "handover", "--trace", str(trace)]) == 2
    assert complaint in capsys.readouterr().err


def test_a_trace_and_its_movement_belong_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "walks.csv"
    trace.write_text("0,0,1,1\n")
    for options in (["--movement", "trace"], ["--trace", str(trace), "--movement", "once"]):
        assert run(["eval", "handover", *options]) == 2
        assert "--movement trace and --trace FILE belong together; give both or neither" in capsys.readouterr().err
    assert run(["eval", "handover", "--trace", str(tmp_path / "none.csv")]) == 2
    assert "cannot be read" in capsys.readouterr().err
