"""Services that their server starts: again after they have ended, and never longer than the server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.process_tree import is_running
from wanderbus.runtime.services import supervised
from wanderbus.runtime.services.supervised import SupervisedService

UNTIL_THE_PIPE_ENDS = "import sys; sys.stdin.buffer.read()"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"

WAIT_S = 30.0


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "PAUSE_S_MIN", 0.01)
    monkeypatch.setattr(supervised, "POLL_S", 0.01)


def running(service: SupervisedService) -> int:
    until(lambda: service.pid)
    pid = service.pid
    assert pid is not None
    return pid


def test_t06_a_killed_service_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    service = SupervisedService("engine", [sys.executable, "-c", UNTIL_THE_PIPE_ENDS])
    service.start()
    first = running(service)
    os.kill(first, signal.SIGKILL)
    until(lambda: service.pid not in (None, first))
    second = running(service)
    service.close()
    service.join()
    assert not is_running(second)
    assert [each.getMessage() for each in caplog.records] == [
        "the service engine has ended with status -9; it is started again in 0.01 s"
    ]


def test_t06_pauses_grow_while_a_service_ends_at_once(caplog: pytest.LogCaptureFixture) -> None:
    service = SupervisedService("engine", [sys.executable, "-c", "raise SystemExit(3)"])
    service.start()
    until(lambda: len(caplog.records) >= 3)
    service.close()
    service.join()
    said = [each.getMessage().rpartition(" in ")[2] for each in caplog.records[:3]]
    assert said == ["0.01 s", "0.02 s", "0.04 s"]


def test_t06_a_command_that_cannot_run_is_named(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    service = SupervisedService("engine", [str(tmp_path / "nothing")])
    service.start()
    until(lambda: caplog.records)
    service.close()
    service.join()
    assert "cannot be started: No such file or directory" in caplog.records[0].getMessage()


def test_t06_a_service_that_does_not_end_is_killed_with_what_it_has_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(supervised, "END_S_MAX", 0.2)
    pid_file = tmp_path / "pid"
    code = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {STUBBORN!r}]); "
    code += f"open({str(pid_file)!r}, 'w').write(str(p.pid)); {STUBBORN}"
    service = SupervisedService("engine", [sys.executable, "-c", code])
    service.start()
    until(lambda: pid_file.exists() and pid_file.read_text())
    own, child = running(service), int(pid_file.read_text())
    service.close()
    service.join()
    until(lambda: not is_running(own) and not is_running(child))


def test_t06_a_service_ends_when_its_server_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    server = f"""
import sys, time
from wanderbus.runtime.services.supervised import SupervisedService
service = SupervisedService("engine", [sys.executable, "-c", {UNTIL_THE_PIPE_ENDS!r}])
service.start()
while service.pid is None:
    time.sleep(0.01)
open({str(pid_file)!r}, "w").write(str(service.pid))
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", server]) as process:
        until(lambda: pid_file.exists() and pid_file.read_text())
        pid = int(pid_file.read_text())
        assert is_running(pid)
        process.kill()
    until(lambda: not is_running(pid))
