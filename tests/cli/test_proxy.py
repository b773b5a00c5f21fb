"""``wanderbus proxy``, and ``wanderbus up`` with its SIP server elsewhere: their output, and their end."""

from __future__ import annotations

import json
import signal

import pytest

from tests.cli.shell import Shell, ended, one_line, read_line

pytestmark = pytest.mark.integration

USERS = "alice:secret\nbob:hunter2\nbroker:quorum\n"


def start_proxy(shell: Shell, *more: str) -> str:
    """Start a proxy and return its address as printed."""
    process = shell.start("proxy", "--users", "users", "--data-dir", "proxy", "--port", str(shell.port), *more)
    word, place = read_line(process).split()
    assert word == "ready"
    shell.port = int(place.rpartition(":")[2])
    return place


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_the_ordinary_end(shell: Shell, number: signal.Signals) -> None:
    proxy = shell.start("proxy", "--users", "users", "--data-dir", "proxy", "--port", "0", "--json")
    line = json.loads(read_line(proxy))
    assert line.keys() == {"ready"}
    assert line["ready"].startswith("sip:127.0.0.1:")
    proxy.send_signal(number)
    assert ended(proxy) == (0, "", "")
    assert {path.name for path in (shell.directory / "proxy").iterdir()} >= {"sip.key", "registrations.db"}


def test_a_broker_at_a_proxy_prints_its_address(shell: Shell) -> None:
    shell.write_users(USERS)
    place = start_proxy(shell)
    for more in ([], ["--json"]):
        broker = shell.start("up", "--users", "users", "--data-dir", "data", "--sip-server", place, *more)
        line = read_line(broker)
        where = json.loads(line)["ready"] if more else line.removeprefix("ready ")
        user, _, port = where.rpartition(":")
        assert user == "sip:broker@127.0.0.1"
        assert 0 < int(port) != shell.port
        status, out, _ = shell.run("pub", "Departure", "n=1", *shell.as_user())
        assert (status, out.startswith("published ")) == (0, True)
        broker.terminate()
        assert ended(broker) == (0, "", "")


def test_invalid_options_are_one_line(shell: Shell) -> None:
    common = ("--users", "users", "--data-dir", "data")
    status, out, err = shell.run("up", *common, "--port", "0", "--sip-server", "127.0.0.1:9")
    assert (status, out) == (2, "")
    assert one_line(err) == "port: registrar and proxy are at sip_server, not here; leave one of them out"
    status, out, err = shell.run("up", *common, "--relay", "--relays", "127.0.0.1")
    assert (status, out) == (2, "")
    assert one_line(err).startswith("relays: conflicts with the [relay] table")
    status, out, err = shell.run("proxy", *common, "--port", "0", "--host", "203.0.113.9")
    assert (status, out) == (2, "")
    assert "UDP port 203.0.113.9:0 cannot be used" in one_line(err)


def test_a_wrong_password_of_the_broker_ends_its_start(shell: Shell) -> None:
    shell.write_users(USERS)
    place = start_proxy(shell)
    (shell.directory / "word").touch(0o600)
    (shell.directory / "word").write_text("guess\n")
    status, out, err = shell.run(
        *("up", "--users", "users", "--data-dir", "data", "--sip-server", place, "--broker-password-file", "word")
    )
    assert (status, out) == (1, "")
    assert "rejects sip:broker@localhost: 403" in one_line(err)
    assert "guess" not in err


def test_a_relay_by_an_option_and_by_a_file(shell: Shell) -> None:
    """The option adds nothing to a configured table, and ``--no-relay`` removes it."""
    (shell.directory / "proxy.toml").write_text('users = "users"\nport = 0\n[relay]\naddress = "203.0.113.9"\n')
    for more, status in (([], 2), (["--relay"], 2)):
        given, out, err = shell.run("proxy", "--config", "proxy.toml", *more)
        assert (given, out) == (status, "")
        assert "relay.address 203.0.113.9" in one_line(err)
    proxy = shell.start("proxy", "--config", "proxy.toml", "--no-relay")
    assert read_line(proxy).startswith("ready sip:")
