"""Events that are published while a session moves between the servers of a domain (SPEC L-04, L-06)."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cli.fleet import Fleet
from tests.cli.shell import WAIT_S, ended, one_line, read_line, read_ready

pytestmark = pytest.mark.integration

PAUSE_S = 0.01
BETWEEN = 20
"""Events that arrive between two moves."""


class Publishing:
    """Publishes numbered events until it is stopped."""

    def __init__(self, publisher: subprocess.Popen[str]) -> None:
        self._publisher = publisher
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()
        self.published = 0

    def _publish(self) -> None:
        assert self._publisher.stdin is not None
        for number in itertools.count():
            if self._is_over.wait(PAUSE_S):
                return
            self._publisher.stdin.write(f'{{"n": {number}}}\n')
            self._publisher.stdin.flush()
            self.published = number + 1

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(WAIT_S)


def numbers(reader: subprocess.Popen[str], count: int) -> list[int]:
    """Return the numbers of the next events that a reader prints."""
    return [json.loads(read_line(reader))["attributes"]["n"] for _ in range(count)]


def test_l06_every_event_arrives_once_and_in_order_while_the_session_moves(fleet: Fleet) -> None:
    reader = fleet.start("sub", "News", "--json", *fleet.at("s1", "bob", "hunter2"))
    assert "subscribed to News" in read_ready(reader)
    publisher = fleet.start("pub", "News", "-", "--json", *fleet.at("s2"), stdin=-1)
    publishing, received = Publishing(publisher), list[int]()
    for server in ("s2", "s3", "s1"):
        received += numbers(reader, BETWEEN)
        moved = fleet.run("session", "move", "sip:bob@localhost", "--to", server, *fleet.operator())
        assert moved == (0, f"the session sub of sip:bob@localhost is at {server} now\n", "")
        status, out, err = fleet.run("session", "list", "--json", *fleet.operator())
        rows = {row["user"]: row for row in map(json.loads, out.splitlines())}
        assert (status, err, rows["sip:bob@localhost"]["server"]) == (0, "", server)
    received += numbers(reader, BETWEEN)
    publishing.stop()
    received += numbers(reader, publishing.published - len(received))
    assert received == list(range(publishing.published))
    assert publisher.stdin is not None
    publisher.stdin.close()
    publisher.stdin = None
    assert ended(publisher)[::2] == (0, "")
    reader.terminate()
    _, out, err = ended(reader)
    assert out == ""
    said = [json.loads(line) for line in err.splitlines()]
    assert [line["status"] for line in said] == ["disconnected", "connected"] * 3
    assert all("has moved to another server" in line["message"] for line in said[::2])


def test_l06_a_device_follows_its_own_session_and_not_another_of_its_user(fleet: Fleet) -> None:
    bob = fleet.at("s1", "bob", "hunter2")
    readers = [fleet.start("sub", "Trade", *more, "--json", *bob) for more in (("--keep", "kept"), ())]
    assert all("subscribed to Trade" in read_ready(each) for each in readers)
    words = ("sip:bob@localhost", "--session", "sub.kept", "--to", "s2")
    assert fleet.run("session", "move", *words, *fleet.operator())[0] == 0
    assert fleet.run("pub", "Trade", "n=1", *fleet.at("s3"))[0] == 0
    assert [numbers(each, 1) for each in readers] == [[1]] * 2
    for each, is_turned_away in zip(readers, (True, False), strict=True):
        each.terminate()
        status = [json.loads(line)["status"] for line in ended(each)[2].splitlines()]
        assert status == ["disconnected", "connected"] * is_turned_away


def test_l06_the_session_of_a_user_with_a_role_moves_as_any_other(fleet: Fleet) -> None:
    reader = fleet.start("sub", "Trade", "--json", *fleet.at("s1"))
    assert "subscribed to Trade" in read_ready(reader)
    words = ("sip:alice@localhost", "--session", "sub", "--to", "s2")
    moved = fleet.run("session", "move", *words, *fleet.operator())
    assert moved == (0, "the session sub of sip:alice@localhost is at s2 now\n", "")
    assert fleet.run("pub", "Trade", "n=1", *fleet.at("s3", "bob", "hunter2"))[0] == 0
    assert numbers(reader, 1) == [1]
    reader.terminate()
    ended(reader)


def test_l07_a_transfer_is_asked_of_the_server_that_has_the_session(fleet: Fleet) -> None:
    """The user has another session at another server."""
    sub, bob = ["sub", "Tick", "--keep", "ticker"], fleet.at("s1", "bob", "hunter2")
    phone, other = fleet.start(*sub, *bob), fleet.start("sub", "News", *fleet.at("s3", "bob", "hunter2"))
    assert all("subscribed to" in read_ready(each) for each in (phone, other))
    program = [str(Path(sys.executable).parent / "wanderbus"), *sub, *fleet.at("s2", "bob", "hunter2")]
    options = ["sub.ticker", "--as", "desk", *fleet.visiting("s2", "bob", "hunter2")]
    watcher = fleet.start("session", "dormant", *options, "--", *program)
    assert "waiting as desk" in read_ready(watcher)
    transfer = ["session", "transfer", "sub.ticker", "--of", "sip:bob@localhost"]
    status, out, err = fleet.run(*transfer, "--to", "desk", *fleet.visiting("s3"))
    assert (status, out, "has no session 'sub.ticker' here" in one_line(err)) == (1, "", True)
    as_bob = ("--user", "sip:bob@localhost", "--password", "hunter2", *fleet.operator()[4:])
    status, out, err = fleet.run(*transfer, "--to", "car", *as_bob)
    assert (status, out, "(waiting: desk)" in one_line(err)) == (1, "", True)
    done = "the session sub.ticker of sip:bob@localhost is read at desk now\n"
    assert fleet.run(*transfer, "--to", "desk", *fleet.operator()) == (0, done, "")
    assert ended(phone)[0] == 0
    for each in (watcher, other):
        each.terminate()
        ended(each)
    status, out, err = fleet.run(*[*transfer[:2], "none", *transfer[3:]], "--to", "desk", *as_bob)
    assert (status, out, "no server has a session 'none'" in one_line(err)) == (1, "", True)


def test_only_an_operator_sees_where_sessions_are(fleet: Fleet) -> None:
    bob = ("--user", "sip:bob@localhost", "--password", "hunter2", *fleet.operator()[4:])
    status, out, err = fleet.run("session", "list", *bob)
    assert (status, err, out.count("it refuses: ")) == (1, "", 3)
    status, out, err = fleet.run("session", "move", "sip:bob@localhost", "--to", "s2", *bob)
    assert (status, out, "need the role 'operator'" in one_line(err)) == (1, "", True)
