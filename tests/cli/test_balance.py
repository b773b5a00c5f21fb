"""Moves by load and by plan, and a restart of all servers, beside a stream of events (SPEC J-08, T-10, S-02)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.cli.fleet import SERVERS, Fleet
from tests.cli.shell import WAIT_S, ended, read_ready
from tests.cli.test_session_moves import BETWEEN, Publishing, numbers
from wanderbus.planning import encode_plan, make_plan
from wanderbus.planning.plan_file import PlacedSubject, Plan
from wanderbus.runtime.files.domain_file import read_domain

pytestmark = pytest.mark.integration


class Streams:
    """Two streams of events in different channel groups that ``s1`` leads, and a reader of the first one."""

    def __init__(self, fleet: Fleet) -> None:
        domain = read_domain(fleet.directory / "fleet" / "domain.toml")
        led: dict[int, str] = {}
        for number in range(1000):
            channel = domain.channel(f"T{number}")
            if channel.leader == "s1":
                led.setdefault(channel.group, channel.subject)
        self.groups = dict(list(led.items())[:2])
        self.subjects = list(self.groups.values())
        self.reader = fleet.start("sub", self.subjects[0], "--json", *fleet.at("s2", "bob", "hunter2"))
        assert "subscribed to" in read_ready(self.reader)
        self._publishers = [
            fleet.start("pub", each, "-", "--json", *fleet.at(server), stdin=subprocess.PIPE)
            for each, server in zip(self.subjects, ("s2", "s3"), strict=True)
        ]
        self._publishing = [Publishing(each) for each in self._publishers]
        self._received = list[int]()

    def read(self) -> None:
        """Wait for the next events."""
        self._received += numbers(self.reader, BETWEEN)

    def end(self) -> None:
        """End the streams; every event of the first one has arrived once and in order."""
        for each in self._publishing:
            each.stop()
        self._received += numbers(self.reader, self._publishing[0].published - len(self._received))
        assert self._received == list(range(self._publishing[0].published))
        for publisher in (*self._publishers, self.reader):
            publisher.terminate()
            ended(publisher)


@pytest.fixture(scope="module")
def streams(fleet: Fleet) -> Iterator[Streams]:
    """Streams that go on during all tests."""
    streams = Streams(fleet)
    yield streams
    streams.end()


def leaders(fleet: Fleet) -> dict[int, str]:
    """Return the leaders of the groups that have moved."""
    status, out, _ = fleet.run("domain", "status", "--json", *fleet.operator())
    assert status == 0
    rows = [group for line in out.splitlines() for group in json.loads(line)["groups"]]
    return {row["group"]: row["leader"] for row in sorted(rows, key=lambda row: int(row["epoch"]))}


def plan_file(fleet: Fleet, server_of: dict[str, int]) -> str:
    """Write a plan for these subjects; return its path."""
    whole = make_plan(dict.fromkeys(server_of, 100), len(SERVERS))
    subjects = {subject: PlacedSubject(server, 100) for subject, server in server_of.items()}
    path = fleet.directory / "plan.json"
    path.write_bytes(encode_plan(Plan(whole.form, whole.servers, subjects, whole.figures)))
    return str(path)


def test_j08_t10_groups_move_by_load_and_by_plan_while_events_are_published(fleet: Fleet, streams: Streams) -> None:
    streams.read()
    words = ("domain", "rebalance", "--over", "1", "--min-load", "0", *fleet.operator())
    status, out, _ = fleet.run(*words, "--json")
    load, *moves, end = map(json.loads, out.splitlines())
    assert (status, end["failed"], end["moves"]) == (0, 0, len(moves))
    assert load["ratio"] > load["expected_ratio"]
    assert any(move.get("group") in streams.groups and move["from"] == "s1" for move in moves)
    streams.read()
    first, second = streams.groups
    plan = plan_file(fleet, {streams.subjects[0]: 3, streams.subjects[1]: 2})
    before = leaders(fleet)
    status, out, _ = fleet.run("domain", "apply", plan, "--dry-run", *fleet.operator())
    assert (status, "would move channel group" in out, leaders(fleet)) == (0, True, before)
    status, out, _ = fleet.run("domain", "apply", plan, *fleet.operator())
    assert (status, out.splitlines()[-1].endswith("done, 0 failed")) == (0, True)
    assert [leaders(fleet)[group] for group in (first, second)] == ["s3", "s2"]
    status, out, _ = fleet.run("domain", "apply", plan, *fleet.operator())
    assert (status, out.splitlines()[-1]) == (0, "every channel group is where the plan wants it")
    streams.read()


def test_s02_servers_that_were_not_restarted_yet_are_restarted_beside_a_stream(fleet: Fleet, streams: Streams) -> None:
    before = datetime.now(UTC).isoformat()
    pids = {server: fleet.pid(server) for server in SERVERS}
    for server in ("s1", "s3"):
        os.kill(pids[server], signal.SIGTERM)
    deadline = time.monotonic() + WAIT_S
    while fleet.run("domain", "status", *fleet.operator())[0]:
        assert time.monotonic() < deadline
    streams.read()
    restarted = {server: fleet.pid(server) for server in ("s1", "s3")}
    file = fleet.operator()[-2:]
    status, out, err = fleet.run("domain", "upgrade", "--started-before", before, "--json", *file)
    server, end = map(json.loads, out.splitlines())
    assert (status, server["server"], end["restarted"]) == (0, "s2", 1)
    assert server["sessions_moved"] >= 1
    assert [json.loads(line)["message"] for line in err.splitlines() if '"done"' in line] == [
        "s1 was started later",
        "s3 was started later",
    ]
    assert fleet.pid("s2") != pids["s2"]
    assert {each: fleet.pid(each) for each in restarted} == restarted
    status, out, _ = fleet.run("domain", "drain", "s2", "--cancel", "--json", *fleet.operator())
    assert (status, json.loads(out)["is_draining"]) == (0, False)
    streams.read()


def test_a_command_that_cannot_restart_a_server_ends_the_upgrade_and_says_how_to_go_on(fleet: Fleet) -> None:
    status, out, err = fleet.run("domain", "upgrade", "--restart", "exit 3 # {server}", *fleet.operator())
    assert (status, out) == (1, "")
    *_, hint, error = err.splitlines()
    assert "run the command again: " in hint
    assert error == "wanderbus: the command that restarts s1 has ended with exit status 3: exit 3 # s1"
    assert fleet.run("domain", "drain", "s1", "--cancel", *fleet.operator())[0] == 0


def test_a_plan_for_other_servers_is_refused(fleet: Fleet) -> None:
    path = fleet.directory / "two.json"
    path.write_bytes(encode_plan(make_plan({"Trade": 1}, 2)))
    status, _, err = fleet.run("domain", "apply", str(path), *fleet.operator())
    assert (status, "is for 2 servers, and 3 of the domain lead channels" in err) == (2, True)
