"""``wanderbus eval overhead``: its output, files and errors."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from wanderbus.cli.application import run
from wanderbus.cli.eval import overhead
from wanderbus.evaluation.overhead import summary
from wanderbus.evaluation.overhead.experiment import Configuration, OverheadExperiment
from wanderbus.evaluation.overhead.summary import PlaceTimes, Sample

PLACES = PlaceTimes(0.4, {"device-broker": 2.2, "device-relay": 6.3, "broker-relay": 4.2})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[OverheadExperiment, int, int]]:
    """Results without a network: the time of each configuration is its number, and half of it for two consumers."""
    asked: list[tuple[OverheadExperiment, int, int]] = []

    async def run(
        experiment: OverheadExperiment, runs: int, seed: int, tell: object
    ) -> tuple[list[Sample], PlaceTimes]:
        asked.append((experiment, runs, seed))
        return [
            Sample.of(
                number, each, [float(each) / count] * count, [1_000 * each], [float(each)], missing=0, unanswered=0
            )
            for number in range(runs)
            for count in experiment.consumers
            for each in experiment.configurations
        ], PLACES

    monkeypatch.setattr(overhead, "run", run)
    monkeypatch.setattr(overhead, "missing", lambda experiment: None)
    return asked


def test_it_measures_the_published_experiment_by_default(
    measured: list[tuple[OverheadExperiment, int, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, plots = tmp_path / "report.json", tmp_path / "plots"
    assert run(["eval", "overhead", "--json", str(report), "--plots", str(plots), "--strict"]) == 0
    assert measured == [(OverheadExperiment(), 1, 1)]
    printed = capsys.readouterr().out
    assert "mdeci_minus_eci_p50_ms: 1 ms, goal 1.4: met" in printed
    assert "one sync of the disk 0.40; round trips device-broker 2.20" in printed
    written = msgspec.json.decode(report.read_bytes())
    assert {goal["name"]: goal["met"] for goal in written["goals"]} == dict.fromkeys(
        ("ranking_holds", "small_increase_holds", "mdeci_minus_eci_p50_ms", "missing_events"), True
    )
    assert written["places"]["round_trip_p50_ms"]["broker-relay"] == 4.2
    assert written["results"]["ranking"] == {str(count): True for count in (1, 2, 4, 8, 16)}
    assert [path.name for path in plots.iterdir()] == ["overhead.svg"]


def test_less_can_be_measured(measured: list[tuple[OverheadExperiment, int, int]]) -> None:
    assert run(["eval", "overhead", "--quick", "--runs", "2", "--seed", "5", "--wifi-rtt-ms", "0"]) == 0
    assert run(["eval", "overhead", "--configuration", "2", "--configuration", "1", "--events", "7"]) == 0
    quick, two = measured
    assert quick == (OverheadExperiment(consumers=(1, 4), events=100, wifi_rtt_s=0.0), 2, 5)
    assert two == (OverheadExperiment(configurations=(Configuration.ECI, Configuration.MOBILE), events=7), 1, 1)


def test_a_goal_that_is_not_met_is_an_exit_status(
    measured: list[tuple[OverheadExperiment, int, int]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(summary, "MOBILITY_MS_MAX", 0.1)
    assert run(["eval", "overhead", "--strict"]) == 1
    assert "mdeci_minus_eci_p50_ms: 1 ms, goal 0.5: NOT MET" in capsys.readouterr().out


def test_without_a_network_nothing_is_pretended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(overhead, "missing", lambda experiment: "network namespaces take root")
    assert run(["eval", "overhead"]) == 2
    assert "cannot measure on this machine: network namespaces take root" in capsys.readouterr().err
