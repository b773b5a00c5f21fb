"""The demonstration with a domain: nothing is lost while sessions walk and servers are killed (SPEC J-01, L-01)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

RUN_S_MAX = 300.0


def test_travellers_who_walk_between_three_access_servers_lose_nothing(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    files = ["--json", str(result), "--report", str(tmp_path / "report.html")]
    options = ["--domain", "--rows", "400", "--rate", "100", *files]
    ran = subprocess.run([sys.executable, "-m", "demo", *options], capture_output=True, text=True, timeout=RUN_S_MAX)
    assert ran.returncode == 0, f"{ran.stdout[-3000:]}\n{ran.stderr[-1000:]}"
    found = json.loads(result.read_text())
    assert found["good"]
    assert found["kills"] == {"agent": 1, "server": 2, "spark": 0}
    assert found["servers"] == ["s1", "s2", "s3", "s4", "s5"]
    assert (found["drains"], found["group_moves"]) == (1, 1)
    assert found["handovers"]["moved"] > 0
    assert "Where the sessions were" in (tmp_path / "report.html").read_text()
    assert sum(line["delivered"] for line in found["travellers"]) > 100
