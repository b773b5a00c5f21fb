"""``wanderbus up``: readiness, signals, restarts, and its errors (SPEC A-08, T-01)."""

from __future__ import annotations

import json
import signal
import socket
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

import pytest

from tests.cli.shell import Shell, ended, one_line, read_line
from wanderbus.cli import main

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_the_ordinary_end_and_the_ready_line_all_there_is(shell: Shell, number: signal.Signals) -> None:
    server = shell.up()
    status, out, _ = shell.run("pub", "Departure", "n=1", *shell.as_user())
    assert (status, out.startswith("published ")) == (0, True)
    server.send_signal(number)
    assert ended(server) == (0, "", "")


@pytest.mark.parametrize("command", ["up", "proxy", "relay"])
def test_a_closed_terminal_ends_each_server_with_the_status_of_its_signal(shell: Shell, command: str) -> None:
    options = {"relay": ("--ng-listen", "127.0.0.1:0")}
    server = shell.start(command, *options.get(command, ("--users", "users", "--data-dir", "data", "--port", "0")))
    assert read_line(server).startswith("ready ")
    server.send_signal(signal.SIGHUP)
    assert ended(server) == (128 + signal.SIGHUP, "", "")


class Interrupting(MetaPathFinder):
    """Ends each import as Ctrl-C does."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        raise KeyboardInterrupt


def test_an_interrupt_ends_a_command_that_is_still_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wanderbus.cli.application", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting()])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130


def test_ready_as_json(shell: Shell) -> None:
    server = shell.start("up", "--users", "users", "--data-dir", "data", "--port", "0", "--json")
    line = json.loads(read_line(server))
    assert line["ready"].startswith("sip:127.0.0.1:")
    assert line["broker"] == "sip:broker@localhost"
    server.terminate()
    assert ended(server)[0] == 0


def test_logs_go_to_standard_error(shell: Shell) -> None:
    server = shell.up("--verbose")
    assert shell.run("pub", "Departure", "n=1", *shell.as_user())[0] == 0
    server.terminate()
    status, out, err = ended(server)
    assert (status, out) == (0, "")
    assert "sip:alice@localhost" in err


def test_killing_it_loses_nothing_that_was_acknowledged(shell: Shell) -> None:
    """DESIGN 5.1, 5.2: the event of a printed id is in the log, even after a kill."""
    server = shell.up()
    waiting = shell.start("sub", "Departure", "--keep", "kept", *shell.as_user())
    shell.subscribed()
    waiting.send_signal(signal.SIGINT)
    assert ended(waiting)[0] == 130
    publisher = shell.start("pub", "Departure", "-", "--ids", "--json", *shell.as_user("bob", "hunter2"), stdin=-1)
    assert publisher.stdin is not None
    acknowledged = []
    for value in range(400):
        publisher.stdin.write(f'{{"n": {value}}}\n')
        if value == 200:
            publisher.stdin.flush()
            acknowledged = [json.loads(read_line(publisher))["id"] for _ in range(100)]
            server.kill()
            server.wait()
    publisher.stdin.flush()
    shell.up()
    acknowledged += [json.loads(read_line(publisher))["id"] for _ in range(300)]
    reader = shell.start("sub", "Departure", "--keep", "kept", "--json", "--count", "400", *shell.as_user())
    publisher.stdin.close()
    publisher.stdin = None
    assert ended(publisher) == (0, "", "")
    status, out, err = ended(reader)
    assert (status, err) == (0, "")
    received = [json.loads(line) for line in out.splitlines()]
    assert [each["attributes"]["n"] for each in received] == list(range(400))
    assert [each["id"] for each in received] == acknowledged


def refused(shell: Shell, *more: str) -> tuple[int, str]:
    """Return the exit status and the one line of a server that cannot start."""
    options = {"--users": "users", "--data-dir": "data", "--port": "0"} | dict(zip(more[::2], more[1::2], strict=True))
    status, out, err = shell.run("up", *(word for option in options.items() for word in option))
    assert out == ""
    return status, one_line(err)


def test_unusable_settings_are_one_line(shell: Shell) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        status, line = refused(shell, "--port", port)
    assert (status, f"127.0.0.1:{port} cannot be used" in line) == (2, True)
    for options, word in (
        (("--users", "nowhere"), "nowhere cannot be read"),
        (("--host", "localhost"), "not an IP address"),
        (("--host", "203.0.113.9"), "203.0.113.9"),
        (("--domain", "a b"), "not a valid SIP domain"),
    ):
        status, line = refused(shell, *options)
        assert (status, word in line) == (2, True), line
    status, line = refused(shell, "--data-dir", "users/data")
    assert (status, "cannot be used" in line) == (1, True), line
    shell.write_users("alice:secret\nnonsense\n")
    status, line = refused(shell)
    assert (status, line) == (2, "users, line 2: write name:password")


def test_a_damaged_state_is_rebuilt_with_one_log_line(shell: Shell) -> None:
    server = shell.up()
    assert shell.run("pub", "Departure", "n=1", *shell.as_user())[0] == 0
    server.terminate()
    ended(server)
    (shell.directory / "data" / "state.db").write_bytes(b"\xa5" * 8_192)
    shell.port = 0
    server = shell.up()
    server.terminate()
    status, out, err = ended(server)
    assert (status, out, err.count("\n")) == (0, "", 1)
    assert "data/state.db cannot be used" in err
    assert "rebuilt from the log" in err
    server = shell.up()
    server.terminate()
    assert ended(server) == (0, "", "")


def test_a_damaged_log_is_refused_and_a_torn_one_starts(shell: Shell) -> None:
    server = shell.up()
    for value in ("n=1", "n=2"):
        assert shell.run("pub", "Departure", value, *shell.as_user())[0] == 0
    server.kill()
    server.wait()
    (segment,) = (shell.directory / "data" / "log").glob("*.seg")
    whole = segment.read_bytes()
    segment.write_bytes(damaged := whole[: len(whole) // 2] + b"\xff" + whole[len(whole) // 2 + 1 :])
    assert damaged != whole
    status, line = refused(shell)
    assert (status, f"{segment.name} is damaged at byte" in line) == (1, True)
    assert segment.read_bytes() == damaged
    segment.write_bytes(whole + b"\x00torn")
    server = shell.up()
    assert shell.run("pub", "Departure", "n=3", *shell.as_user())[0] == 0
    server.terminate()
    assert ended(server)[0] == 0


def test_a_data_directory_in_use_is_refused(shell: Shell) -> None:
    server = shell.up()
    status, line = refused(shell)
    assert (status, "in use by another process; stop that one first" in line) == (1, True)
    server.terminate()
    assert ended(server)[0] == 0


def test_a_disk_that_fails_ends_the_server_with_one_line(shell: Shell, tmp_path: Path) -> None:
    """A limit on the size of files takes the place of a full disk."""
    import resource
    import subprocess
    import sys

    from tests.cli.shell import ROOT

    code = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000));"
        "from wanderbus.cli import main; main()"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] < 0 or resource.getrlimit(resource.RLIMIT_FSIZE)[0] > 600_000
    server = subprocess.Popen(
        [sys.executable, "-c", code, "up", "--users", "users", "--data-dir", "data", "--port", "0"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src")},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    shell._started.append(server)
    shell.port = int(read_line(server).rpartition(":")[2])
    publisher = shell.start("pub", "Departure", "-", *shell.as_user(), stdin=-1)
    assert publisher.stdin is not None
    publisher.stdin.write("".join(f'{{"n": {value}, "text": "{"x" * 10_000}"}}\n' for value in range(100)))
    publisher.stdin.flush()
    status, out, err = ended(server)
    assert (status, out) == (1, "")
    assert "data failed, nothing more is acknowledged: " in one_line(err)
    publisher.kill()


def test_log_lines_as_json_and_the_notice_of_a_service_manager(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shell.directory / "notify"
    (shell.directory / "users").chmod(0o644)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.bind(str(path))
        notices.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        server = shell.start(
            *("up", "--users", "users", "--data-dir", "data", "--port", "0", "--log-json", "--verbose"),
            *("--http", "127.0.0.1:0"),
        )
        assert " http://127.0.0.1:" in read_line(server)
        assert notices.recv(99) == b"READY=1"
    server.send_signal(signal.SIGTERM)
    status, out, err = ended(server)
    assert (status, out) == (0, "")
    lines = [json.loads(line) for line in err.splitlines()]
    assert any("users holds secrets" in line["message"] for line in lines), err
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines), err
