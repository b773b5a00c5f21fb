"""A domain of processes that a server joins and one leaves, while events of both models are published (SPEC J-11)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.cli.fleet import SERVERS, Fleet, gone
from tests.cli.shell import ended, read_line, read_ready
from tests.cli.test_session_moves import BETWEEN, Publishing, numbers

pytestmark = pytest.mark.integration

SUBJECTS = ("News", "Talk")


@pytest.fixture
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three servers with channels of both models; Talk is decentralised."""
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), 'groups = 4\nchannels.Talk.model = "decentralised"\n')
    try:
        yield fleet
    finally:
        fleet.close()


def restart(fleet: Fleet, *servers: str) -> None:
    """Restart servers at the same time."""
    pids = [fleet.pid(each) for each in servers]
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    assert gone(pids)
    assert {read_line(fleet.supervisor).split()[1] for _ in servers} == set(servers)


def test_j11_a_server_joins_and_one_leaves_and_every_event_arrives_once(fleet: Fleet) -> None:
    bob = fleet.visiting("s1", "bob", "hunter2")
    readers = [fleet.start("sub", each, "--json", *bob, "--state-dir", f"sub-{each}") for each in SUBJECTS]
    for reader in readers:
        assert "subscribed to" in read_ready(reader)
    alice = fleet.visiting("s3")
    publishers = [
        fleet.start("pub", each, "-", "--json", *alice, "--state-dir", f"pub-{each}", stdin=-1) for each in SUBJECTS
    ]
    publishing, received = [Publishing(each) for each in publishers], [list[int](), list[int]()]

    def go_on() -> None:
        for one, reader in zip(received, readers, strict=True):
            one += numbers(reader, BETWEEN)

    status, out, _ = fleet.run("domain", "add", "s4", "--json", *fleet.operator()[-2:])
    place = json.loads(out)["sip"]
    assert read_line(fleet.supervisor) == f"ready s4 sip:{place}", "'domain up' starts it"
    go_on()
    for each in SERVERS:
        restart(fleet, each)
    go_on()
    status, out, err = fleet.run("domain", "status", *fleet.operator())
    assert (status, err, out.splitlines()[-1].split()[:2]) == (0, "", ["s4", "3/3"]), out
    status, out, err = fleet.run("domain", "move", "News", "s4", *fleet.operator())
    assert status == 0, (out, err)
    fleet.places["s4"] = place
    added = fleet.pid("s4")
    late = fleet.start("sub", "News", "--json", *fleet.visiting("s4", "bob", "hunter2"), "--state-dir", "late")
    assert "subscribed to News" in read_ready(late)
    status, out, err = fleet.run("domain", "remove", "s4", *fleet.operator())
    assert (status, err) == (1, "")
    assert "users can still come to s4; run 'wanderbus domain drain s4'" in out
    status, out, err = fleet.run("domain", "remove", "s4", "--drain", *fleet.operator())
    assert status == 0, (out, err)
    assert "s4 has left the domain of" in out
    assert fleet.run("domain", "remove", "s4", *fleet.operator())[0] == 0
    assert gone([added])
    go_on()
    first = json.loads(read_line(late))["attributes"]["n"]
    last = publishing[0].published - 1
    assert [first, *numbers(late, last - first)] == list(range(first, last + 1)), "it goes on without s4"
    late.terminate()
    ended(late)
    restart(fleet, *SERVERS)
    go_on()
    for one, found, reader in zip(publishing, received, readers, strict=True):
        one.stop()
        found += numbers(reader, one.published - len(found))
        assert found == list(range(one.published))
    status, out, _ = fleet.run("domain", "status", *fleet.operator())
    assert (status, [line.split()[0] for line in out.splitlines()[-3:]]) == (0, ["s1", "s2", "s3"]), out
    for process in (*publishers, *readers):
        process.terminate()
        ended(process)
