"""``wanderbus session export`` and ``import`` with real programs (SPEC J-05)."""

from __future__ import annotations

import json
import signal

import pytest

from tests.cli.shell import WAIT_S, Shell, one_line, read_line
from tests.cli.test_operations import ALICE, asking, listed, with_queue
from tests.cli.test_operations import office as office

pytestmark = pytest.mark.integration

BOB = "sip:bob@localhost"


def test_j05_a_session_goes_into_a_file_and_out_of_it_at_another_user(office: Shell) -> None:
    with_queue(office, 1, 2)
    export = ["session", "export", "sub.kept", "kept.session"]
    alice, adam, bob = asking(office, "alice"), asking(office, "adam"), asking(office, "bob")
    done = "kept.session has 1 subscription, 2 notifications\n"
    assert office.run(*export, *alice) == (0, done, "")
    status, out, err = office.run(*export, *alice)
    assert (status, out, "kept.session exists" in one_line(err)) == (2, "", True)
    assert [row["queued"] for row in listed(office, "sessions", ALICE)] == [2], "the session goes on"

    load = ["session", "import", "kept.session"]
    status, out, err = office.run(*load, *alice)
    assert (status, "has a session 'sub.kept' already" in one_line(err)) == (1, True)
    status, out, err = office.run(*load, *bob)
    assert (status, f"has a session of {ALICE}" in one_line(err)) == (2, True)
    status, out, err = office.run(*load, "--of", ALICE, "--name", "sub.two", *bob)
    assert (status, "need the role 'administrator'" in one_line(err)) == (1, True)

    status, out, err = office.run(*load, "--of", BOB, "--name", "sub.mine", "--json", *adam)
    row = {"user": BOB, "session": "sub.mine", "subscriptions": 1, "notifications": 2}
    assert (status, json.loads(out), err) == (0, row, "")
    reader = office.start("sub", "Trade", "--keep", "mine", *office.as_user("bob", "hunter2"))
    assert [read_line(reader), read_line(reader)] == ["1 Trade n=1", "2 Trade n=2"]
    assert office.run("pub", "Trade", "n=3", *alice)[0] == 0
    assert read_line(reader) == "3 Trade n=3"


def test_j05_a_session_that_is_removed_is_in_the_file_with_all_that_waited(office: Shell) -> None:
    reader = office.start("sub", "Trade", "--keep", "kept", *office.as_user())
    office.subscribed()
    export = ["session", "export", "sub.kept", "kept.session", "--remove", *asking(office, "alice")]
    status, out, err = office.run(*export)
    assert (status, out, "is connected" in one_line(err)) == (1, "", True)
    reader.send_signal(signal.SIGINT)
    assert reader.wait(WAIT_S) == 130
    assert office.run("pub", "Trade", "n=1", *office.as_user("bob", "hunter2"))[0] == 0
    done = "kept.session has 1 subscription, 1 notification, and the session is removed\n"
    assert office.run(*export) == (0, done, "")
    assert "sub.kept" not in {row["session"] for row in listed(office, "sessions", ALICE)}
    load = ["session", "import", "kept.session", *asking(office, "alice")]
    assert office.run(*load) == (0, f"the session sub.kept of {ALICE} has 1 subscription, 1 notification\n", "")
    reader = office.start("sub", "Trade", "--keep", "kept", *office.as_user())
    assert read_line(reader) == "2 Trade n=1", "numbers of the user's sessions are never used again"
