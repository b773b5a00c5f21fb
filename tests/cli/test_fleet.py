"""A domain of server processes: supervision, and what its operators see (SPEC J-01, K-02)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.cli.fleet import Fleet, gone
from tests.cli.shell import ended, one_line, read_error, read_line

pytestmark = pytest.mark.integration

EVENTS = 60


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    try:
        yield fleet
        pids = fleet.running()
        assert len(pids) == 3
        fleet.supervisor.send_signal(signal.SIGINT)
        status, out, _ = ended(fleet.supervisor)
        assert (status, out) == (0, "")
        assert gone(pids)
    finally:
        fleet.close()


def test_only_one_command_runs_the_servers_of_a_directory(fleet: Fleet) -> None:
    status, out, err = fleet.run(*fleet.command())
    assert (status, out) == (1, "")
    assert one_line(err).startswith("the domain in fleet runs already, by another 'domain up'; end that one")


def test_k02_a_killed_leader_is_started_again_and_loses_nothing_that_was_acknowledged(fleet: Fleet) -> None:
    leader = fleet.leader("Departure")
    publishers, subscribers = fleet.others(leader)
    reader = fleet.start("sub", "Departure", "n >= 0", "--json", "--count", str(EVENTS), *fleet.at(subscribers))
    assert "subscribed to Departure" in read_error(reader)
    publisher = fleet.start("pub", "Departure", "-", "--json", *fleet.at(publishers, "bob", "hunter2"), stdin=-1)
    assert publisher.stdin is not None
    acknowledged = []
    for value in range(EVENTS):
        publisher.stdin.write(f'{{"n": {value}}}\n')
        if value == EVENTS // 2:
            publisher.stdin.flush()
            acknowledged = [json.loads(read_line(publisher))["id"] for _ in range(EVENTS // 4)]
            os.kill(fleet.pid(leader), signal.SIGKILL)
    publisher.stdin.close()
    publisher.stdin = None
    acknowledged += [json.loads(read_line(publisher))["id"] for _ in range(EVENTS - len(acknowledged))]
    assert ended(publisher) == (0, "", "")
    status, out, err = ended(reader)
    assert (status, err) == (0, "")
    received = [json.loads(line) for line in out.splitlines()]
    assert [each["attributes"]["n"] for each in received] == list(range(EVENTS))
    assert [each["id"] for each in received] == acknowledged
    assert read_line(fleet.supervisor) == f"ready {leader} sip:{fleet.places[leader]}"
