"""docs/sip-states.md and docs/agent-states.md match the tables of transitions (tools/state_diagram.py writes them)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from wanderbus.client.machine.states import AGENT, CHANNEL
from wanderbus.mobility.session.session import TRANSITIONS
from wanderbus.sip.transaction.client_transactions import INVITE_CLIENT, NON_INVITE_CLIENT
from wanderbus.sip.transaction.server_transactions import INVITE_SERVER, NON_INVITE_SERVER


def test_the_pages_are_up_to_date(root: Path) -> None:
    command = [sys.executable, str(root / "tools" / "state_diagram.py"), "--check"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_draws_every_move(root: Path) -> None:
    """The diagram has exactly one edge for each pair of states in each table, independently of the tool."""
    texts = [(root / "docs" / name).read_text(encoding="utf-8") for name in ("sip-states.md", "agent-states.md")]
    diagrams = [part.partition("```")[0] for text in texts for part in text.split("```mermaid")[1:]]
    moves = [{(before.value, after.value) for before, to in TRANSITIONS.items() for after in to.values()}]
    for table in (INVITE_CLIENT, NON_INVITE_CLIENT, INVITE_SERVER, NON_INVITE_SERVER):
        moves.append({(before.value, after.value) for (before, _), after in table.items()})
    moves.append({(before.value, after.value) for (before, _), after in AGENT.items()})
    moves.append({(before.value, after.value) for (before, _), after in CHANNEL.items()})
    for drawn, expected in zip(diagrams, moves, strict=True):
        edges = [line.partition(":")[0].strip().split(" --> ") for line in drawn.splitlines() if ": " in line]
        assert sorted(map(tuple, edges)) == sorted(expected)
