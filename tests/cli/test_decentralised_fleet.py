"""Decentralised channels that require advertisements, as operators see them (SPEC K-04, K-07)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.fleet import Fleet
from tests.cli.shell import ended, one_line, read_line, read_ready

pytestmark = pytest.mark.integration

SETTINGS = 'model = "decentralised"\nadvertisements = "required"\n'


def subject_of(fleet: Fleet) -> str:
    """A subject whose channel another server than the publisher's leads."""
    return next(each for each in map("Departure{}".format, range(100)) if fleet.leader(each) != "s1")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), SETTINGS)
    try:
        subject = subject_of(fleet)
        reader = fleet.start("sub", subject, "DepDelay > 30", *fleet.at("s3", "bob", "hunter2"))
        assert f"subscribed to {subject}" in read_ready(reader)
        publisher = fleet.start("pub", subject, "-", "--advertise", "--ids", "--json", *fleet.at("s1"), stdin=-1)
        assert publisher.stdin is not None
        publisher.stdin.write('{"DepDelay": 1}\n')
        publisher.stdin.flush()
        assert "id" in json.loads(read_line(publisher))
        yield fleet
        publisher.stdin.close()
        publisher.stdin = None
        assert ended(publisher) == (0, "", "")
    finally:
        fleet.close()


def rows(fleet: Fleet, *command: str) -> list[dict[str, Any]]:
    status, out, err = fleet.run(*command, "--json")
    assert (status, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def test_advertisements_are_listed_for_operators(fleet: Fleet) -> None:
    (row,) = rows(fleet, "advertisements", *fleet.visiting("s1"))
    assert (row["user"], row["subject"], row["expression"], row["counts"]) == (
        "sip:alice@localhost",
        subject_of(fleet),
        "",
        True,
    )
    status, out, _ = fleet.run("advertisements", *fleet.visiting("s1"))
    assert (status, out.splitlines()[0].split()) == (0, ["user", "device", "subject", "filter", "counts"])
    status, out, _ = fleet.run("advertisements", *fleet.visiting("s2"))
    assert (status, out) == (0, "No device at this server has an advertisement.\n")
    status, _, err = fleet.run("advertisements", *fleet.visiting("s1", "bob", "hunter2"))
    assert (status, "all advertisements need the role 'operator'" in one_line(err)) == (1, True)


def test_topology_shows_filters_at_the_servers_of_advertisers_alone(fleet: Fleet) -> None:
    sends = {row["server"]: row["sends"] for row in rows(fleet, "topology", *fleet.operator())}
    assert sends["s1"]["s3"] == [{"subject": subject_of(fleet), "expression": "DepDelay > 30"}]
    assert not any(several for server in ("s2", "s3") for several in sends[server].values())


@pytest.mark.parametrize(("delay", "hops"), [(42, 1), (7, None)])
def test_trace_goes_from_the_publishers_server_to_those_that_want_the_event(
    fleet: Fleet, delay: int, hops: int | None
) -> None:
    command = ("trace", subject_of(fleet), f"DepDelay={delay}", "--at", "s1", *fleet.operator())
    channel, first, *rest = rows(fleet, *command)
    assert (channel["refusal"], channel["advertised_by"]) == (None, ["sip:alice@localhost"])
    assert (first["server"], first["hops"]) == ("s1", 0)
    assert {stop["server"]: stop["hops"] for stop in rest} == {"s2": None, "s3": hops}
    assert sum(len(stop["wanted"]) for stop in rest) == (hops or 0)


def test_trace_says_that_an_event_would_be_refused(fleet: Fleet) -> None:
    status, out, err = fleet.run("trace", subject_of(fleet), "DepDelay=42", "--at", "s2", *fleet.operator())
    assert (status, err) == (0, "")
    _, line = out.splitlines()
    assert line == (
        "published at s2: refused, because no advertisement there matches it; see 'wanderbus advertisements'"
    )
