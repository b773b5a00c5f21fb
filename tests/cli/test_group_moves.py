"""Events that are published while their channel group moves between the leaders of a domain (SPEC J-08)."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.fleet import Fleet
from tests.cli.shell import WAIT_S, ended, read_line, read_ready
from tests.cli.test_session_moves import BETWEEN, Publishing, numbers

pytestmark = pytest.mark.integration


def test_j08_every_event_arrives_once_and_in_order_while_the_group_moves(fleet: Fleet) -> None:
    reader = fleet.start("sub", "News", "--json", *fleet.at("s1", "bob", "hunter2"))
    assert "subscribed to News" in read_ready(reader)
    publisher = fleet.start("pub", "News", "-", "--json", *fleet.at("s2"), stdin=-1)
    publishing, received = Publishing(publisher), list[int]()
    group, epoch = 0, 1
    for server in ("s1", "s2", "s3", "s1"):
        received += numbers(reader, BETWEEN)
        status, out, err = fleet.run("domain", "move", "News", server, "--json", *fleet.operator())
        assert (status, err) == (0, "")
        moved = json.loads(out)
        assert (moved["server"], moved["epoch"] >= epoch) == (server, True)
        group, epoch = moved["group"], moved["epoch"]
    assert epoch > 3
    received += numbers(reader, BETWEEN)
    publishing.stop()
    received += numbers(reader, publishing.published - len(received))
    assert received == list(range(publishing.published))
    status, out, _ = fleet.run("domain", "status", *fleet.operator())
    assert (status, out.splitlines()[0]) == (0, f"s1 leads channel group {group} under epoch {epoch}")
    file = fleet.operator()[-2:]
    status, out, err = fleet.run("domain", "channels", "News", *file)
    assert (status, f"group {group}, leader s1, epoch {epoch}," in out, err) == (0, True, "")
    rows = [json.loads(line) for line in fleet.run("domain", "servers", "--json", *file)[1].splitlines()]
    assert (sum(row["groups"] for row in rows), {row["leaders_from"] for row in rows}) == (64, {"servers"})
    check_history(fleet, publishing.published, epoch)
    check_past(fleet, publishing.published)
    for each in (publisher, reader):
        each.terminate()
        ended(each)


def check_history(fleet: Fleet, count: int, epoch: int) -> None:
    """Check that the history of the channel has all events in order, and that a part of it may begin anywhere."""

    def history(*options: str) -> list[dict[str, Any]]:
        status, out, err = fleet.run("channel", "history", "News", "--json", *options, *fleet.visiting("s2"))
        assert (status, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]

    rows = history()
    assert [row["attributes"]["n"] for row in rows] == list(range(count))
    places = [(row["epoch"], row["number"]) for row in rows]
    assert (places, places[-1][0]) == (sorted(places), epoch)
    ends = next(at for at, (led, _) in enumerate(places) if led == epoch)
    last = min(ends + 2, count - 1)  # the reader may have been behind, so that few events came after the last move
    middle = ["{}:{}".format(*places[at]) for at in (ends - 3, last)]
    assert history("--from", middle[0], "--to", middle[1]) == rows[ends - 3 : last + 1]
    assert history("--last", str(count - ends + 2)) == rows[ends - 2 :]
    gone, *others = history("--from", "0")
    assert (gone["led_before"], others) == ("s3", rows[ends:])


def check_past(fleet: Fleet, count: int) -> None:
    """Check that subscriptions read the past at any server, from the first leader on and behind one of its events."""
    status, out, _ = fleet.run("channel", "history", "News", "--json", *fleet.visiting("s3"))
    third = json.loads(out.splitlines()[2])["id"]
    for server, point, first in (("s1", "earliest", 0), ("s3", third, 3)):
        wanted = ("--since", point, "--count", str(count - first), "--json", *fleet.at(server, "bob", "hunter2"))
        status, out, err = fleet.run("sub", "News", f"n < {count}", *wanted)
        assert status == 0, err
        assert [json.loads(line)["attributes"]["n"] for line in out.splitlines()] == list(range(first, count))


def test_a_group_that_cannot_move_stays_and_the_command_says_why(fleet: Fleet) -> None:
    assert fleet.run("domain", "move", "News", "s9", *fleet.operator())[0] == 2
    status, _, err = fleet.run("domain", "move", "9999", "s1", *fleet.operator())
    assert (status, "there is no channel group 9999 (expected 0 to 63)" in err) == (1, True)


def until(
    ask: Callable[[], tuple[int, str, str]], is_enough: Callable[[tuple[int, str, str]], bool]
) -> tuple[int, str, str]:
    """Run a command again and again until its result is enough; return that."""
    end = time.monotonic() + WAIT_S
    while not is_enough(found := ask()):
        assert time.monotonic() < end, found
        time.sleep(0.2)
    return found


def test_j08_a_leader_that_is_gone_is_replaced_by_force(fleet: Fleet) -> None:
    """It is suspended, and learns when its links are back that another server leads."""
    leader = fleet.leader("Alarm")
    server, other = fleet.others(leader)
    reader = fleet.start("sub", "Alarm", "--json", *fleet.at(other, "bob", "hunter2"))
    assert "subscribed to Alarm" in read_ready(reader)
    force = ("domain", "move", "Alarm", server, "--force", *fleet.operator())
    status, _, err = fleet.run(*force)
    assert (status, "move the group without force" in err) == (1, True)
    process = fleet.pid(leader)
    os.kill(process, signal.SIGSTOP)
    try:
        until(lambda: fleet.run(*force), lambda found: found[0] == 0)  # its links fail first
        assert fleet.run("pub", "Alarm", "n=1", *fleet.at(server))[0] == 0
    finally:
        os.kill(process, signal.SIGCONT)
    assert "leader_replaced" in read_line(reader)
    assert numbers(reader, 1) == [1]
    _, out, _ = until(
        lambda: fleet.run("domain", "status", *fleet.operator()), lambda found: found[1].count("2/2") == 3
    )
    assert f", by force instead of {leader}\n" in out
    assert fleet.run("pub", "Alarm", "n=2", *fleet.at(leader))[0] == 0
    assert numbers(reader, 1) == [2]
    reader.terminate()
    ended(reader)
