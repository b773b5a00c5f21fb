"""examples/two_domains.sh, run as a copy by a user (SPEC D-13)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.integration


def test_carol_of_one_domain_receives_from_the_broker_of_another(tmp_path: Path) -> None:
    ran = subprocess.run(
        ["sh", str(ROOT / "examples" / "two_domains.sh"), str(tmp_path)], capture_output=True, text=True, timeout=90
    )
    assert ran.returncode == 0, ran.stderr
    assert "IAH" in (tmp_path / "received").read_text()
