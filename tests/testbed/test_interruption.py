"""Ctrl-C and ``kill -9`` in the middle of a run: no process and no namespace is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.testbed.survivors import wait_for_end
from wanderbus.testbed.launch import environment
from wanderbus.testbed.namespaces import DIRECTORY, Namespaces, missing

pytestmark = pytest.mark.integration

BLOCKING = """
from wanderbus.testbed.processes import Process
with namespaces as made:
    for host in hosts:
        made.add(host)
    with Process("one", made.command(hosts[0], ["sleep", "60"]), log) as one, \\
         Process("deaf", ["sh", "-c", "trap '' TERM; sleep 60 & wait; wait"], log) as two:
        print(one.pid, two.pid, flush=True)
        time.sleep(60)
"""
ASYNCHRONOUS = """
import asyncio
from wanderbus.testbed.async_processes import Crew
async def run():
    with namespaces as made:
        for host in hosts:
            made.add(host)
        async with Crew(log.parent) as crew:
            one = await crew.start("one", made.command(hosts[0], ["sleep", "60"]))
            two = await crew.start("deaf", ["sh", "-c", "trap '' TERM; sleep 60 & wait; wait"])
            print(one.pid, two.pid, flush=True)
            await asyncio.sleep(60)
asyncio.run(run())
"""
COMMON = """
import contextlib, pathlib, sys, time
from wanderbus.testbed.namespaces import Namespaces, missing
log = pathlib.Path(sys.argv[1])
if missing() is None:
    namespaces, hosts = Namespaces("wbinterrupt"), ["a", "b", "c"]
else:
    class NoNamespaces:
        def command(self, host, argv):
            return argv
    namespaces, hosts = contextlib.nullcontext(NoNamespaces()), [""]
    NoNamespaces.add = lambda self, host: None
"""


def left_behind(pid: int) -> list[str]:
    return [path.name for path in DIRECTORY.glob(f"wbinterrupt{pid}-*")] if DIRECTORY.is_dir() else []


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("program", [BLOCKING, ASYNCHRONOUS], ids=["blocking", "asynchronous"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_an_interrupted_run(program: str, number: signal.Signals, tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", COMMON + program, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    assert run.stdout is not None
    with run:
        pids = [int(word) for word in run.stdout.readline().split()]
        deadline = time.monotonic() + 10
        while not (grandchildren := children_of(pids[1])):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert len(left_behind(run.pid)) == (3 if missing() is None else 0)
        os.killpg(run.pid, number)
    if number == signal.SIGKILL:
        # The kernel kills the programs; the next run of the kind removes the namespaces.
        for pid in grandchildren:
            os.kill(pid, signal.SIGKILL)
        Namespaces("wbinterrupt").sweep()
    wait_for_end([*pids, *grandchildren])
    assert left_behind(run.pid) == []
