"""Files of settings on the command line: checked, printed, and taken by ``up``, ``pub`` and ``sub`` (SPEC Q-01)."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.cli.shell import ROOT, Shell, ended, one_line, read_line

pytestmark = pytest.mark.integration


def write(shell: Shell, name: str, text: str) -> str:
    file = shell.directory / name
    file.touch(0o600)
    file.write_text(text)
    return name


@pytest.mark.parametrize("kind", ["agent", "broker", "relay", "proxy"])
def test_the_sample_is_that_of_the_examples_and_can_be_used(shell: Shell, kind: str) -> None:
    status, out, err = shell.run("config", "sample", kind)
    assert (status, err) == (0, "")
    example = ROOT / "examples" / f"{kind}.toml"
    assert tomllib.loads(out) == tomllib.loads(example.read_text())
    told = ["--kind", "proxy"] if kind == "proxy" else []
    status, out, err = shell.run("config", "check", str(example), *told, "--json")
    assert (status, json.loads(out)["kind"]) == (0, kind)
    assert "users.txt holds secrets of users and can be read by others: chmod 600" in err or err == ""


@pytest.mark.parametrize("name", ["broker_at_kamailio.toml", "server_with_relay.toml"])
def test_the_other_examples_can_be_used(shell: Shell, name: str) -> None:
    status, out, err = shell.run("config", "check", str(ROOT / "examples" / name), "--json")
    assert (status, json.loads(out)["kind"]) == (0, "broker")
    assert "chmod 600" in err or err == ""
    assert "quorum" not in out


def test_check_prints_the_settings_and_hides_secrets(shell: Shell) -> None:
    agent = write(shell, "a.toml", 'uri = "sip:alice@localhost"\npassword = "hunter2"\n[rudp]\nretries_max = 9')
    assert shell.run("config", "check", agent) == (
        0,
        "a.toml is a file of settings for an agent; it sets\n"
        '  uri = "sip:alice@localhost"\n  password = "(hidden)"\n  rudp.retries_max = 9\n',
        "",
    )
    text = 'domain = "localhost"\ndata_dir = "data"\n[users]\nalice = "hunter2"\n[broker.roles]\nalice = "operator"'
    status, out, err = shell.run("config", "check", write(shell, "b.toml", text), "--json")
    assert (status, err) == (0, "")
    expected = {"domain": "localhost", "users": "(hidden)", "data_dir": "data", "broker.roles": {"alice": "operator"}}
    assert json.loads(out) == {"file": "b.toml", "kind": "broker", "set": expected}


@pytest.mark.parametrize(
    "text", ["", "encryption = false\n", "port = 0\n[rudp]\nretries_max = 9\n", '[broker]\nzone = "UTC"\n']
)
def test_check_accepts_what_up_accepts_with_its_option_for_users(shell: Shell, text: str) -> None:
    file = write(shell, "s.toml", text)
    status, out, err = shell.run("config", "check", file)
    assert (status, err) == (0, "")
    assert out.startswith("s.toml is a file of settings for a broker; it sets\n")
    assert out.endswith("and no users: give 'wanderbus up' --users FILE, too\n")
    status, out, _ = shell.run("config", "check", file, "--kind", "broker", "--json")
    assert (status, json.loads(out)["missing"]) == (0, ["users"])
    server = shell.start("up", "--config", file, "--users", "users", "--port", "0")
    assert read_line(server).startswith("ready sip:")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            'uri = "sip:alice@localhost"\nkeepalive = 3',
            "x.toml: keepalive: unknown key; did you mean keepalive_s?",
        ),
        ('uri = "alice"', "'alice' is not a user; write alice@localhost"),
        ('server = "127.0.0.1"', "uri must be given"),
        ('uri = "sips:alice@localhost"\nca_file = "nowhere.pem"', "nowhere.pem"),
        ('domain = "localhost"\ndata_dir = "data"\nusers = "nowhere.txt"', "nowhere.txt cannot be read"),
        ('domain = "localhost"\ndata_dir = "data"\nusers = {}\nhost = "localhost"', "'localhost' is not an IP address"),
    ],
)
def test_check_refuses_what_cannot_be_used(shell: Shell, text: str, complaint: str) -> None:
    status, out, err = shell.run("config", "check", write(shell, "x.toml", text))
    assert (status, out) == (2, "")
    assert complaint in one_line(err)
    assert not (shell.directory / "data").exists()


def test_up_pub_and_sub_take_files_and_options_come_before_them(shell: Shell) -> None:
    (shell.directory / "elsewhere").mkdir()
    text = (
        'data_dir = "log"\nusers = "users.txt"\nport = 1\nhost = "203.0.113.9"\nencryption = false\nsip_trace = "trace"'
    )
    write(shell, "elsewhere/users.txt", "alice:secret\nbob:hunter2\n")
    file = write(shell, "elsewhere/broker.toml", text)
    server = shell.start("up", "--config", file, "--port", "0", "--host", "127.0.0.1")
    place = read_line(server).removeprefix("ready sip:")
    common = f'server = "{place}"\nencryption = false\n'
    alice = write(shell, "alice.toml", f'uri = "sip:alice@localhost"\npassword = "secret"\nstate_dir = "a"\n{common}')
    reader = shell.start("sub", "Departure", "--count", "1", environment={"WANDERBUS_CONFIG": alice})
    trace = shell.directory / "elsewhere" / "trace"
    bob = write(shell, "bob.toml", f'uri = "sip:alice@localhost"\npassword_file = "word"\nstate_dir = "b"\n{common}')
    write(shell, "word", "secret\n")
    shell.directory.joinpath("data").symlink_to("elsewhere/log")
    shell.subscribed()
    status, out, err = shell.run("pub", "Departure", "n=1", "--config", bob, "--encryption")
    assert (status, "give --no-encryption to both" in one_line(err)) == (1, True)
    as_bob = ["--user", "sip:bob@localhost", "--password", "hunter2"]
    status, out, err = shell.run("pub", "Departure", "n=2", "--config", bob, *as_bob)
    assert (status, out.startswith("published "), err) == (0, True, "")
    assert ended(reader) == (0, "1 Departure n=2\n", "")
    server.terminate()
    assert ended(server)[:2] == (0, "")
    assert "sip:bob@localhost" in trace.read_text()
    assert (shell.directory / "a" / "sub" / "1" / "device").exists()


def test_nobody_is_named(shell: Shell) -> None:
    status, out, err = shell.run("pub", "Departure", "n=1")
    assert (status, out) == (2, "")
    assert one_line(err).startswith("no user given; use --user or WANDERBUS_USER, or a file of settings")
    status, out, err = shell.run("up", "--port", "0")
    assert (status, out, "give --users FILE" in one_line(err)) == (2, "", True)
    assert Path(shell.directory, "data").exists() is False
