"""The audit of all logs: walks of a session, and faults of notifications that the logs have too few or too many of."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.log_audit import audit_logs, between_domains, summary
from tests.broker.desk import ALICE, BOB, Desk
from tests.log_files import write_records
from tests.peers.handover_town import NAMES, Town
from wanderbus.broker.sessions.handover_messages import MoveSession
from wanderbus.event import Event
from wanderbus.protocol import Publish
from wanderbus.records import decode_record


def walked(town: Town, directory: Path) -> dict[str, Path]:
    """Write the logs of a town after alice's session, with two notifications that wait, went from south to north."""
    for server in town.servers.values():
        server.later(1.0)
    town["south"].hand(MoveSession(ALICE, "default", "north", "drain"))
    town.run()
    for server in town.servers.values():
        server.later(0.25)
    north = town["north"]
    north.take(north.attach(ALICE, "phone"), 2)
    for name in NAMES:
        write_records(directory / name, [decode_record(each) for each in town[name].log])
    return {name: directory / name for name in NAMES}


def connected() -> Town:
    """Return a town in which alice's device is connected."""
    town = Town()
    town["south"].take(town["south"].attach(ALICE, "phone"), 1)
    return town


def test_a_walk_is_followed_from_log_to_log(tmp_path: Path) -> None:
    found = audit_logs(walked(connected(), tmp_path), {ALICE: 2})
    assert found.faults == []
    assert found.published_us == {}, "these events are no rows"
    assert found.homes[ALICE] == "south"
    [walk] = found.walks
    assert (walk["user"], walk["source"], walk["target"], walk["cause"]) == (ALICE, "south", "north", "drain")
    assert walk["gap_us"] == 250_000
    assert summary(found.walks) == {
        "moved": 1,
        "causes": {"drain": 1},
        "gap_ms": {"p50": 250.0, "p95": 250.0, "max": 250.0},
    }


@pytest.mark.parametrize("due", [1, 3])
def test_the_number_of_notifications_is_that_which_is_due(tmp_path: Path, due: int) -> None:
    [fault] = audit_logs(walked(connected(), tmp_path), {ALICE: due}).faults
    assert fault == f"the logs have 2 notifications of {ALICE}, {due} are due"


def test_a_session_that_has_not_arrived_is_a_fault(tmp_path: Path) -> None:
    logs = walked(connected(), tmp_path)
    del logs["north"]
    faults = audit_logs(logs, {ALICE: 2}).faults
    assert faults == [
        f"the logs have 1 matches of {ALICE} as handed over",
        f"the session of {ALICE} never came from south to north",
    ]


def test_the_times_of_publishing_are_those_of_the_publisher_if_it_says_so(tmp_path: Path) -> None:
    desk = Desk()
    bob = desk.attach(BOB, "desk")
    for row, published_us in ((1, None), (2, 7)):
        desk.send(bob, Publish(row, Event("Departure", {"Row": row}, published_us=published_us)))
    write_records(tmp_path / "south", [decode_record(each) for each in desk.log])
    found = audit_logs({"south": tmp_path / "south"}, {})
    assert found.published_us == {("Departure", 1): desk.broker.state.wall_us, ("Departure", 2): 7}


def test_servers_of_several_domains_have_the_names_that_all_know(tmp_path: Path) -> None:
    logs = {f"alpha/{name}": log for name, log in walked(connected(), tmp_path).items()}
    found = audit_logs(logs, {ALICE: 2})
    assert found.faults == []
    assert [(walk["source"], walk["target"]) for walk in found.walks] == [("alpha/south", "alpha/north")]
    assert between_domains(found.walks) == []
    elsewhere = [{**walk, "target": "beta/north"} for walk in found.walks]
    assert between_domains(elsewhere) == elsewhere
