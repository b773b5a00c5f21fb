"""State of the broker from the shell: listed, shown, dropped, ended and explained (SPEC E-01, G-08, G-21, U-01)."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.shell import ROOT, WAIT_S, Shell, ended, one_line, read_line, read_ready

pytestmark = pytest.mark.integration

ROLES = '[broker.roles]\n"sip:olga@localhost" = "operator"\n"sip:adam@localhost" = "administrator"\n'
ALICE = "sip:alice@localhost"


@pytest.fixture
def office(shell: Shell) -> Shell:
    """A server with an operator and an administrator."""
    shell.write_users("alice:secret\nbob:hunter2\nolga:secret\nadam:secret\n")
    (shell.directory / "roles.toml").write_text(ROLES)
    shell.up("--config", "roles.toml")
    return shell


def asking(shell: Shell, name: str) -> list[str]:
    password = "hunter2" if name == "bob" else "secret"
    return ["--user", f"sip:{name}@localhost", "--password", password, "--server", f"127.0.0.1:{shell.port}"]


def listed(shell: Shell, *words: str, name: str = "olga") -> list[dict[str, Any]]:
    status, out, err = shell.run(*words, "--json", *asking(shell, name))
    assert (status, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def with_queue(shell: Shell, *numbers: int) -> None:
    """Alice has a subscription and is away, and these wait for her."""
    reader = shell.start("sub", "Trade", "--keep", "kept", *shell.as_user())
    shell.subscribed()
    reader.send_signal(signal.SIGINT)
    assert reader.wait(WAIT_S) == 130
    lines = "".join(f'{{"n": {number}}}\n' for number in numbers)
    assert shell.run("pub", "Trade", "-", *shell.as_user("bob", "hunter2"), input=lines)[0] == 0


def test_an_operator_sees_everybody_and_leaves_nothing_behind(office: Shell) -> None:
    with_queue(office, 1, 2)
    for _ in range(2):
        rows = listed(office, "sessions")
    assert [(row["user"], row["session"], len(row["devices"])) for row in rows] == [(ALICE, "sub.kept", 1)], (
        "the session of the publisher is over"
    )
    assert (rows[0]["status"], rows[0]["queued"]) == ("DISCONNECTED", 2)
    assert rows[0]["devices"][0]["address"].startswith("127.0.0.1:")
    assert [row["user"] for row in listed(office, "sessions", "--status", "disconnected")] == [ALICE]
    assert [row["user"] for row in listed(office, "sessions", "sip:a*")] == [ALICE]
    assert [row["user"] for row in listed(office, "sessions", "alice@LOCALHOST")] == [ALICE]
    assert listed(office, "subscriptions", "--subject", "X*") == []
    (row,) = listed(office, "subscriptions", "--subject", "T*")
    assert (row["user"], row["subject"], row["queued"]) == (ALICE, "Trade", 2)
    (row,) = listed(office, "queues", "--waiting")
    assert (row["user"], row["notifications"]) == (ALICE, 2)


def test_a_table_is_for_people(office: Shell) -> None:
    with_queue(office, 1)
    for what, words in (("sessions", "DISCONNECTED"), ("subscriptions", "Trade"), ("queues", "notifications_max=")):
        status, out, err = office.run(what, *asking(office, "alice"))
        assert (status, err) == (0, "")
        heading, *rows = out.splitlines()
        assert heading.split()[:2] == ["user", "session"] if what != "subscriptions" else heading.startswith("id")
        assert ALICE.removeprefix("sip:") in "\n".join(rows)
        assert max(map(len, out.splitlines())) <= 80
        assert words in "\n".join(rows)
        assert "bob" not in out


def test_peek_shows_what_purge_then_drops(office: Shell) -> None:
    with_queue(office, 1, 2, 3)
    words = ["peek", ALICE, "--session", "sub.kept", *asking(office, "olga")]
    assert office.run(*words) == (0, "1 Trade n=1\n2 Trade n=2\n3 Trade n=3\n", "")
    assert office.run(*words, "--count", "2")[1] == "1 Trade n=1\n2 Trade n=2\n"
    assert [row["attributes"] for row in listed(office, "peek", ALICE, "--session", "sub.kept")] == [
        {"n": 1},
        {"n": 2},
        {"n": 3},
    ]
    purge = ["purge", ALICE, "--session", "sub.kept", *asking(office, "adam")]
    status, out, err = office.run(*purge)
    assert (status, out) == (2, "")
    assert "--yes" in one_line(err)
    assert office.run(*purge, "--yes") == (0, "purged 3\n", "")
    assert office.run(*words) == (0, "3 gap of 3: purged\n", "")
    (gap,) = listed(office, "peek", ALICE, "--session", "sub.kept")
    assert (gap["missing"], gap["reason"], gap["position"]["number"]) == (3, "purged", 3)


def test_purge_asks_on_a_terminal(office: Shell) -> None:
    with_queue(office, 1)
    for answer, status in (("n", 1), ("y", 0)):
        ours, theirs = pty.openpty()
        process = office.start("purge", ALICE, "--session", "sub.kept", *asking(office, "adam"), stdin=theirs)
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        assert process.wait(WAIT_S) == status
        os.close(ours)
    assert listed(office, "queues", "--waiting") == []


def test_kick_ends_a_connection_which_comes_back(office: Shell) -> None:
    reader = office.start("sub", "Trade", *office.as_user())
    office.subscribed()
    (device,) = listed(office, "sessions", ALICE)[0]["devices"]
    assert device["status"] == "CONNECTED"
    status, out, err = office.run("kick", ALICE, "--yes", *asking(office, "adam"))
    assert (status, out, err) == (0, f"{device['device']} kicked\n", "")
    assert office.run("pub", "Trade", "n=1", *office.as_user("bob", "hunter2"))[0] == 0
    assert read_line(reader) == "1 Trade n=1"
    assert office.run("kick", ALICE, device["device"], "--forget", "--yes", *asking(office, "adam"))[1].endswith(
        "forgotten\n"
    )
    status, _, err = office.run("kick", ALICE, "nothing", "--yes", *asking(office, "adam"))
    assert (status, one_line(err)) == (1, f"{ALICE} has no device 'nothing'; list the sessions")


def test_discard_leaves_only_the_counters_of_a_session(office: Shell) -> None:
    with_queue(office, 1, 2, 3)
    reader = office.start("sub", "Trade", *office.as_user())
    assert read_ready(reader).startswith("wanderbus: subscribed to Trade")
    status, out, err = office.run("discard", ALICE, "--session", "sub.kept", "--yes", *asking(office, "olga"))
    assert (status, out) == (1, "")
    assert "need the role 'administrator'" in one_line(err)
    discard = ["discard", ALICE, "--session", "sub.kept", *asking(office, "adam")]
    status, out, err = office.run(*discard)
    assert (status, out) == (2, "")
    assert "--yes" in one_line(err)
    done = "removed 1 device, ended 1 subscription, purged 3\n"
    assert office.run(*discard, "--yes") == (0, done, "")
    assert "sub.kept" not in {row["session"] for row in listed(office, "subscriptions")}
    assert office.run("pub", "Trade", "n=4", *office.as_user("bob", "hunter2"))[0] == 0
    assert read_line(reader) == "1 Trade n=4"
    status, _, err = office.run(*discard, "--yes")
    assert (status, "has no session 'sub.kept'" in one_line(err)) == (1, True)
    office.kill()
    office.up("--config", "roles.toml")
    rows = [row for row in listed(office, "sessions") if row["user"] == ALICE]
    assert "sub.kept" not in {row["session"] for row in rows}
    (row,) = [row for row in rows if row["session"] == ""]
    assert (row["devices"], row["subscriptions"], row["queued"], row["dropped"]) == ([], 0, 0, {"purged": 3})


def test_refusals_are_one_line(office: Shell) -> None:
    for words, name, status, complaint in (
        (["sessions", ALICE], "bob", 1, "need the role 'operator' or 'administrator'"),
        (["peek", ALICE, "--session", "default"], "bob", 1, "need the role 'operator' or 'administrator'"),
        (["purge", ALICE, "--session", "default", "--yes"], "olga", 1, "need the role 'administrator'"),
        (["kick", ALICE, "--yes"], "olga", 1, "need the role 'administrator'"),
        (["discard", ALICE, "--session", "default", "--yes"], "olga", 1, "need the role 'administrator'"),
        (["discard", ALICE, "--session", "default", "--yes"], "adam", 1, "has no session 'default'"),
        (["peek", ALICE, "--session", "default"], "olga", 1, "has no session 'default'"),
        (["peek", ALICE], "olga", 1, f"has no session of {ALICE}"),
        (["sessions", "nobody"], "olga", 2, "write nobody@localhost"),
    ):
        found, out, err = office.run(*words, *asking(office, name))
        assert (found, out) == (status, ""), (words, err)
        assert complaint in one_line(err)


def test_without_a_session_its_user_sees_which_there_are_and_kick_asks(office: Shell) -> None:
    with_queue(office, 1)
    for words in (["peek", ALICE], ["purge", ALICE, "--yes"], ["discard", ALICE, "--yes"]):
        status, out, err = office.run(*words, *asking(office, "adam"))
        assert (status, out) == (2, "")
        assert f"--session NAME: {ALICE} has sub.kept" in one_line(err)
    status, out, err = office.run("kick", ALICE, *asking(office, "adam"))
    assert (status, out) == (2, "")
    assert "--yes" in one_line(err)
    assert office.run("kick", ALICE, "--yes", *asking(office, "adam"))[0] == 0


def test_a_watch_in_a_pipe_is_lines_of_json(office: Shell) -> None:
    with_queue(office, 1)
    watch = office.start("queues", ALICE, "--watch", "0.1", *asking(office, "olga"))
    rows = [json.loads(read_line(watch)) for _ in range(3)]
    assert {row["user"] for row in rows} == {ALICE}
    assert rows[0]["at_us"] < rows[1]["at_us"] < rows[2]["at_us"]
    watch.send_signal(signal.SIGINT)
    assert watch.wait(WAIT_S) == 130


def test_a_watch_on_a_terminal_is_a_table(office: Shell) -> None:
    with_queue(office, 1)
    ours, theirs = pty.openpty()
    watch = office.start("sessions", "--watch", "0.1", *asking(office, "olga"), stdout=theirs)
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + 20
    while shown.count(b"sub.kept") < 2 and time.monotonic() < deadline:
        shown += os.read(ours, 65_536)
    assert shown.count(b"sub.kept") >= 2
    watch.send_signal(signal.SIGINT)
    assert watch.wait(WAIT_S) == 130
    os.close(ours)


def explained(shell: Shell, *words: str) -> dict[str, Any]:
    status, out, err = shell.run("explain", *words, "--data-dir", "data", "--json")
    assert (status, err) == (0, "")
    answer: dict[str, Any] = json.loads(out)
    return answer


@pytest.mark.parametrize("stop", [lambda server: None, subprocess.Popen.kill], ids=["running", "killed"])
def test_explain_reads_the_fate_of_an_event_from_the_log(
    shell: Shell, stop: Callable[[subprocess.Popen[str]], None]
) -> None:
    server = shell.up()
    reader = shell.start("sub", "Trade", "n > 1", "--keep", "kept", "--count", "1", *shell.as_user())
    shell.subscribed()
    bob = shell.as_user("bob", "hunter2")
    low, high, later = (json.loads(shell.run("pub", "Trade", f"n={n}", "--json", *bob)[1])["id"] for n in (1, 2, 3))
    assert ended(reader)[0] == 0
    (row,) = listed(shell, "subscriptions", name="alice")
    stop(server)
    subscription = row["id"]
    explanation = "filtered: n > 1 is false: n is 1\n"
    assert shell.run("explain", low, subscription, "--data-dir", "data") == (0, explanation, "")
    told = explained(shell, high, subscription)
    assert (told["outcome"], told["number"], told["user"]) == ("delivered", 1, ALICE)
    assert 0 <= told["devices"][0]["after_s"] < 30
    assert explained(shell, later, subscription)["outcome"] == "queued"
    assert explained(shell, high, subscription, "--device", "watch")["outcome"] == "not_a_member"
    assert shell.run("explain", high, subscription, "--data-dir", "data/log")[0] == 0


def test_explain_complains_in_one_line(office: Shell) -> None:
    with_queue(office, 1)
    (row,) = listed(office, "subscriptions")
    known, server = row["id"], row["id"].rpartition("-")[0]
    for words, status, complaint in (
        (["x", known], 2, "invalid id 'x'"),
        ([f"{server}-0", known], 1, f"the log has no event {server}-0"),
        ([f"{server}-999999", known], 1, f"the log has no event {server}-999999"),
        (["other-1-5", known], 1, "the log has no event other-1-5"),
        ([f"{server}-5", f"{server}-0"], 1, f"has no subscription {server}-0"),
        ([f"{server}-5", f"{server}-999999"], 1, f"has no subscription {server}-999999"),
        ([f"{server}-5", known, "--data-dir", "nowhere"], 1, "holds no event log"),
    ):
        data = [] if "--data-dir" in words else ["--data-dir", "data"]
        found, out, err = office.run("explain", *words, *data)
        assert (found, out) == (status, ""), (words, err)
        assert complaint in one_line(err)


def test_every_command_shows_an_example() -> None:
    reference = (ROOT / "docs" / "cli.md").read_text()
    for command in ("sessions", "subscriptions", "queues", "peek", "purge", "kick", "discard", "explain"):
        assert f"Example: wanderbus {command} " in reference
