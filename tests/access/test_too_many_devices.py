"""A user who opens sessions with ever new device names is refused at the bound; others are not affected (SPEC E-02)."""

from __future__ import annotations

import pytest

from tests.client.town import Phone, Town, connected
from wanderbus import protocol
from wanderbus.access.device_session import DeviceSession
from wanderbus.access.session_table import SessionTable
from wanderbus.broker.sessions.visitor_limit import limit_reached
from wanderbus.client.machine.messages import AskBroker, ConnectRefused
from wanderbus.parameters.broker import BrokerConfig

REASON = limit_reached("user_devices_max", 2).reason


@pytest.fixture
def town() -> Town:
    return Town(broker=BrokerConfig(user_devices_max=2))


def refused(town: Town, number: int) -> list[tuple[int | None, str]]:
    return [(each.status, each.reason) for each in Phone(town, number=number).connect().all_of(ConnectRefused)]


def sessions_of(town: Town, user: str) -> int:
    return sum(session.user == user for session in town.access._sessions.by_id.values())


def members(town: Town) -> list[str]:
    sessions = town.access.broker.state.sessions.values()
    return [device for session in sessions if "alice" in session.user for device in session.devices]


def test_a_device_too_many_is_refused_its_session_with_the_bound(town: Town) -> None:
    phone = connected(town, number=1)
    connected(town, number=2)
    assert refused(town, 3) == [(488, REASON)]
    assert (sessions_of(town, phone.uri), len(town.access._user_agent.sessions)) == (2, 2)
    assert len(town.access.broker.state.devices) == 2
    connected(town, "bob", number=4)


def test_a_known_device_may_return_at_the_limit(town: Town) -> None:
    phone, laptop = connected(town, number=1), connected(town, number=2)
    phone.node.kill()
    again = Phone(town, number=1, epoch=9).connect()
    assert again.statuses == ["CONNECTED"]
    town.server.crash(lose_rows=False)
    town.server.start()
    town.run(5.0)
    assert (again.statuses[-1], laptop.statuses[-1]) == ("CONNECTED", "CONNECTED")


def test_a_session_that_nobody_ended_gives_way_if_its_device_has_left(town: Town) -> None:
    """Else a user would be refused for ever, or could have as many as the broker has room for."""
    for number in range(1, 6):
        phone = connected(town, number=number)
        phone.node.feed([AskBroker(protocol.Leave(1_000))])
        town.run(0.1)
        phone.node.kill()
    assert (len(town.access.broker.state.devices), sessions_of(town, phone.uri)) == (0, 2)


def test_a_device_that_is_away_gives_way_with_its_session(town: Town) -> None:
    bob = connected(town, "bob", number=9)
    for number in range(1, 6):
        phone = connected(town, number=number)
        phone.node.kill()
        bob.publish(number)
        town.run(600.0)
        assert len(members(town)) <= 2
        assert sessions_of(town, phone.uri) <= 3, "that of the device which has just given way is ended by the next one"


@pytest.mark.parametrize("config", [BrokerConfig(user_devices_max=2), BrokerConfig(devices_max=2)])
def test_devices_that_are_gone_unnoticed_are_found_by_the_refusal_of_another_one(config: BrokerConfig) -> None:
    """An idle device stays CONNECTED until something is sent to it (SPEC G-02); nothing is sent here."""
    town = Town(broker=config)
    for number in (1, 2):
        connected(town, number=number).node.kill()
    town.run(3_600.0)
    assert Phone(town, number=3).connect().all_of(ConnectRefused)
    town.run(600.0)
    assert Phone(town, number=4).connect().statuses == ["CONNECTED"]
    assert len(members(town)) <= 2


def test_sessions_are_counted_by_user() -> None:
    table = SessionTable()
    for session, user, device in (("1", "a", "x"), ("2", "a", "y"), ("3", "b", "x"), ("4", "a", "y")):
        table.add(DeviceSession(session, user, device, _NoChannel()))  # type: ignore[arg-type]
    counts = [table.others(*of) for of in (("a", "z"), ("a", "x"), ("b", "x"), ("c", "x"))]
    assert counts == [2, 1, 0, 0]
    table.remove(table.by_id["2"])
    assert table.others("a", "z") == 2, "another session is that device's"
    for session in ("1", "4"):
        table.remove(table.by_id[session])
    assert (table.others("a", "z"), dict(table._of_user)) == (0, {"b": 1})


class _NoChannel:
    local = 0
