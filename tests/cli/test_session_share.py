"""``wanderbus session share``: two applications of a user read one session (SPEC J-05)."""

from __future__ import annotations

import json
import signal

import pytest

from tests.cli.shell import WAIT_S, Shell, one_line, read_line, read_ready
from tests.cli.test_operations import listed
from tests.cli.test_operations import office as office

pytestmark = pytest.mark.integration


def test_j05_two_applications_share_a_session_and_each_gets_everything(office: Shell) -> None:
    first = office.start("sub", "Trade", "--keep", "kept", *office.as_user())
    office.subscribed()
    second = office.start("session", "share", "sub.kept", "--json", *office.as_user())
    assert json.loads(read_ready(second))["status"] == "ready"
    bob = office.as_user("bob", "hunter2")
    assert office.run("pub", "Trade", "n=1", *bob)[0] == 0
    assert read_line(first) == "1 Trade n=1"
    assert json.loads(read_line(second))["attributes"] == {"n": 1}
    second.send_signal(signal.SIGINT)
    assert second.wait(WAIT_S) == 130
    (row,) = [row for row in listed(office, "sessions") if row["session"] == "sub.kept"]
    assert (len(row["devices"]), row["subscriptions"]) == (1, 1), "the other application goes on"
    assert office.run("pub", "Trade", "n=2", *bob)[0] == 0
    assert read_line(first) == "2 Trade n=2"
    status, out, err = office.run("session", "share", "none", *office.as_user())
    assert (status, out, "has no session 'none'" in one_line(err)) == (1, "", True)
    assert "none" not in {row["session"] for row in listed(office, "sessions")}
