"""``wanderbus pipeline engine``: readiness, signals, the end of its standard input, and its errors (SPEC T-06)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from faults.process_tree import descendants, named
from tests.cli.pipeline_jobs import wait_until_gone
from tests.cli.shell import Shell, ended, one_line, read_line
from tests.spark.engine.records import INCARNATION, SERVER, started, write_log
from wanderbus.runtime.services.caller import ServiceCaller
from wanderbus.runtime.services.engine import BEGIN, NAME, Begin
from wanderbus.runtime.services.places import places_of
from wanderbus.segments import HEADER, HIGH_WATER, pack_mark, segment_name

pytestmark = [pytest.mark.integration, pytest.mark.spark]

GONE_S_MAX = 90.0


@pytest.fixture
def data(shell: Shell) -> Path:
    """The data directory of a server that has written nothing yet."""
    log = shell.directory / "data" / "log"
    log.mkdir(parents=True)
    (log / segment_name(0)).write_bytes(HEADER)
    (log / HIGH_WATER).write_bytes(pack_mark(0))
    return shell.directory / "data"


def begin(data: Path) -> None:
    """Let the engine match, as its server does."""
    caller = ServiceCaller(data, NAME, 30.0)
    try:
        caller.ask(*BEGIN, Begin(1, SERVER, INCARNATION, 1, (), 1_000, is_last=True), type(None))
    finally:
        caller.close()


def test_a_signal_ends_the_engine_and_all_its_processes(shell: Shell, data: Path) -> None:
    engine = shell.start("pipeline", "engine", "data", "--json")
    assert json.loads(read_line(engine)) == {"ready": "data/services/engine.sock"}
    pids = descendants(engine.pid)
    assert pids
    status, _, errors = shell.run("pipeline", "engine", "data")
    assert status == 2
    assert "another process is the service engine of data; stop it first" in one_line(errors)
    engine.send_signal(signal.SIGTERM)
    status, _, errors = ended(engine)
    assert status == 0
    assert "Traceback" not in errors
    wait_until_gone(pids)
    assert not places_of(data, NAME).socket.exists()


@pytest.mark.parametrize("is_asked", [False, True])
def test_an_engine_whose_java_is_killed_ends_with_one_line(shell: Shell, data: Path, is_asked: bool) -> None:
    write_log(data / "log", [started()])
    engine = shell.start("pipeline", "engine", "data", "--until-stdin-ends", stdin=subprocess.PIPE)
    read_line(engine)
    if is_asked:
        begin(data)
    pids = descendants(engine.pid)
    (java,) = named(pids, "java")
    os.kill(java, signal.SIGKILL)
    engine.wait(GONE_S_MAX)
    status, _, errors = ended(engine)
    assert status == 1
    others = ("WARNING: Using incubator modules", "wanderbus: record ")
    said = [line for line in errors.splitlines() if not line.startswith(others)]
    assert said == ["wanderbus: Java, in which Spark runs, has ended; start the engine again"], errors
    wait_until_gone(pids)


def test_a_directory_of_no_server_is_refused(shell: Shell) -> None:
    (shell.directory / "other").mkdir()
    status, _, errors = shell.run("pipeline", "engine", "other")
    assert status == 2
    assert "other has no log of a server; give the data directory of a server" in one_line(errors)


def test_the_engine_of_a_server_ends_with_it(shell: Shell, data: Path) -> None:
    engine = shell.start("pipeline", "engine", "data", "--until-stdin-ends", stdin=subprocess.PIPE)
    read_line(engine)
    pids = descendants(engine.pid)
    assert engine.stdin is not None
    engine.stdin.close()
    engine.stdin = None
    assert ended(engine)[0] == 0
    wait_until_gone(pids)
