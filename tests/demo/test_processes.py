"""Children of the conductor: their reports, requests and kills; none is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from demo import CannotRunError
from demo.hosts import first_of
from demo.processes import ROOT, Child, Crew

ECHO = "import sys; print('ready', flush=True)\nfor line in sys.stdin: print('heard ' + line.strip(), flush=True)"


def test_a_child_is_heard_and_takes_orders(tmp_path: Path) -> None:
    lines: list[str] = []

    async def run() -> int | None:
        async with Crew(tmp_path) as crew:
            ready = asyncio.Event()

            def hear(line: str) -> None:
                lines.append(line)
                ready.set()

            child = await crew.start("echo", [sys.executable, "-c", ECHO], hear)
            await first_of(ready, child, 10)
            child.send(do="stop")
            assert child._process.stdin is not None
            child._process.stdin.close()
            return await child.wait(10)

    assert asyncio.run(run()) == 0
    assert lines == ["ready", 'heard {"do": "stop"}']


def test_kill_is_kill_9_and_orders_to_the_dead_are_lost(tmp_path: Path) -> None:
    async def run() -> tuple[Child, int | None]:
        async with Crew(tmp_path) as crew:
            child = await crew.start("echo", [sys.executable, "-c", ECHO], lambda _: None)
            await child.kill()
            child.send(do="stop")
            return child, await child.wait()

    child, status = asyncio.run(run())
    assert status == -signal.SIGKILL
    assert not child.running


def test_leaving_the_crew_kills_everyone_even_after_an_error(tmp_path: Path) -> None:
    pids: list[int] = []

    async def run() -> None:
        async with Crew(tmp_path) as crew:
            for name in ("one", "two"):
                pids.append((await crew.start(name, ["sleep", "60"], lambda _: None)).pid)
            raise CannotRunError("stop here")

    with pytest.raises(CannotRunError):
        asyncio.run(run())
    assert not [pid for pid in pids if Path("/proc", str(pid)).exists()]


def test_a_child_that_ends_before_it_is_ready_is_quoted(tmp_path: Path) -> None:
    async def run() -> None:
        async with Crew(tmp_path) as crew:
            argv = [sys.executable, "-c", "import sys; sys.exit('port 5060 is taken')"]
            await first_of(asyncio.Event(), await crew.start("server", argv, lambda _: None), 10)

    with pytest.raises(CannotRunError, match="server ended before it was ready: port 5060 is taken"):
        asyncio.run(run())


@pytest.mark.integration
def test_children_die_with_a_conductor_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import asyncio, pathlib, sys\nfrom demo.processes import Crew\n"
        "async def run():\n"
        "    async with Crew(pathlib.Path(sys.argv[1])) as crew:\n"
        "        print((await crew.start('sleeper', ['sleep', '60'], print)).pid, flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(run())"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    argv = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as conductor:
        assert conductor.stdout is not None
        pid = int(conductor.stdout.readline())
        conductor.kill()
    end = time.monotonic() + 5
    while Path("/proc", str(pid)).exists() and "Z" not in Path("/proc", str(pid), "stat").read_text().split()[2]:
        assert time.monotonic() < end, "the child outlived its conductor"
