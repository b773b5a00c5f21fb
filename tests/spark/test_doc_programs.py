"""Every Python block of the documentation that needs Spark runs as it stands, in the directory of a server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.house.test_doc_programs import NEEDS_PATTERN, NEEDS_SPARK, PROGRAMS, pattern_text
from tests.log_files import write_records
from wanderbus.records import Published

pytestmark = pytest.mark.spark

RUN_S_MAX = 300
TESTED_ELSEWHERE = {"read.py", "cluster_session.py"}
"""The first is followed with its page, and the second needs a cluster."""

NEEDED = [block for _, block in PROGRAMS if NEEDS_SPARK.search(block.text) and block.name not in TESTED_ELSEWHERE]
RUN_EACH = "import runpy, sys\nfor name in sys.argv[1:]:\n    print(name, flush=True)\n    runpy.run_path(name)"


def test_programs_with_spark_run_in_the_order_of_the_pages(
    make_published: Callable[..., Published], tmp_path: Path
) -> None:
    """One process runs all of them, since each would start Java."""
    write_records(tmp_path / "wanderbus-data" / "log", [make_published(row) for row in range(40)])
    (tmp_path / NEEDS_PATTERN).write_text(pattern_text(), encoding="utf-8")
    names = [block.name for block in NEEDED]
    assert {"fill_lake.py", "read_lake.py", "ask_lake.py", "late_past.py", "figures.py"} <= set(names)
    for block in NEEDED:
        (tmp_path / block.name).write_text(block.text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", RUN_EACH, *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    assert (tmp_path / "report.html").exists()
