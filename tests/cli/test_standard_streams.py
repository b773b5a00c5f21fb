"""Standard streams that are closed, or that take nothing: one line on standard error, and nothing is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence

import pytest

from tests.cli.shell import WAIT_S, Shell, ended, one_line
from wanderbus.cli import open_closed_streams
from wanderbus.runtime.net.free_port import free_port

pytestmark = pytest.mark.integration

CLOSED = ("<&-", ">&-", "2>&-", "<&- >&- 2>&-")
FULL = "standard output cannot be written: No space left on device"


def without(redirection: str) -> Sequence[str]:
    """Return the command that starts another one with a closed standard stream."""
    return ("sh", "-c", f'exec "$@" {redirection}', "sh")


def into_full(shell: Shell, *words: str, input: str | None = None) -> tuple[int, str]:
    """Run a command whose standard output is a full disk; return its status and its only line of error."""
    with open("/dev/full", "wb") as full:
        status, _, err = shell.run(*words, input=input, stdout=full)
    return status, one_line(err)


@pytest.mark.parametrize("redirection", CLOSED)
def test_a_server_and_a_command_with_a_closed_stream_work(shell: Shell, redirection: str) -> None:
    shell.port = free_port("127.0.0.1")
    more = ["--port", str(shell.port), "--data-dir", "data"]
    server = shell.start("up", "--users", "users", *more, within=without(redirection))
    until_listening(shell.port)
    status, out, err = shell.run("pub", "Departure", "n=1", *shell.as_user(), within=without(redirection))
    assert (status, err) == (0, "")
    assert out.startswith("published ") or ">&-" in redirection
    server.send_signal(signal.SIGTERM)
    assert ended(server)[0] == 0
    assert shell.logged("published") == 1


def until_listening(port: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_null_device_is_opened_only_for_closed_streams() -> None:
    before = [os.fstat(number).st_ino for number in range(3)]
    open_closed_streams()
    assert [os.fstat(number).st_ino for number in range(3)] == before


def test_a_full_standard_output_is_one_line_with_the_count_of_what_was_done(shell: Shell) -> None:
    shell.up()
    lines = '{"n": 1}\n{"n": 2}\n{"n": 3}\n'
    status, err = into_full(shell, "pub", "Departure", "-", *shell.as_user(), input=lines)
    assert (status, err) == (1, f"{FULL}; published 3 events")
    assert shell.logged("published") == 3
    status, err = into_full(shell, "pub", "Departure", "-", "--ids", *shell.as_user(), input=lines)
    assert status == 1
    assert err.startswith(f"{FULL}; the first ")
    assert err.endswith("of the input were published")
    assert shell.logged("published") == 3 + int(err.partition("the first ")[2].split()[0]) > 3
    status, err = into_full(shell, "pub", "Departure", "-", "--ids", "--outbox", "box", *shell.as_user(), input=lines)
    assert (status, err.startswith(f"{FULL}; the first ")) == (1, True)
    assert err.endswith("of the input were stored")
    kept = [*shell.as_user(), "--keep", "full"]
    with open("/dev/full", "wb") as full:
        reader = shell.start("sub", "Departure", *kept, stdout=full)
    shell.subscribed()
    assert shell.run("pub", "Departure", "n=4", *shell.as_user("bob", "hunter2"))[0] == 0
    assert reader.wait(60) == 1
    assert reader.stderr is not None
    assert f"{FULL}; 0 notifications were written, and the next one is not acknowledged" in reader.stderr.read()
    status, out, _ = shell.run("sub", "Departure", "--count", "1", *kept)
    assert (status, out.endswith(" Departure n=4\n")) == (0, True)


@pytest.mark.parametrize(
    "words",
    [
        ("--version",),
        ("--help",),
        ("pub", "--help"),
        ("users", "list", "--users", "users"),
        ("config", "sample", "relay"),
    ],
)
def test_every_command_has_one_line_for_a_full_standard_output(shell: Shell, words: Sequence[str]) -> None:
    status, err = into_full(shell, *words)
    assert (status, "No space left on device" in err) == (1, True)


def test_a_standard_input_that_cannot_be_read_is_one_line(shell: Shell) -> None:
    shell.up()
    with open(os.devnull, "wb") as only_written:
        status, out, err = shell.run("pub", "Departure", "-", *shell.as_user(), stdin=only_written)
    assert (status, out, one_line(err)) == (2, "", "standard input cannot be read: Bad file descriptor")


def test_a_full_disk_is_one_line_for_a_state_directory_and_a_trace(shell: Shell) -> None:
    status, out, err = shell.run("up", "--users", "users", "--port", "0", "--sip-trace", "/dev/full")
    assert (status, out, one_line(err)) == (2, "", "the SIP trace /dev/full cannot be written: No space left on device")
    shell.up()
    small = shell.directory / "small"
    small.mkdir()
    script = f'mount -t tmpfs -o size=4k none {small} && head -c 4096 /dev/zero > {small}/fill && exec "$@"'
    within = ["unshare", "--mount", "sh", "-c", script, "sh"]
    if os.geteuid() != 0 or subprocess.run([*within, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    user = ["--user", "sip:alice@localhost", "--password", "secret", "--server", f"127.0.0.1:{shell.port}"]
    for option in (("--state-dir", str(small / "state")), ("--outbox", str(small / "box"))):
        status, out, err = shell.run("pub", "Departure", "n=1", *user, *option, within=within)
        assert (status, out, "No space left on device" in one_line(err) or "disk is full" in err) == (1, "", True)
