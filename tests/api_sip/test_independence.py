"""SIPMobility is usable without events (SPEC C-01), and the two chats show it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.test_examples import EXPECTED

ROOT = Path(__file__).resolve().parents[2]
RUN_S_MAX = 60
EVENTS = (
    "broker",
    "client",
    "server",
    "protocol",
    "domain",
    "matching",
    "filters",
    "event",
    "subscription",
    "records",
    "pipeline",
)

CHATS = ("chat", "chat_moving")


def run(program: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=directory, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_of_events(modules: list[str]) -> list[str]:
    return [name for name in modules if name.startswith(tuple(f"wanderbus.{room}" for room in EVENTS))]


def test_c01_importing_it_loads_nothing_of_events(tmp_path: Path) -> None:
    program = "import json, sys, wanderbus.api.sip_mobility; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(run(program, tmp_path))
    assert "wanderbus.api.sip_mobility.facade" in modules
    assert loaded_of_events(modules) == []


@pytest.mark.integration
@pytest.mark.parametrize("name", CHATS)
def test_c01_the_chats_run_without_events(name: str, tmp_path: Path) -> None:
    program = (
        f"import json, runpy, sys\n"
        f"try: runpy.run_path({str(ROOT / 'examples' / f'{name}.py')!r}, run_name='__main__')\n"
        f"except SystemExit as end: assert not end.code\n"
        f"print(json.dumps(sorted(sys.modules)))"
    )
    *said, modules = run(program, tmp_path).splitlines()
    assert said == EXPECTED[name]
    assert loaded_of_events(json.loads(modules)) == []
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"
