"""A server names its log and its domain beside the log (SPEC T-03, M-01)."""

from __future__ import annotations

from pathlib import Path

import pytest

import wanderbus
from tests.api.world import run
from wanderbus.runtime.segment_files import read_log_domain, read_log_name

pytestmark = pytest.mark.integration


def test_a_server_writes_its_domain_beside_its_log(tmp_path: Path) -> None:
    async def story() -> None:
        async with wanderbus.Server(domain="A.example", port=0, data_dir=tmp_path, users={"alice": "secret"}):
            pass

    run(story())
    assert read_log_domain(tmp_path / "log") == "a.example"
    assert "-" in (read_log_name(tmp_path / "log") or "")
