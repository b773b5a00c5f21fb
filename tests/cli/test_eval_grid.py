"""``wanderbus eval ... --on-spark``: the same results as without Spark, files, failures and resumption (SPEC T-09)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from wanderbus.cli.application import run
from wanderbus.cli.eval import grid, merging
from wanderbus.cli.pipeline.spark_options import SparkPlace
from wanderbus.evaluation.merging.growth import Growth
from wanderbus.evaluation.merging.methods import Method

Grid = Callable[..., None]

SHORT = ("--cell", "100/20", "--outage", "random", "--outage-s", "5", "--events", "300")
TIMES = ("merge_ms", "match_us")


@pytest.fixture
def on_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[SparkPlace]:
    """Run grids in the session of the tests; return the places that were asked for."""
    places: list[SparkPlace] = []

    @contextmanager
    def session(application: str, purpose: str, place: SparkPlace) -> Iterator[SparkSession]:
        places.append(place)
        yield spark

    monkeypatch.setattr(grid, "session", session)
    return places


def report_of(path: Path, *arguments: str, status: int = 0) -> dict[str, Any]:
    assert run(["eval", *arguments, "--json", str(path)]) == status
    report: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    return report


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_times(each) for name, each in value.items() if name not in TIMES}
    return [without_times(each) for each in value] if isinstance(value, list) else value


@pytest.mark.spark
def test_federation_on_spark_has_the_results_of_federation(tmp_path: Path, on_spark: list[SparkPlace]) -> None:
    arguments = ["federation", "--domains", "4", "--topology", "regions", "--seeds", "2"]
    here = report_of(tmp_path / "here.json", *arguments)
    there = report_of(
        tmp_path / "there.json", *arguments, "--on-spark", "--cores", "2", "--out", str(tmp_path / "grid")
    )
    assert there["results"] == here["results"]
    rows = pq.read_table(tmp_path / "grid" / "federation").to_pylist()
    assert {row["way"] for row in rows} == {each["cell"]["way"] for each in here["results"]["cells"]}


@pytest.mark.spark
def test_mobility_on_spark_has_the_results_of_mobility(tmp_path: Path, on_spark: list[SparkPlace]) -> None:
    arguments = ["mobility", *SHORT, "--seeds", "3"]
    here = report_of(tmp_path / "here.json", *arguments, "--simulated")
    plots = ["--plots", str(tmp_path / "plots")]
    there = report_of(tmp_path / "there.json", *arguments, "--on-spark", "--cores", "2", *plots)
    assert there["results"] == here["results"]
    assert [each["run"] for each in there["results"]["simulated"]["runs"]] == [1, 2, 3]
    assert there["failures"] == []
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["mobility-simulated-random.svg"]
    assert on_spark == [SparkPlace(2, None, None)]


@pytest.mark.spark
@pytest.mark.usefixtures("on_spark")
def test_merging_on_spark_has_the_results_of_merging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flat = Growth(Method.PERFECT, (1, 2), (1.0, 1.0))
    monkeypatch.setattr(merging, "growths", lambda precision_min, seed: iter([flat]))  # measured, for seconds
    arguments = ["merging", "--mix", "one-sided", "--tuples", "2", "--subscriptions", "20", "--runs", "2"]
    here = report_of(tmp_path / "here.json", *arguments)
    there = report_of(tmp_path / "there.json", *arguments, "--on-spark", "--out", str(tmp_path / "out"))
    assert without_times(there["results"]) == without_times(here["results"])
    rows = pq.read_table(tmp_path / "out" / "merging").to_pylist()
    assert {(row["mix"], row["tuples"], row["subscriptions"], row["seed"]) for row in rows} == {
        ("one-sided", 2, 20, 1),
        ("one-sided", 2, 20, 2),
    }


@pytest.mark.spark
def test_points_that_are_there_do_not_run_again(
    tmp_path: Path, on_spark: list[SparkPlace], capsys: pytest.CaptureFixture[str]
) -> None:
    kept = ["--on-spark", "--out", str(tmp_path / "out")]
    first = report_of(tmp_path / "a.json", "mobility", *SHORT, "--seeds", "2", *kept)
    more = report_of(tmp_path / "b.json", "mobility", *SHORT, "--seeds", "3", *kept)
    again = report_of(tmp_path / "c.json", "mobility", *SHORT, "--seeds", "2", *kept)
    assert "1 points to run, 2 already there" in capsys.readouterr().err
    assert again["results"] == first["results"]
    assert more["results"]["simulated"]["runs"][:2] == first["results"]["simulated"]["runs"]
    assert len(on_spark) == 2, "the third command started no Spark"
    rows = pq.read_table(tmp_path / "out" / "mobility").to_pylist()
    assert sorted((row["seed"], row["rate_per_s"], row["outage"]) for row in rows) == [
        (1, 20.0, "random"),
        (2, 20.0, "random"),
        (3, 20.0, "random"),
    ]


@pytest.mark.spark
@pytest.mark.usefixtures("on_spark")
def test_a_failed_point_is_named_and_is_the_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Outages up to 27 s leave no time between changes every 20 s; those of other cells run."""
    arguments = ["--cell", "100/20", "--cell", "100/60", "--outage", "random", "--outage-s", "15", "--events", "200"]
    there = report_of(tmp_path / "r.json", "mobility", *arguments, "--seeds", "1", "--on-spark", status=1)
    [[point, error]] = there["failures"]
    assert point == "buffer=100 period_s=20 outage=random outage_s=15.0 rate_per_s=20.0 events=200 seed=1"
    assert "an outage of 27 s leaves no time" in error
    assert [each["cell"]["period_s"] for each in there["results"]["simulated"]["runs"]] == [60]
    assert f"the point {point} failed: ConfigurationError" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.usefixtures("on_spark")
def test_nothing_but_failures_is_an_exit_status_without_tables(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--cell", "100/20", "--outage", "random", "--outage-s", "15", "--seeds", "1", "--on-spark"]
    assert run(["eval", "mobility", *arguments]) == 1
    found = capsys.readouterr()
    assert "1 failed" in found.err
    assert "Loss" not in found.out


@pytest.mark.parametrize("option", ["--out", "--master", "--environment", "--cores"])
def test_options_of_spark_need_it(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("mobility", "merging", "remedies"):
        assert run(["eval", command, option, "2"]) == 2
        assert f"{option} is for Spark; give --on-spark too" in capsys.readouterr().err


def test_real_time_is_not_for_spark(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", "mobility", "--real", "--on-spark"]) == 2
    assert "--on-spark runs in virtual time; leave --real out" in capsys.readouterr().err
