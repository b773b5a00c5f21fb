"""Processes of an asynchronous run: their lines, orders, ends and kills; none is left behind."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from wanderbus.testbed import CannotRunError
from wanderbus.testbed.async_processes import AsyncProcess, Crew

ECHO = "import sys; print('ready', flush=True)\nfor line in sys.stdin: print('heard ' + line.strip(), flush=True)"


def test_a_process_is_read_and_gets_orders(tmp_path: Path) -> None:
    lines: list[str] = []

    async def run() -> int | None:
        async with Crew(tmp_path) as crew:
            ready = asyncio.Event()

            def hear(line: str) -> None:
                lines.append(line)
                ready.set()

            process = await crew.start("echo", [sys.executable, "-c", ECHO], hear)
            await process.until(ready, 10)
            process.send({"do": "stop"})
            process.close_input()
            return await process.wait(10)

    assert asyncio.run(run()) == 0
    assert lines == ["ready", 'heard {"do":"stop"}']


def test_lines_can_be_awaited_and_the_end_is_quoted(tmp_path: Path) -> None:
    async def run() -> str:
        async with Crew(tmp_path) as crew:
            argv = [sys.executable, "-c", "import sys; print('ready', flush=True); sys.exit('port 5060 is taken')"]
            process = await crew.start("server", argv)
            line = await process.line()
            with pytest.raises(CannotRunError, match="server ended with exit status 1: port 5060 is taken"):
                await process.line()
            return line

    assert asyncio.run(run()) == "ready"


def test_kill_is_kill_9_and_orders_to_the_dead_are_lost(tmp_path: Path) -> None:
    async def run() -> AsyncProcess:
        async with Crew(tmp_path) as crew:
            process = await crew.start("echo", [sys.executable, "-c", ECHO], lambda _: None)
            await process.kill()
            process.send({"do": "stop"})
            return process

    process = asyncio.run(run())
    assert process.status == -signal.SIGKILL
    assert not process.running
    assert str(process) == "echo was killed by SIGKILL: no error output"


def test_a_process_that_does_not_end_is_killed(tmp_path: Path) -> None:
    async def run() -> int | None:
        async with Crew(tmp_path) as crew:
            argv = [
                sys.executable,
                "-c",
                "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True); input()",
            ]
            process = await crew.start("deaf", argv)
            await process.line()
            return await process.end(0.2)

    assert asyncio.run(run()) == -signal.SIGKILL


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


def test_a_process_that_ends_before_it_is_ready_is_quoted(tmp_path: Path) -> None:
    async def run() -> None:
        async with Crew(tmp_path) as crew:
            argv = [sys.executable, "-c", "import sys; sys.exit('port 5060 is taken')"]
            await (await crew.start("server", argv, lambda _: None)).until(asyncio.Event(), 10)

    with pytest.raises(CannotRunError, match="server ended before it was ready: port 5060 is taken"):
        asyncio.run(run())


def test_a_process_that_is_not_ready_in_time_is_named(tmp_path: Path) -> None:
    async def run() -> None:
        async with Crew(tmp_path) as crew:
            await (await crew.start("server", ["sleep", "60"], lambda _: None)).until(asyncio.Event(), 0.1)

    with pytest.raises(CannotRunError, match="server was not ready within 0 s: no error output"):
        asyncio.run(run())
