"""./do matrix: its cells, its command line and its page (SPEC U-09)."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from faults import matrix
from faults.matrix_page import BEGIN, END, REAL_TESTS, table, with_table
from harness import ROOT
from wanderbus.simulation.matrix.cells import CELLS, EVERY, Activity, Change, DataTransport
from wanderbus.simulation.matrix.cells import Path as DataPath
from wanderbus.simulation.matrix.scenario import MatrixScenario
from wanderbus.simulation.scenario import Result


def result(seed: int, *problems: str) -> Result:
    return Result(seed, list(problems), {}, 1.0, "")


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The page that a run writes, and worlds of which none fails."""
    file = tmp_path / "matrix.md"
    file.write_text(f"before\n{BEGIN}{END}after\n")
    monkeypatch.setattr(matrix, "PAGE", file)
    return file


def fail(monkeypatch: pytest.MonkeyPatch, *failing: int) -> None:
    """Let the worlds of these seeds fail, without running any."""

    class Here:
        def __init__(self, processes: int | None) -> None: ...

        def __enter__(self) -> Here:
            return self

        def __exit__(self, *given: object) -> None: ...

        def map(self, run: Any, seeds: list[int], chunksize: int) -> Any:
            return [result(seed, *["lost"] * (seed in failing)) for seed in seeds]

    monkeypatch.setattr(matrix, "ProcessPoolExecutor", Here)


def test_u09_the_page_is_what_the_cells_say() -> None:
    text = (ROOT / "docs" / "matrix.md").read_text(encoding="utf-8")
    assert with_table(text, ()) == text, "run ./do matrix"


def test_u09_each_combination_is_a_cell_or_cannot_exist() -> None:
    assert len(EVERY) == len(set(EVERY)) == len(Change) * len(DataTransport) * len(DataPath) * len(Activity)
    assert {(each.transport, each.path) for each in set(EVERY) - set(CELLS)} == {("tcp", "rtpengine")}
    assert [MatrixScenario(seed).cell for seed in (0, len(CELLS) + 1)] == [CELLS[0], CELLS[1]]


def test_each_named_test_exists() -> None:
    assert set(REAL_TESTS) == set(Change)
    for change, test in REAL_TESTS.items():
        file, _, name = test.partition("::")
        parsed = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name in {each.name for each in parsed.body if isinstance(each, ast.FunctionDef)}, change


def test_a_whole_run_writes_the_page_and_fails_if_a_cell_does(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail(monkeypatch, len(CELLS) + 2)
    report = page.with_suffix(".json")
    assert matrix.main(["--seeds", "2", "--json", str(report)]) == 1
    said = capsys.readouterr()
    assert f"{CELLS[2]}: lost" in said.err
    assert f"replay with: wanderbus sim --layer matrix --seed {len(CELLS) + 2} " in said.err
    assert said.out.startswith(f"{len(CELLS)} cells in 2 worlds each, 1 failed\n")
    assert page.read_text() == f"before\n{BEGIN}{table({CELLS[2]})}{END}after\n"
    assert "| i t **D** p |" in page.read_text()
    found = json.loads(report.read_text())
    assert [(each["name"], each["value"], each["met"]) for each in found["goals"]] == [("matrix_failed", 1, False)]
    assert [each["cell"] for each in found["results"] if each["result"] == "failed"] == [str(CELLS[2])]


def test_some_cells_write_no_page(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch)
    before = page.read_text()
    assert matrix.main(["--cell", str(CELLS[5])]) == 0
    assert matrix.main(["--cell", "*/udp/direct/idle"]) == 0
    assert page.read_text() == before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere", "no cell is called nowhere (expected CHANGE/TRANSPORT/PATH/ACTIVITY"),
        ("into-nat/tcp/rtpengine/idle", "into-nat/tcp/rtpengine/idle cannot exist: rtpengine relays datagrams only"),
    ],
)
def test_a_cell_that_there_is_not_is_refused(
    page: Path, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    assert matrix.main(["--cell", name]) == 2
    assert words in capsys.readouterr().err
