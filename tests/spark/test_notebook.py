"""``examples/notebook.ipynb`` runs from the first cell to the last, and is stored without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"
CELL_S_MAX = 300
FLIGHTS = 3_000


@pytest.fixture
def notebook() -> nbformat.NotebookNode:
    return nbformat.reads(NOTEBOOK.read_text(encoding="utf-8"), as_version=4)  # type: ignore[no-any-return,no-untyped-call]


def test_the_notebook_is_stored_without_outputs(notebook: nbformat.NotebookNode) -> None:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [(cell.outputs, cell.execution_count) for cell in cells] == [([], None)] * len(cells)


@pytest.mark.spark
def test_the_notebook_comes_to_its_plot(
    notebook: nbformat.NotebookNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLIGHTS", str(FLIGHTS))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    client = NotebookClient(notebook, timeout=CELL_S_MAX, resources={"metadata": {"path": str(tmp_path)}})
    done = client.execute()
    outputs = [output for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]
    plots = [output.data["image/svg+xml"] for output in outputs if "image/svg+xml" in output.get("data", {})]
    assert [plot.count("<rect") for plot in plots] == [1]  # the first flights of the year are all of January
    assert f"{FLIGHTS} flights, " in outputs[-1].text
    assert "steelblue" in plots[0]
