"""SIPMobility is usable without events (SPEC C-01), and the two chats show it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN_S_MAX = 60
EVENTS = ("broker", "agent", "domain", "matching", "filters", "event", "subscription", "records", "pipeline")

EXPECTED = {
    "chat": [
        "sip:bob@localhost is in touch with sip:alice@localhost",
        "sip:alice@localhost is in touch with sip:bob@localhost",
        "bob hears: Are you there, Bob?",
        "alice hears: I am. How did you find me?",
        "bob hears: By your name: the proxy knew the rest.",
        "alice hears: And where do your words come from?",
        "bob hears: From where our session says, past every server.",
    ],
    "chat_moving": [
        "alice hears 'And now?' and bob hears 'At 127.0.0.2.'",
        "alice hears 'And now?' and bob hears 'At 127.0.0.3.'",
        "alice hears 'And now?' and bob hears 'At 127.0.0.4.'",
        "still the same session",
        "8 words said and heard, each once",
    ],
}
"""Of example to what it prints."""


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
@pytest.mark.parametrize("name", sorted(EXPECTED))
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
