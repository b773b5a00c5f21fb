"""The command line as a process, and a server to talk to."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from wanderbus.cli.application import run

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60.0
TEST_S_MAX = 240.0
WAITS = (
    "wanderbus: waiting: ",
    "wanderbus: the server goes on, ",
    '{"status":"waiting"',
    '{"status":"answered"',
)
READY = ("wanderbus: subscribed to ", '{"status":"ready"')

SLOW_SERVER = "cannot reach its server: it answers short requests by UDP, but not one of"
"""Part of a warning of agents, which a server that takes seconds to start causes too."""


class Shell:
    """Runs ``wanderbus`` in a directory of its own; its processes are ended after the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = 0
        self._started: list[subprocess.Popen[str]] = []
        self._watchdog = threading.Timer(TEST_S_MAX, self.kill)
        self._watchdog.start()
        self.write_users("alice:secret\nbob:hunter2\n")

    def write_users(self, text: str) -> None:
        (self.directory / "users").touch(0o600)
        (self.directory / "users").write_text(text)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_STATE_HOME": str(self.directory / "xdg")}
        environment |= options.pop("environment", {})
        process = subprocess.Popen(
            [*options.pop("within", []), sys.executable, "-m", "wanderbus", *arguments],
            cwd=self.directory,
            env=environment,
            text=True,
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=subprocess.PIPE,
        )
        self._started.append(process)
        return process

    def run(self, *arguments: str, input: str | None = None, **options: Any) -> tuple[int, str, str]:
        """Run to the end; return exit status, standard output and standard error.

        The command runs in this process, since to start Python takes longer than most commands, unless it has an input
        or options of a process, or another thread runs it: signals, directory and outputs are those of the process.
        """
        if input is None and not options and threading.current_thread() is threading.main_thread():
            return self._run_here(arguments)
        if input is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(*arguments, **options)
        out, err = process.communicate(input, timeout=WAIT_S)
        return process.returncode, out, without_notes(err)

    def _run_here(self, arguments: Sequence[str]) -> tuple[int, str, str]:
        log = logging.getLogger()
        before = Path.cwd(), sys.stdin, log.handlers[:], log.level
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, open(os.devnull) as nothing:
            try:
                os.chdir(self.directory)
                sys.stdin, log.handlers[:] = nothing, []
                with (
                    patch.dict(os.environ, XDG_STATE_HOME=str(self.directory / "xdg")),
                    contextlib.redirect_stdout(out),
                    contextlib.redirect_stderr(err),
                ):
                    status = run(list(arguments))
            finally:
                os.chdir(before[0])
                sys.stdin, log.handlers[:] = before[1:3]
                log.setLevel(before[3])
            for each in (out, err):
                each.seek(0)
            return status, out.read(), without_notes(err.read())

    def up(self, *more: str) -> subprocess.Popen[str]:
        """Start a server, and wait until it is ready; a second one has the port of the first."""
        server = self.start("up", "--users", "users", "--data-dir", "data", "--port", str(self.port), *more)
        line = read_line(server)
        assert line.startswith("ready sip:127.0.0.1:"), (line, server.poll())
        self.port = int(line.rpartition(":")[2])
        return server

    def as_user(self, name: str = "alice", password: str = "secret", device: str | None = None) -> list[str]:
        """Return the options for the user and the server."""
        words = ["--user", f"sip:{name}@localhost", "--password", password, "--server", f"127.0.0.1:{self.port}"]
        return [*words, "--state-dir", device or name]

    def as_visitor(self, name: str = "alice", password: str = "secret") -> list[str]:
        """Options of a command that makes requests as ``name`` and has no device."""
        return ["--user", f"sip:{name}@localhost", "--password", password, "--server", f"127.0.0.1:{self.port}"]

    def subscribed(self, count: int = 1) -> None:
        """Wait until this many subscriptions are in the log: a reader prints nothing when it is ready."""
        deadline = time.monotonic() + WAIT_S
        while self.logged("subscribed") < count:
            assert time.monotonic() < deadline, "nobody subscribed"
            time.sleep(0.01)

    def logged(self, kind: str) -> int:
        """Return how many records of a kind are in the log."""
        word = msgspec.msgpack.encode(kind)
        return sum(path.read_bytes().count(word) for path in (self.directory / "data" / "log").glob("*.seg"))

    def kill(self) -> None:
        """Kill all running processes; their output pipes end."""
        for process in self._started:
            if process.poll() is None:
                process.kill()

    def close(self) -> None:
        self._watchdog.cancel()
        self.kill()
        for process in self._started:
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def read_error(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline().rstrip("\n")


def read_ready(process: subprocess.Popen[str]) -> str:
    """Return the next line of standard error that no slow machine causes: of a reader, that it is ready."""
    while is_of_slow_machine(line := read_error(process)):
        pass
    return line


def is_of_slow_machine(line: str) -> bool:
    """Return whether a line of standard error is there because a machine is slow."""
    return line.startswith(WAITS) or SLOW_SERVER in line


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end; return exit status and the unread rest of standard output and standard error."""
    out, err = process.communicate(timeout=WAIT_S)
    return process.returncode, out, without_notes(err)


def without_notes(err: str) -> str:
    """Remove the lines by which a command reports that it is ready, or that a slow machine has it wait."""
    lines = err.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(READY) and not is_of_slow_machine(line))


def one_line(err: str) -> str:
    """Return a complaint after checking that it is one line of the command's."""
    assert err.endswith("\n"), err
    assert err.count("\n") == 1, err
    assert err.startswith("wanderbus: "), err
    return err.removeprefix("wanderbus: ").rstrip("\n")
