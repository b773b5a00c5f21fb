"""``pub`` and ``sub`` while the leader of an ordered channel is silent: one line, one when it goes on, and a limit."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.fleet import Fleet
from tests.cli.shell import ended, read_error

pytestmark = pytest.mark.integration


@contextmanager
def suspended(fleet: Fleet, server: str) -> Iterator[None]:
    os.kill(fleet.pid(server), signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(fleet.pid(server), signal.SIGCONT)


def test_a_reader_and_a_publisher_say_that_they_wait_and_that_they_go_on(fleet: Fleet) -> None:
    leader = fleet.leader("Departure")
    access = fleet.others(leader)[0]
    assert fleet.run("pub", "Departure", "n=0", *fleet.at(access))[0] == 0  # the servers are linked
    with suspended(fleet, leader):
        began = time.monotonic()
        reader = fleet.start("sub", "Departure", "--count", "1", *fleet.at(access))
        assert read_error(reader) == (
            "wanderbus: waiting: the server has not answered the subscription yet; in a domain, a leader may be down"
        )
        assert time.monotonic() - began < 20
        publisher = fleet.start("pub", "Departure", "n=1", *fleet.at(access, "bob", "hunter2"))
        assert f"publishes wait: {leader}, which leads their channels: " in read_error(publisher)
    assert read_error(reader).startswith("wanderbus: the server goes on, after ")
    status, out, _ = ended(publisher)
    assert (status, out.startswith("published ")) == (0, True)
    assert fleet.run("pub", "Departure", "n=2", *fleet.at(access, "bob", "hunter2"))[0] == 0
    assert ended(reader)[0] == 0


def test_a_timeout_ends_the_wait_with_a_status_of_its_own(fleet: Fleet) -> None:
    leader = fleet.leader("Departure")
    access = fleet.others(leader)[0]
    assert fleet.run("pub", "Departure", "n=0", *fleet.at(access))[0] == 0
    with suspended(fleet, leader):
        status, out, err = fleet.run("sub", "Departure", "--timeout", "3", *fleet.at(access))
        assert (status, out) == (4, "")
        assert err.splitlines()[-1] == "wanderbus: the server has not answered the subscription within 3 s"
        status, out, err = fleet.run("pub", "Departure", "n=3", "--timeout", "3", *fleet.at(access))
        assert (status, out) == (4, "")
        assert err.splitlines()[-1].endswith(
            "; the first 0 events of the input were published; 1 more event may still appear, and twice if published "
            "again"
        )
        box = ["--outbox", str(Path("box")), "--timeout", "3"]
        status, out, err = fleet.run("pub", "Departure", "n=4", *box, *fleet.at(access)[:-2])
        assert (status, out) == (4, "stored 1\n")
        assert "1 events are unpublished in box; the next 'wanderbus pub --outbox box' publishes them" in err
        assert "the server has not answered publishes within 3 s" in err.splitlines()[-1]
    status, out, err = fleet.run("pub", "--outbox", "box", *fleet.at(access)[:-2])
    assert (status, out.startswith("published 1, of which 1 were left")) == (0, True), err


def test_the_process_of_each_server_is_named(fleet: Fleet) -> None:
    lines = [read_error(fleet.supervisor) for _ in range(3)]
    for server in fleet.places:
        pid = fleet.pid(server)
        assert f"wanderbus: {server} is process {pid}; 'kill {pid}' restarts it" in lines


def test_healthy_servers_warn_of_no_turns(fleet: Fleet) -> None:
    """A burst through another server is as ordinary as one of a user: it waits for its turn, and nobody is at fault."""
    leader = fleet.leader("Departure")
    publishers = [
        fleet.start("pub", "Departure", "-", *fleet.at(server, *who), stdin=burst(fleet.directory))
        for server in fleet.others(leader)
        for who in (("alice", "secret"), ("bob", "hunter2"))
    ]
    assert [ended(each)[0] for each in publishers] == [0] * 4
    fleet.supervisor.terminate()
    assert "turn_units" not in ended(fleet.supervisor)[2]


def burst(directory: Path) -> int:
    file = directory / "burst.jsonl"
    file.write_text("".join(f'{{"n": {number}}}\n' for number in range(1_000)))
    return os.open(file, os.O_RDONLY)
