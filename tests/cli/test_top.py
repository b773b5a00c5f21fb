"""`wanderbus top` against a server that runs: one table, JSON, a terminal, and what it refuses."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import ROOT, WAIT_S, Shell, one_line
from tests.cli.test_operations import asking, office, with_queue

pytestmark = pytest.mark.integration

__all__ = ["office"]

NEVER = ("--interval-s", "1000")
LEFT_SCREEN = b"\x1b[?1049l"
"""End of the terminal's second screen: what was there before is back."""


def shown(shell: Shell, *words: str) -> dict[str, Any]:
    status, out, err = shell.run("top", "--once", "--json", "--interval-s", "1", *asking(shell, "olga"), *words)
    assert (status, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def test_snapshot_as_json(office: Shell) -> None:
    with_queue(office, 1, 2)
    found = shown(office)
    overview = found["overview"]
    assert (overview["queued"], overview["subscriptions"], overview["disconnected"]) == (2, 1, 1)
    assert overview["accepted_per_s"] == 0
    assert 1 <= overview["interval_s"] < 30
    (row,) = (each for each in found["sessions"] if each["session"] == "sub.kept")
    assert (row["user"], row["status"], row["queued"]) == ("sip:alice@localhost", "DISCONNECTED", 2)
    assert row["oldest_s"] > 0
    assert shown(office, "--filter", "nobody")["sessions"] == []


def test_snapshot_as_a_table(office: Shell) -> None:
    with_queue(office, 1)
    status, out, err = office.run("top", "--once", "--interval-s", "1", *asking(office, "olga"), "--sort", "user")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("queues    1 waiting") for line in lines)
    assert any(line.split()[:4] == ["alice@localhost", "sub.kept", "away", "1"] for line in lines)


def test_misuse_in_one_line(office: Shell) -> None:
    words = asking(office, "olga")
    for given, reason in (
        ((), "input, output or errors are no terminal; give --once for one table"),
        (("--json",), "--json goes with --once"),
        (("--filter", "a"), "--filter goes with --once"),
        (("--once", "--sort", "size"), "--sort: invalid value 'size'"),
    ):
        status, out, err = office.run("top", *given, *words)
        assert (status, out) == (2, "")
        assert reason in err
        assert err.count("\n") == 1
    status, _, err = office.run("top", "--once", *asking(office, "alice"))
    assert status == 1
    assert "need the role 'operator'" in one_line(err)


@contextlib.contextmanager
def on_a_terminal(shell: Shell, *words: str, path: str = "") -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run the command on a terminal of its own; yields the process and our end of the terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": f"{path}:{ROOT / 'src'}", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "wanderbus", "top", *words, *asking(shell, "olga")]
    process = subprocess.Popen(
        command, cwd=shell.directory, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_package_that_is_not_installed(office: Shell, tmp_path: Path) -> None:
    (tmp_path / "textual").mkdir()
    (tmp_path / "textual" / "__init__.py").write_text("raise ModuleNotFoundError(name='textual')\n")
    with on_a_terminal(office, path=str(tmp_path)) as (command, ours):
        said = read_until(ours, b"\n").decode()
        assert command.wait(WAIT_S) == 2
    assert "(textual): pip install 'wanderbus[top]'; --once works without" in said


@pytest.mark.parametrize(
    ("end", "status"), [(b"q", 0), (b"\x03", 130), (signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=str
)
def test_end_on_a_terminal(office: Shell, end: bytes | signal.Signals, status: int) -> None:
    with on_a_terminal(office, *NEVER) as (command, ours):
        read_until(ours, b"sessions, ")
        if isinstance(end, bytes):
            os.write(ours, end)
        else:
            command.send_signal(end)
        read_until(ours, LEFT_SCREEN)
        assert command.wait(WAIT_S) == status


def read_until(descriptor: int, part: bytes) -> bytes:
    """Return what a terminal was sent, up to a part of it."""
    seen, deadline = b"", time.monotonic() + WAIT_S
    while part not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([descriptor], [], [], 0.1)[0]:
            seen += os.read(descriptor, 65_536)
    return seen
