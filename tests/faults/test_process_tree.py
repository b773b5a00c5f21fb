"""A process may end between any two looks at it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from faults import process_tree
from faults.process_tree import descendants, is_running, kill, named, wait_until_gone
from faults.victim import Died

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_a_process_that_is_gone_has_no_name_and_no_children_and_is_not_killed_again() -> None:
    process = subprocess.Popen(SLEEP)
    assert descendants(os.getpid()) >= {process.pid}
    assert named([process.pid], "python") == [process.pid]
    process.kill()
    process.wait()
    assert not is_running(process.pid)
    assert named([process.pid], "python") == []
    assert descendants(process.pid) == set()
    kill([process.pid])


def test_a_zombie_has_ended() -> None:
    process = subprocess.Popen(SLEEP)
    kill([process.pid])
    asyncio.run(wait_until_gone({process.pid}))
    assert not is_running(process.pid)
    process.wait()


def test_a_process_that_stays_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_tree, "GONE_S_MAX", 0.0)
    process = subprocess.Popen(SLEEP)
    try:
        with pytest.raises(Died, match=rf"processes \[{process.pid}\] outlived"):
            asyncio.run(wait_until_gone({process.pid}))
    finally:
        process.kill()
        process.wait()
