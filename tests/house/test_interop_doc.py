"""docs/interop.md lists exactly the tests of ``./do interop``, and that they pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.interop.__main__ import BEGIN, END, with_table
from tests.interop.table import Row, markdown, merged


def test_the_page_has_the_rows_of_the_tests(root: Path) -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "tests.interop", "--list"], cwd=root, capture_output=True, text=True, timeout=120
    )
    assert listed.returncode == 0, listed.stderr
    page = (root / "docs" / "interop.md").read_text(encoding="utf-8")
    assert page.partition(BEGIN)[2].partition(END)[0] == listed.stdout, "run ./do interop --write"


def test_a_row_is_as_good_as_the_worst_of_its_tests() -> None:
    one, other = Row("SIPp", "calls", "UDP"), Row("SIPp", "calls", "TCP")
    outcomes = [(one, "passed"), (other, "skipped"), (one, "failed"), (one, "skipped"), (other, "passed")]
    assert merged(outcomes) == {other: "skipped", one: "failed"}  # type: ignore[arg-type]


def test_a_table_takes_the_place_of_the_former() -> None:
    page = with_table(f"before\n{BEGIN}former\n{END}after\n", markdown({Row("SIPp", "calls", "UDP"): "passed"}))
    assert page.startswith("before\n")
    assert page.endswith(f"| SIPp | calls | UDP | passed |\n{END}after\n")
    assert "former" not in page
