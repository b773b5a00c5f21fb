"""``wanderbus users``: digests in the file, and a running server that notices."""

from __future__ import annotations

import json
import os
import pty
import time

import pytest

from tests.cli.shell import WAIT_S, Shell, one_line

pytestmark = pytest.mark.integration


def test_a_server_takes_who_was_added_while_it_runs_and_the_file_has_no_password(shell: Shell) -> None:
    shell.up()
    assert shell.run("users", "add", "carol", "--users", "users", input="s3cret\n") == (0, "carol added\n", "")
    assert "s3cret" not in (shell.directory / "users").read_text()
    time.sleep(1.5)  # a look at the file is a second after the last
    assert shell.run("pub", "Departure", "n=1", *shell.as_user("carol", "s3cret"))[0] == 0
    assert shell.run("users", "passwd", "carol", "--users", "users", "--json", input="other\n")[0] == 0
    time.sleep(1.5)
    status, _, err = shell.run("pub", "Departure", "n=1", *shell.as_user("carol", "s3cret"))
    assert (status, "does not accept the password" in err) == (1, True)
    assert shell.run("pub", "Departure", "n=1", *shell.as_user("carol", "other"))[0] == 0
    status, out, _ = shell.run("users", "list", "--users", "users", "--json")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"user": "alice", "stored": "password", "domain": None},
        {"user": "bob", "stored": "password", "domain": None},
        {"user": "carol", "stored": "digests", "domain": "localhost"},
    ]
    assert shell.run("users", "remove", "carol", "--users", "users")[:2] == (0, "carol removed\n")
    for words, found, complaint in (
        (("add", "alice"), 1, "users already has a user alice"),
        (("passwd", "carol"), 1, "has no user carol"),
        (("add", "dora"), 2, "no password given"),
    ):
        status, out, err = shell.run("users", *words, "--users", "users", input="\n")
        assert (status, out) == (found, "")
        assert complaint in one_line(err)


def test_a_server_that_refuses_the_file_says_so_and_removes_who_was_removed(shell: Shell) -> None:
    server = shell.up()
    status, out, err = shell.run("users", "add", "carol", "--users", "users", "--domain", "a.example", input="s3cret\n")
    assert (status, out) == (1, "carol added\n")
    refusal = (
        ": the digests are for domain 'a.example', not 'localhost'; run 'wanderbus users passwd carol "
        "--domain localhost'"
    )
    assert (
        one_line(err)
        == f"the server of localhost (process {server.pid}) does not use this change: users, line 3{refusal}"
    )
    status, out, err = shell.run("users", "remove", "bob", "--users", "users")
    assert (status, out) == (0, "bob removed\n")
    assert one_line(err).endswith(f"removed the user, but uses no other change: users, line 2{refusal}")
    status, _, err = shell.run("pub", "Departure", "n=1", *shell.as_user("bob", "hunter2"))
    assert (status, "wrong" in err or "has no user" in err or "does not accept" in err) == (1, True)
    assert shell.run("pub", "Departure", "n=1", *shell.as_user("alice", "secret"))[0] == 0
    assert shell.run("users", "list", "--users", "users")[1] == "alice (password)\ncarol (digests for a.example)\n"
    assert shell.run("users", "passwd", "carol", "--users", "users", input="s3cret\n") == (0, "carol changed\n", "")
    assert shell.run("pub", "Departure", "n=1", *shell.as_user("carol", "s3cret"))[0] == 0


def test_on_a_terminal_the_password_is_asked_for_twice_and_not_shown(shell: Shell) -> None:
    for second, status in (("typo", 1), ("s3cret", 0)):
        ours, theirs = pty.openpty()
        process = shell.start(
            "users", "add", "carol", "--users", "users", stdin=theirs, stdout=theirs, within=["setsid", "-c", "-w"]
        )
        os.close(theirs)
        shown = b""
        for word in ("s3cret", second):
            while not shown.endswith(b": "):
                shown += os.read(ours, 1_000)
            os.write(ours, f"{word}\n".encode())
            shown += b"\n"
        assert process.wait(WAIT_S) == status
        assert b"s3cret" not in shown
        os.close(ours)
