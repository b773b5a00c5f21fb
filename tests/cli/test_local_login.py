"""Commands beside a server that their user runs: no password, and no user for operators (SPEC U-11)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.fleet import SERVERS, Fleet
from tests.cli.shell import ROOT, WAIT_S, Shell, ended, one_line, read_line, read_ready

pytestmark = pytest.mark.integration

STRANGER = 65_534
OPERATORS = ("sessions", "subscriptions", "queues", "limits", "filtering", "engine", "advertisements")


@pytest.fixture
def beside(shell: Shell) -> Shell:
    """A server at the data directory that commands look at by default."""
    shell.up("--data-dir", "wanderbus-data")
    return shell


def test_u11_the_commands_of_operators_need_no_user_and_no_password(beside: Shell) -> None:
    for command in OPERATORS:
        status, _, err = beside.run(command)
        assert (status, err) == (0, ""), command
    assert beside.run("schema", "set", "Trade", "n:Integer")[0] == 0


def test_u11_pub_and_sub_need_only_a_name(beside: Shell) -> None:
    reader = beside.start("sub", "Trade", "--user", "alice", "--count", "1", "--json")
    assert '"status":"ready"' in read_ready(reader)
    rows = json.loads(beside.run("sessions", "--json")[1].splitlines()[0])
    assert rows["user"] == "sip:alice@localhost"
    assert beside.run("pub", "Trade", "n=1", "--user", "bob")[0] == 0
    assert json.loads(ended(reader)[1])["attributes"] == {"n": 1}
    status, _, err = beside.run("sessions", "--user", "bob")
    assert (status, err) == (0, "")
    status, _, err = beside.run("filtering", "--user", "bob")
    assert status == 1
    assert "role" in one_line(err), "a user who is named gets that user's rights"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("pub", "Trade", "n=1"), "no user given"),
        (("pub", "Trade", "n=1", "--user", "carol"), "no user sip:carol@localhost"),
        (("pub", "Trade", "n=1", "--user", "alice@example.org", "--data-dir", "wanderbus-data"), "not example.org"),
        (("pub", "Trade", "n=1", "--user", "alice", "--data-dir", "nowhere"), "no server runs in nowhere"),
        (("sessions", "--data-dir", "wanderbus-data", "--server", "127.0.0.1"), "leave out --server"),
        (("sessions", "--data-dir", "wanderbus-data", "--user", "sips:alice@localhost"), "sips:"),
    ],
)
def test_options_that_cannot_work_are_refused_in_one_line(beside: Shell, words: tuple[str, ...], reason: str) -> None:
    status, out, err = beside.run(*words)
    assert status in (1, 2)
    assert out == ""
    assert reason in one_line(err)
    assert not (beside.directory / "nowhere").exists()


def test_without_a_server_one_line_says_so(shell: Shell) -> None:
    for words in (("sessions",), ("pub", "Trade", "n=1", "--user", "alice")):
        status, _, err = shell.run(*words)
        assert status == 2
        assert "runs in wanderbus-data or wanderbus-domain" in one_line(err)


def test_a_killed_server_is_missed_and_its_successor_found(beside: Shell) -> None:
    (server,) = beside._started
    server.kill()
    server.wait()
    assert (beside.directory / "wanderbus-data" / "services" / "login.sock").exists()
    assert "runs in wanderbus-data" in one_line(beside.run("sessions")[2])
    second = beside.up("--data-dir", "wanderbus-data")
    third = beside.start("up", "--users", "users", "--data-dir", "wanderbus-data", "--port", "0")
    assert third.wait(60) == 1
    assert beside.run("sessions")[0] == 0, "a second server does not take the socket of a living one"
    second.send_signal(signal.SIGTERM)
    assert second.wait(WAIT_S) == 0
    assert not (beside.directory / "wanderbus-data" / "services" / "login.sock").exists()


def test_watching_goes_on_over_a_restart(beside: Shell) -> None:
    watching = beside.start("filtering", "--watch", "0.2", "--json")
    assert read_line(watching)
    (server, *_) = beside._started
    server.kill()
    server.wait()
    beside.up("--data-dir", "wanderbus-data")
    for _ in range(30):
        assert read_line(watching)
    watching.send_signal(signal.SIGINT)
    assert watching.wait(WAIT_S) == 130


def test_a_suspended_server_is_named_within_the_timeout(beside: Shell) -> None:
    (server,) = beside._started
    server.send_signal(signal.SIGSTOP)
    try:
        status, _, err = beside.run("sessions", "--timeout", "0.5")
    finally:
        server.send_signal(signal.SIGCONT)
    assert status == 1
    assert "does not answer" in one_line(err)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a command as somebody else")
def test_another_user_of_the_computer_is_refused(beside: Shell) -> None:
    # A stranger who can reach the files, because their modes were widened by hand, is known by the user id alone.
    data = beside.directory / "wanderbus-data"
    script = (
        "import os, sys; from pathlib import Path\n"
        "from wanderbus.runtime.services.login import LoginWanted, request_login\n"
        "import wanderbus.runtime.services.login as module\n"
        f"os.setgid({STRANGER}); os.setuid({STRANGER})\n"
        "module.check_own_directory = lambda path: None\n"
        "try: print(request_login(Path(sys.argv[1]), LoginWanted(None), 5))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )

    def asked() -> str:
        words = [sys.executable, "-c", script, str(data)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout

    opened = [beside.directory, *beside.directory.parents]
    modes = {path: path.stat().st_mode for path in opened if path != Path("/") and path.stat().st_uid == 0}
    assert asked().startswith("AuthenticationError") or "None" in asked()
    try:
        for path in (*modes, data, data / "services"):
            path.chmod(0o777)
        for path in (data / "services").iterdir():
            path.chmod(0o666)
        reason = asked()
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
    assert reason.startswith("AuthenticationError the server is run by the user with id 0"), reason
    assert reason.count("\n") == 1


def test_a_path_longer_than_a_socket_takes_serves(shell: Shell) -> None:
    directory = "/".join(["d" * 60] * 3)
    shell.up("--data-dir", directory)
    assert shell.run("sessions", "--data-dir", directory)[0] == 0


def test_u11_the_commands_of_a_domain_need_no_user(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    try:
        file = str(fleet.directory / "fleet" / "domain.toml")
        status, out, err = fleet.run("domain", "status", "--event-domain", file, "--json")
        assert (status, err) == (0, "")
        assert [json.loads(line)["server"] for line in out.splitlines()] == list(SERVERS)
        for words in (("topology",), ("trace", "Trade", "n=1")):
            assert fleet.run(*words, "--event-domain", file)[::2] == (0, ""), words
        assert fleet.run("pub", "Trade", "n=1", "--user", "bob", "--data-dir", "fleet")[0] == 0
        assert fleet.run("limits", "--data-dir", "fleet")[0] == 0
        os.kill(fleet.pid("s2"), signal.SIGSTOP)
        try:
            status, out, err = fleet.run("domain", "status", "--event-domain", file, "--timeout", "1", "--json")
        finally:
            os.kill(fleet.pid("s2"), signal.SIGCONT)
        rows = {row["server"]: row for row in map(json.loads, out.splitlines())}
        assert (status, err, [name for name in SERVERS if rows[name]["answers"]]) == (1, "", ["s1", "s3"])
        assert "does not answer" in rows["s2"]["error"]
    finally:
        fleet.close()
