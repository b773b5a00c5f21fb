"""Processes of a blocking run: readiness within a bound, how they ended, and no survivor."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.testbed.survivors import wait_for_end
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.launch import last_line
from wanderbus.testbed.processes import Process

TWO_LINES = "import time; print('ready a', flush=True); print('more', flush=True); time.sleep(60)"


def test_lines_are_read_one_by_one_and_the_block_ends_the_process(tmp_path: Path) -> None:
    with Process("program", [sys.executable, "-c", TWO_LINES], tmp_path / "log", read=True) as process:
        assert [process.line(), process.line()] == ["ready a", "more"]
        assert process.running
    assert process.status == -signal.SIGTERM
    assert str(process) == "program was killed by SIGTERM: no error output"


def test_a_silent_process_is_waited_for_within_a_bound(tmp_path: Path) -> None:
    with Process("program", ["sleep", "60"], tmp_path / "log", read=True) as process:
        with pytest.raises(CannotRunError, match=r"program was silent for 0\.1 s"):
            process.line(0.1)
        with pytest.raises(CannotRunError, match=r"program was not ready within 0\.1 s"):
            process.wait_until(lambda: False, 0.1)


@pytest.mark.parametrize("read", [True, False])
def test_the_end_of_a_process_is_reported_with_its_last_words(tmp_path: Path, read: bool) -> None:
    argv = [sys.executable, "-c", "import sys; sys.exit('no port')"]
    with (
        pytest.raises(CannotRunError, match="program ended with exit status 1: no port"),
        Process("program", argv, tmp_path / "log", read=read) as process,
    ):
        process.line() if read else process.wait_until(lambda: False)


def test_a_process_that_ignores_the_signal_is_killed_with_its_children(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 60 & echo $!; wait; wait"
    with Process("shell", ["sh", "-c", script], tmp_path / "log", read=True) as process:
        child = int(process.line())
        assert process.end(0.2) == -signal.SIGKILL
    wait_for_end([child])


def test_an_error_in_the_block_ends_the_process(tmp_path: Path) -> None:
    process = Process("sleeper", ["sleep", "60"], tmp_path / "log")
    with pytest.raises(ZeroDivisionError), process:
        _ = 1 / 0
    assert not process.running


@pytest.mark.parametrize(
    ("complaints", "line"),
    [
        ("", ""),
        ("one\ntwo\n", "two"),
        ('{"error":{"type":"ConfigurationError","message":"no room"}}\n', "no room"),
        ('{"error":"odd"}', '{"error":"odd"}'),
        ("{", "{"),
    ],
)
def test_the_last_line_of_an_error_in_json_is_its_message(tmp_path: Path, complaints: str, line: str) -> None:
    (tmp_path / "log").write_text(complaints)
    assert last_line(tmp_path / "log") == line
