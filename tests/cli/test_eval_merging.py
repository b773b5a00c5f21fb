"""``wanderbus eval merging``: its output, files and errors."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from wanderbus.cli.application import run
from wanderbus.cli.eval import merging as command
from wanderbus.evaluation.merging.growth import Growth
from wanderbus.evaluation.merging.methods import Method

SMALL = ("eval", "merging", "--mix", "one-sided", "--runs", "2", "--seed", "3")


@pytest.fixture(autouse=True)
def no_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times depend on the machine, and take seconds; the growth of merging has tests of its own."""
    flat = Growth(Method.PERFECT, (10, 100), (1.0, 10.0))
    monkeypatch.setattr(command, "growths", lambda precision_min, seed: iter([flat]))


def test_one_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, plots = tmp_path / "report.json", tmp_path / "plots"
    options = ["--tuples", "3", "--tuples", "4", "--subscriptions", "200", "--subscriptions", "50", "--strict"]
    assert run([*SMALL, *options, "--json", str(report), "--plots", str(plots)]) == 0
    printed = capsys.readouterr().out
    assert "seeds 3 to 4 of each mix" in printed
    assert "92-99" in printed
    assert "goal 60 to 82: met" in printed
    assert "recall: 100 %, goal 100: met" in printed
    written = msgspec.json.decode(report.read_bytes())
    assert (written["command"], written["first_seed"]) == ("eval merging", 3)
    goals = {goal["name"]: goal for goal in written["goals"]}
    assert goals.keys() == {
        *("precision_3", "precision_4", "recall", "perfect_precision", "adaptive_precision"),
        *("structures_not_fused", "gzip_streams_no_better", "slope_perfect"),
    }
    assert goals["precision_3"]["goal"] == [92.0, 99.0]
    cells = [each["cell"] for each in written["results"]["cells"]]
    assert len(cells) == 2 * 2 * 4
    assert {(each["seed"], each["method"]) for each in written["results"]["runs"]} == {
        (seed, method) for seed in (3, 4) for method in ("unmerged", "perfect", "imperfect", "adaptive")
    }
    assert [path.name for path in plots.iterdir()] == ["merging-one-sided.svg"]


def test_a_goal_that_is_not_met_is_an_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steep = Growth(Method.PERFECT, (10, 100), (1.0, 2_000.0))
    monkeypatch.setattr(command, "growths", lambda precision_min, seed: iter([steep]))
    arguments = [*SMALL, "--tuples", "4", "--subscriptions", "20"]
    assert run(arguments) == 0
    assert run([*arguments, "--strict"]) == 1
    assert "slope_perfect: 3.301, goal 0 to 2: NOT MET" in capsys.readouterr().out


def test_an_unknown_mix_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", "merging", "--mix", "sweet"]) == 2
    assert "there is no mix 'sweet'; mixes are one-sided" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_refused_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", "merging", "--json", str(tmp_path / "none" / "report.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err
