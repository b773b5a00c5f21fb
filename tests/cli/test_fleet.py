"""A domain of server processes: supervision, and what its operators see (SPEC J-01, K-02)."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli.fleet import SERVERS, Fleet, gone
from tests.cli.shell import WAIT_S, Shell, ended, one_line, read_line, read_ready
from wanderbus.cli.application import run
from wanderbus.runtime.files.domain_file import create_domain, read_domain

pytestmark = pytest.mark.integration

EVENTS = 60
Output = pytest.CaptureFixture[str]


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


def test_a_port_that_is_taken_ends_the_domain_with_one_line(shell: Shell) -> None:
    file = create_domain(shell.directory / "other", "localhost", 1, 0)
    place = read_domain(file).settings.servers["s1"].sip or ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", int(place.rpartition(":")[2])))
        status, out, err = shell.run("domain", "up", "--users", "users", "--data-dir", "other")
    assert (status, out) == (1, "")
    line = one_line(err)
    assert line.startswith(
        f"server s1 ended with exit status 2: UDP port {place} cannot be used: Address already in use"
    )
    assert line.endswith("; servers.s1 in other/domain.toml has its addresses")


def test_only_one_command_runs_the_servers_of_a_directory(fleet: Fleet) -> None:
    status, out, err = fleet.run(*fleet.command())
    assert (status, out) == (1, "")
    assert one_line(err).startswith("the domain in fleet runs already, by another 'domain up'; end that one")


def test_k02_a_killed_leader_is_started_again_and_loses_nothing_that_was_acknowledged(fleet: Fleet) -> None:
    leader = fleet.leader("Departure")
    publishers, subscribers = fleet.others(leader)
    reader = fleet.start("sub", "Departure", "n >= 0", "--json", "--count", str(EVENTS), *fleet.at(subscribers))
    assert "subscribed to Departure" in read_ready(reader)
    publisher = fleet.start(
        "pub", "Departure", "-", "--ids", "--json", *fleet.at(publishers, "bob", "hunter2"), stdin=-1
    )
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
    status, out, err = ended(publisher)
    assert (status, out) == (0, "")
    assert all("publishes wait" in line for line in err.splitlines()), "the agent may say what it waits for"
    status, out, err = ended(reader)
    assert (status, err) == (0, "")
    received = [json.loads(line) for line in out.splitlines()]
    assert [each["attributes"]["n"] for each in received] == list(range(EVENTS))
    assert [each["id"] for each in received] == acknowledged
    assert read_line(fleet.supervisor) == f"ready {leader} sip:{fleet.places[leader]}"


def asked(capsys: Output, *command: str) -> tuple[int, str, str]:
    """Return exit status, standard output and standard error of a command that runs in this process."""
    capsys.readouterr()
    status = run(list(command))
    return status, *capsys.readouterr()


def rows_of(capsys: Output, fleet: Fleet, *command: str) -> tuple[int, dict[str, Any]]:
    """Return the exit status of a command, and its rows by server."""
    status, out, _ = asked(capsys, *command, *fleet.operator(), "--json")
    return status, {row["server"]: row for row in map(json.loads, out.splitlines())}


def test_status_shows_all_links_and_a_server_that_does_not_answer(fleet: Fleet, capsys: Output) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        status, rows = rows_of(capsys, fleet, "domain", "status")
        pairs = [(name, other["server"], other) for name, row in rows.items() for other in row["others"]]
        if all(other["is_linked"] and other["is_settled"] and other["is_linked_here"] for _, _, other in pairs):
            break
        assert time.monotonic() < deadline
    assert status == 0
    assert [pair[:2] for pair in pairs] == [(one, other) for one in SERVERS for other in fleet.others(one)]
    os.kill(fleet.pid("s2"), signal.SIGSTOP)
    try:
        began = time.monotonic()
        status, out, err = asked(capsys, "domain", "status", *fleet.operator(), "--timeout", "1.5")
    finally:
        os.kill(fleet.pid("s2"), signal.SIGCONT)
    assert time.monotonic() - began < WAIT_S / 2
    assert (status, err) == (1, "")
    first, *_, heading, stopped, one, other = out.splitlines()
    assert first.startswith(f"s2 at {fleet.places['s2']} gives no answer: cannot reach the broker")
    assert heading.split()[:2] == ["server", "links"]
    assert stopped.split()[:3] == ["s2", "no", "answer"]
    assert {line.split()[0] for line in (one, other)} == {"s1", "s3"}


def test_only_an_operator_is_answered(fleet: Fleet, capsys: Output) -> None:
    bob = ("--user", "sip:bob@localhost", "--password", "hunter2")
    status, out, err = asked(capsys, "domain", "status", *bob, *fleet.operator()[4:])
    assert (status, err, out.count("it refuses: ")) == (1, "", 3)


def test_topology_shows_what_each_server_sends_to_which_other(fleet: Fleet, capsys: Output) -> None:
    leader = fleet.leader("Stock")
    subscriber, other = fleet.others(leader)
    reader = fleet.start("sub", "Stock", "Price > 10", *fleet.at(subscriber, "bob", "hunter2"))
    assert "subscribed to Stock" in read_ready(reader)
    status, rows = rows_of(capsys, fleet, "topology", "--svg", str(fleet.directory / "domain.svg"))
    assert status == 0
    assert rows[leader]["sends"][subscriber] == [{"subject": "Stock", "expression": "Price > 10"}]
    assert rows[leader]["sends"][other] == []
    assert sum(len(row["groups"]) for row in rows.values()) == 64
    assert rows[subscriber]["subscriptions"] >= 1
    picture = (fleet.directory / "domain.svg").read_text()
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert f"{leader} → {subscriber}  Stock: Price &gt; 10" in picture
    status, out, err = asked(capsys, "topology", *fleet.operator())
    assert (status, err) == (0, "")
    assert f"  sends to {subscriber}: Stock: Price > 10" in out.splitlines()
    reader.terminate()
    ended(reader)


def test_trace_shows_the_way_of_an_event_and_publishes_nothing(fleet: Fleet, capsys: Output) -> None:
    leader = fleet.leader("Weather")
    subscriber, other = fleet.others(leader)
    reader = fleet.start("sub", "Weather", "Wind > 10", "--json", *fleet.at(subscriber, "bob", "hunter2"))
    assert "subscribed to Weather" in read_ready(reader)
    command = ("trace", "Weather", "Wind=12", *fleet.operator(), "--at", other)
    status, out, err = asked(capsys, *command, "--json")
    assert (status, err) == (0, "")
    channel, first, *rest = map(json.loads, out.splitlines())
    assert (channel["leader"], channel["epoch"], channel["at"]) == (leader, 1, other)
    assert (first["server"], first["is_leader"], first["hops"], first["subscriptions"]) == (leader, True, 1, [])
    stops = {stop["server"]: stop for stop in rest}
    assert (stops[other]["is_reached"], stops[other]["hops"]) == (False, None)
    assert (stops[subscriber]["is_reached"], stops[subscriber]["hops"]) == (True, 2)
    assert [(each["subject"], each["expression"]) for each in stops[subscriber]["wanted"]] == [("Weather", "Wind > 10")]
    (outcome,) = stops[subscriber]["subscriptions"]
    assert (outcome["user"], outcome["verdict"]) == ("sip:bob@localhost", "delivered")
    status, out, _ = asked(capsys, "trace", "Weather", "Wind=5", *command[3:], "--all")
    assert (status, "filtered: Wind > 10 is false: Wind is 5" in out) == (0, True)
    assert out.startswith(f"Weather: channel group {channel['group']}, leader {leader} under epoch 1, ordered\n")
    reader.terminate()
    assert ended(reader)[1] == ""


def test_trace_needs_known_words(fleet: Fleet, capsys: Output) -> None:
    status, _, err = asked(capsys, "trace", "Weather", "--at", "s9", *fleet.operator())
    assert (status, one_line(err)) == (2, "--at: the domain has no server 's9' (expected s1 or s2 or s3)")
    status, _, err = asked(capsys, "trace", "Weather", "Wind", *fleet.operator())
    assert (status, one_line(err)) == (2, "'Wind' is not NAME=VALUE")


def test_k03_the_history_of_a_channel_is_listed_and_replayed_at_any_server(fleet: Fleet, capsys: Output) -> None:
    leader = fleet.leader("Train")
    elsewhere = fleet.at(fleet.others(leader)[0], "bob", "hunter2")
    lines = "".join(f'{{"n": {value}, "text": "{"x" * 150}"}}\n' for value in range(5))
    status, out, err = fleet.run("pub", "Train", "-", "--ids", "--json", *elsewhere, input=lines)
    assert (status, err) == (0, "")
    numbers = [int(json.loads(line)["id"].rpartition("-")[2]) for line in out.splitlines()]
    visitor = elsewhere[:6]
    for place in (visitor, [*visitor[:5], fleet.places[leader]]):
        status, out, err = asked(capsys, "channel", "history", "Train", "--json", *place)
        assert (status, err) == (0, "")
        rows = [json.loads(line) for line in out.splitlines()]
        assert [(row["number"], row["attributes"]["n"]) for row in rows] == list(zip(numbers, range(5), strict=True))
        assert {(row["user"], row["subject"], row["epoch"]) for row in rows} == {("sip:bob@localhost", "Train", 1)}
    status, out, err = asked(capsys, "channel", "history", "Train", "--last", "1", *visitor)
    assert (status, err, len(out.splitlines())) == (0, "", 1)
    assert out.startswith(f"1:{numbers[4]} 20")
    assert " sip:bob@localhost " in out
    assert out.endswith(" bytes: Train n=4 text=" + "x" * 105 + "...\n"), out
    middle = ("--from", str(numbers[1]), "--to", str(numbers[2]), *visitor)
    status, out, err = asked(capsys, "channel", "replay", "Train", *middle)
    assert (status, err) == (0, "")
    assert out.splitlines() == [f"{numbers[value]} Train n={value} text={'x' * 150}" for value in (1, 2)]
    status, out, err = asked(capsys, "channel", "replay", "Train", "--json", *middle)
    events = [json.loads(line) for line in out.splitlines()]
    assert [(event["position"]["number"], event["attributes"]["n"], event["history"]) for event in events] == [
        (numbers[1], 1, True),
        (numbers[2], 2, True),
    ]


def test_t05_a_subscription_since_an_event_is_the_same_at_any_server(fleet: Fleet) -> None:
    leader = fleet.leader("Tram")
    elsewhere = fleet.at(fleet.others(leader)[0], "bob", "hunter2")
    status, out, err = fleet.run(
        "pub", "Tram", "-", "--ids", "--json", *elsewhere, input="".join(f'{{"n": {n}}}\n' for n in range(6))
    )
    assert (status, err) == (0, "")
    second = json.loads(out.splitlines()[1])["id"]
    for place in (elsewhere, fleet.at(leader)):
        command = ("sub", "Tram", "n < 5", "--since", second, "--count", "3", "--json")
        status, out, err = fleet.run(*command, *place)
        assert status == 0, err
        assert [json.loads(line)["attributes"]["n"] for line in out.splitlines()] == [2, 3, 4]
    status, out, err = fleet.run("sub", "*", "--since", "earliest", *elsewhere)
    assert (status, out) == (1, "")
    assert "in the logs of s1 and s2 and s3, without a common order; subscribe to one subject, or live" in one_line(err)


def test_u01_trace_and_explain_follow_a_session_to_its_next_server(fleet: Fleet, capsys: Output) -> None:
    leader = fleet.leader("Ferry")
    first, target = fleet.others(leader)
    own, publisher = fleet.at(first, "bob", "hunter2"), fleet.at(leader)
    reading = ("sub", "Ferry", "n > 0", "--keep", "ferry", "--json", "--count", "1", *own)
    reader = fleet.start(*reading)
    assert "subscribed to Ferry" in read_ready(reader)
    ids = []
    for n in ("1", "2"):
        status, out, err = fleet.run("pub", "Ferry", f"n={n}", "--ids", "--json", *publisher)
        assert (status, err) == (0, "")
        ids.append(json.loads(out)["id"])
        if n == "1":
            assert ended(reader)[0] == 0
    moving = ("session", "move", "sip:bob@localhost", "--session", "sub.ferry", "--to", target)
    assert asked(capsys, *moving, *fleet.operator())[::2] == (0, "")
    status, out, err = asked(capsys, "trace", "Ferry", "n=3", *fleet.operator(), "--at", leader, "--json")
    _, *stops = map(json.loads, out.splitlines())
    assert [(each["server"], len(each["subscriptions"])) for each in stops if each["subscriptions"]] == [(target, 1)]
    assert {each["server"]: each["is_reached"] for each in stops} == {leader: True, target: True, first: False}
    data = str(fleet.directory / "fleet")
    for outcome, servers in (("queued", [target]), ("delivered", [target])):
        status, out, err = asked(capsys, "explain", ids[1], "ferry", "--data-dir", data, "--json")
        assert (status, err) == (0, "")
        found = json.loads(out)
        assert (found["outcome"], found["servers"]) == (outcome, servers), found["reason"]
        if outcome == "queued":
            reader = fleet.start(*reading)
            assert json.loads(ended(reader)[1].splitlines()[-1])["attributes"]["n"] == 2
