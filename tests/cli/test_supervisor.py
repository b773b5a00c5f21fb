"""Supervision of the servers of a domain, with small programs in their place."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from wanderbus.cli.domain.supervisor import END_S_MAX, Ready, ServerCannotRunError, Supervisor, SupervisorReports

READY = 'echo \'{"ready": "sip:127.0.0.1:5060"}\''
STAYS = f"{READY}; exec sleep 60"
FAILS = json.dumps({"error": {"type": "X", "message": "the port is taken"}})
WAIT_S = 60.0


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **given: Any) -> None:
        asyncio.run(test(*args, **given))

    return run


class Noted(SupervisorReports):
    """Keeps the reports."""

    def __init__(self) -> None:
        self.noted: list[tuple[object, ...]] = []
        self.changed = asyncio.Event()

    def ready(self, server: str, line: Ready) -> None:
        self._note("ready", server, line["ready"])

    def all_ready(self) -> None:
        self._note("all")

    def restarting(self, server: str, why: str, pause_s: float) -> None:
        self._note("restarting", server, why, pause_s)

    def joins(self, server: str) -> None:
        self._note("joins", server)

    def leaves(self, server: str) -> None:
        self._note("leaves", server)

    def line(self, server: str, line: str) -> None:
        self._note("line", server, line)

    def _note(self, *report: object) -> None:
        self.noted.append(report)
        self.changed.set()

    async def until(self, is_done: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not is_done():
                self.changed.clear()
                await self.changed.wait()


def supervisor(reports: SupervisorReports, **scripts: str) -> Supervisor:
    return Supervisor({name: ["sh", "-c", script] for name, script in scripts.items()}, reports, pause_s_min=0.01)


def is_running(pid: int | None) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid or 0, 0)
        return True
    return False


@on_a_loop
async def test_all_are_ready_once_and_end_together() -> None:
    reports = Noted()
    domain = supervisor(reports, s1=STAYS, s2=STAYS)
    running = asyncio.create_task(domain.run())
    await reports.until(lambda: ("all",) in reports.noted)
    pids = [each.pid for each in domain.runners]
    assert all(map(is_running, pids))
    domain.stop()
    await asyncio.wait_for(running, WAIT_S)
    assert not any(map(is_running, pids))
    assert sorted(reports.noted[:2]) == [("ready", name, "sip:127.0.0.1:5060") for name in ("s1", "s2")]
    assert reports.noted[2:] == [("all",)]


@on_a_loop
async def test_a_server_that_ends_is_started_again_with_pauses_that_grow() -> None:
    reports = Noted()
    domain = supervisor(reports, s1=STAYS, s2=f"{READY}; echo a warning >&2; kill -9 $$")
    running = asyncio.create_task(domain.run())
    await reports.until(lambda: sum(each[0] == "restarting" for each in reports.noted) == 3)
    domain.stop()
    await asyncio.wait_for(running, WAIT_S)
    assert [each for each in reports.noted if each[0] == "restarting"] == [
        ("restarting", "s2", "was killed by SIGKILL", pause_s) for pause_s in (0.01, 0.02, 0.04)
    ]
    assert ("line", "s2", "a warning") in reports.noted
    assert reports.noted.count(("all",)) == 1


@on_a_loop
async def test_j11_a_server_that_joins_is_started_and_one_that_has_left_is_ended_and_the_others_go_on() -> None:
    reports = Noted()
    domain = supervisor(reports, s1=STAYS, s2=STAYS)
    running = asyncio.create_task(domain.run())
    await reports.until(lambda: ("all",) in reports.noted)
    scripts = {"s1": STAYS, "s3": STAYS, "s4": f"echo '{FAILS}' >&2; exit 2"}
    for _ in range(2):
        domain.follow({name: ["sh", "-c", script] for name, script in scripts.items()}, {"s2"})
    way = "ended with exit status 2: the port is taken"
    cannot_run = f"server s4 {way}; it is not started again, and the other servers go on"
    for wanted in (("ready", "s3", "sip:127.0.0.1:5060"), ("line", "s4", cannot_run)):
        await reports.until(functools.partial(reports.noted.__contains__, wanted))
    first, second, third, fourth = domain.runners
    async with asyncio.timeout(WAIT_S):
        while second.pid is not None:
            await asyncio.sleep(0.01)
    pids = [first.pid, third.pid]
    assert all(map(is_running, pids))
    assert fourth.pid is None
    noted = [each for each in reports.noted if each[0] in ("joins", "leaves", "restarting")]
    assert noted == [("leaves", "s2"), ("joins", "s3"), ("joins", "s4")]
    domain.stop()
    await asyncio.wait_for(running, WAIT_S)
    assert not any(map(is_running, pids))


@pytest.mark.parametrize(("status", "attempts"), [(1, 3), (2, 1)])
@on_a_loop
async def test_a_server_that_is_never_ready_ends_the_domain(status: int, attempts: int) -> None:
    """An ordinary failure is tried three times, unusable settings once."""
    reports = Noted()
    domain = supervisor(reports, s1=STAYS, s2=f"echo {shlex.quote(FAILS)} >&2; exit {status}")
    with pytest.raises(ServerCannotRunError) as failed:
        await asyncio.wait_for(domain.run(), WAIT_S)
    assert str(failed.value).startswith(f"server s2 ended with exit status {status}: the port is taken")
    assert sum(each[0] == "restarting" for each in reports.noted) == attempts - 1
    assert [each.pid for each in domain.runners] == [None, None]


@on_a_loop
async def test_a_second_stop_kills_a_server_that_does_not_end() -> None:
    reports = Noted()
    domain = supervisor(reports, s1=f"trap '' TERM; {READY}; while :; do sleep 60; done")
    running = asyncio.create_task(domain.run())
    await reports.until(lambda: ("all",) in reports.noted)
    (pid,) = (each.pid for each in domain.runners)
    domain.stop()
    await asyncio.sleep(0.1)
    assert is_running(pid)
    domain.stop()
    await asyncio.wait_for(running, END_S_MAX / 2)
    assert not is_running(pid)


@on_a_loop
async def test_a_stop_during_the_pause_starts_nothing() -> None:
    reports = Noted()
    domain = Supervisor({"s1": ["sh", "-c", f"{READY}; exit 1"]}, reports, pause_s_min=60.0)
    running = asyncio.create_task(domain.run())
    await reports.until(lambda: any(each[0] == "restarting" for each in reports.noted))
    domain.stop()
    await asyncio.wait_for(running, WAIT_S)


@on_a_loop
async def test_a_program_that_is_missing_is_an_error() -> None:
    domain = Supervisor({"s1": ["/nowhere/program"]}, Noted())
    with pytest.raises(ServerCannotRunError, match="server s1 cannot be started: No such file"):
        await asyncio.wait_for(domain.run(), WAIT_S)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does this on Linux only")
@on_a_loop
async def test_the_servers_die_with_a_killed_supervisor(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    program = (
        "import asyncio, sys\n"
        "from wanderbus.cli.domain.supervisor import Supervisor, SupervisorReports\n"
        f"scripts = {{'s1': ['sh', '-c', 'echo $$ > {note}; exec sleep 60']}}\n"
        "asyncio.run(Supervisor(scripts, SupervisorReports()).run())\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    deadline = time.monotonic() + WAIT_S
    while not (note.exists() and note.read_text().strip()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    process.kill()
    await process.wait()
    while is_running(int(note.read_text())):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
