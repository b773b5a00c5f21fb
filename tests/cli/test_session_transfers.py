"""``wanderbus session dormant`` and ``transfer`` with real programs (SPEC L-07)."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.cli.shell import WAIT_S, Shell, one_line, read_line, read_ready
from tests.cli.test_operations import asking

pytestmark = pytest.mark.integration

SUB = ["sub", "Tick", "--keep", "ticker"]


def publish(shell: Shell, *numbers: int) -> None:
    lines = "".join(f'{{"n": {number}}}\n' for number in numbers)
    assert shell.run("pub", "Tick", "-", *shell.as_user("bob", "hunter2"), input=lines)[0] == 0


def test_l07_a_command_on_another_device_goes_on_where_the_first_one_stops(shell: Shell) -> None:
    shell.write_users("alice:secret\nbob:hunter2\n")
    shell.up()
    phone = shell.start(*SUB, *shell.as_user(device="phone"))
    assert read_ready(phone).startswith("wanderbus: subscribed")
    command = [str(Path(sys.executable).parent / "wanderbus"), *SUB, *shell.as_user(device="desk")]
    options = ["session", "dormant", "sub.ticker", "--as", "desk", *asking(shell, "alice")]
    watcher = shell.start(*options, "--", *command)
    assert "waiting as desk" in read_ready(watcher)
    status, _, err = shell.run(*options, "--", "no-such-program")
    assert (status, "no program 'no-such-program'" in one_line(err)) == (2, True)
    publish(shell, 1, 2)
    assert [read_line(phone), read_line(phone)] == ["1 Tick n=1", "2 Tick n=2"]
    transfer = ["session", "transfer", "sub.ticker", *asking(shell, "alice")]
    status, out, err = shell.run(*transfer, "--to", "car")
    assert (status, out, "(waiting: desk)" in one_line(err)) == (1, "", True)
    done = "the session sub.ticker of sip:alice@localhost is read at desk now\n"
    assert shell.run(*transfer, "--to", "desk") == (0, done, "")
    assert phone.wait(WAIT_S) == 0, "the iteration of the first instance has ended"
    publish(shell, 3, 4)
    assert [read_line(watcher), read_line(watcher)] == ["3 Tick n=3", "4 Tick n=4"]
    watcher.send_signal(signal.SIGINT)
    assert watcher.wait(WAIT_S) == 130
    publish(shell, 5)
    again = shell.start(*SUB, *shell.as_user(device="desk"))
    assert read_line(again) == "5 Tick n=5", "the application of the watcher has ended with it"
