"""A server and the engine beside it, killed in turn with ``kill -9`` while events flow (SPEC T-06)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import wanderbus
from tests.api.world import SUBJECT, nothing_more, numbers
from tests.cli.shell import ROOT, Shell

pytestmark = pytest.mark.integration

EVENTS = 240
ROUNDS = 4
STORY_S_MAX = 240.0


class Processes:
    """A server and its engine, each a process; both can be killed and started again."""

    def __init__(self, directory: Path) -> None:
        self.shell = Shell(directory)
        (directory / "spark.toml").write_text('[broker]\nspark_subjects = ["*"]\n')
        self.server = self.shell.up("--config", "spark.toml")
        self.engine = self._start_engine()

    def kill_server(self) -> None:
        self.server.kill()
        self.server.wait()
        self.server = self.shell.up("--config", "spark.toml")

    def kill_engine(self) -> None:
        self.engine.kill()
        self.engine.wait()
        self.engine = self._start_engine()

    def close(self) -> None:
        self.engine.kill()
        self.engine.wait()
        self.shell.close()

    def agent(self, name: str, password: str) -> wanderbus.Agent:
        directory = self.shell.directory / name
        server = f"127.0.0.1:{self.shell.port}"
        return wanderbus.connect(f"sip:{name}@localhost", password=password, server=server, state_dir=directory)

    def _start_engine(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.engine_service", str(self.shell.directory / "data")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    yield made
    made.close()


def test_t06_kills_of_the_server_and_of_the_engine_lose_and_repeat_nothing(processes: Processes) -> None:
    async def publish_all(bob: wanderbus.Agent) -> None:
        for n in range(EVENTS):
            await bob.publish(SUBJECT, {"n": n}, outbox=True)
            if n % 3 == 0:
                await asyncio.sleep(0.01)

    async def story() -> list[object]:
        seen: list[object] = []
        async with (
            asyncio.timeout(STORY_S_MAX),
            processes.agent("bob", "hunter2") as bob,
            processes.agent("alice", "secret") as alice,
            alice.subscribe(SUBJECT) as departures,
        ):
            publishing = asyncio.create_task(publish_all(bob))
            for _ in range(ROUNDS):
                seen += await numbers(departures, EVENTS // ROUNDS // 3)
                await asyncio.to_thread(processes.kill_server)
                seen += await numbers(departures, EVENTS // ROUNDS // 3)
                await asyncio.to_thread(processes.kill_engine)
            await publishing
            seen += await numbers(departures, EVENTS - len(seen))
            await nothing_more(departures, 0.5)
        return seen

    assert asyncio.run(story()) == list(range(EVENTS))
