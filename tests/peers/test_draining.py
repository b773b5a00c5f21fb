"""A draining server moves its sessions to other servers, and goes on after a restart (SPEC L-06, J-08)."""

from __future__ import annotations

import pytest

from tests.broker.desk import ALICE
from tests.peers.handover_town import NAMES, Town
from wanderbus.peers.handover import arriving_sessions, draining
from wanderbus.peers.handover.draining import LOOK_S, RETRY_S, USED_MOVES
from wanderbus.peers.handover.leaving_sessions import RETURN_S_MAX
from wanderbus.peers.handover.placement import server_for
from wanderbus.records import DrainingChanged, SessionFenced, encode_record
from wanderbus.subscription import PATTERN

USERS = [f"sip:user{number}@example.org" for number in range(20)]


def set_draining(town: Town, name: str, *, is_draining: bool = True) -> None:
    """Let a server find at its next start that it drains, or does not."""
    server = town[name]
    server.log.append(encode_record(DrainingChanged(at_us=server.wall_us, is_draining=is_draining)))
    town.crash(name)


def owners(town: Town, user: str = ALICE) -> list[str]:
    """Return the servers that have the session of a user."""
    key = f"{user}/default"
    sessions = {name: town[name].broker.state.sessions.get(key) for name in NAMES}
    return [name for name, session in sessions.items() if session is not None and not session.is_fenced]


def later(town: Town, seconds: float) -> None:
    """Let time pass at all servers, and everything arrive."""
    for name in NAMES:
        town[name].later(seconds)
    town.run()


def crowded() -> Town:
    """Three servers; the first has sessions of many users."""
    town = Town()
    for user in USERS:
        town["south"].subscribed(town["south"].attach(user, "phone"), "N > 0")
    return town


def test_l06_a_draining_server_moves_all_sessions_and_spreads_them() -> None:
    town = crowded()
    set_draining(town, "south")
    town.run()
    later(town, LOOK_S)
    places = {user: owners(town, user) for user in (ALICE, *USERS)}
    assert all(len(each) == 1 and each != ["south"] for each in places.values()), places
    assert {each for (each,) in places.values()} == {"north", "east"}
    assert places == {user: [server_for(user, ("north", "east"))] for user in places}
    assert {each.cause for each in town["south"].written(SessionFenced)} == {"drain"}


def test_l06_a_drain_moves_more_sessions_at_a_time_while_the_targets_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "MOVES_MIN", 3)
    town = crowded()
    set_draining(town, "south")
    assert sum(sender == "south" for sender, _, _ in town.sent) == 3
    most = 0
    while town.deliver():
        most = max(most, sum(row["leaving"] for row in town["south"].handovers.rows().values() if "leaving" in row))
    assert most > 3
    assert sum(owners(town, user) == ["south"] for user in USERS) == 0, "each that arrives makes room for another one"


def test_l06_a_server_that_takes_sessions_again_keeps_the_others() -> None:
    town = crowded()
    set_draining(town, "south")
    town.sent.clear()
    set_draining(town, "south", is_draining=False)
    town.run()
    later(town, LOOK_S)
    assert all(owners(town, user) == ["south"] for user in USERS)


def test_l06_sessions_that_come_meanwhile_move_too() -> None:
    town = Town()
    set_draining(town, "south")
    town.run()
    south = town["south"]
    south.subscribed(south.attach(USERS[0], "phone"), "N > 0")
    later(town, LOOK_S)
    assert owners(town, USERS[0]) != ["south"]


def test_l06_a_draining_server_takes_no_session_and_is_left_alone_for_a_while() -> None:
    town = Town()
    target = server_for(ALICE, ("north", "east"))
    assert target is not None
    set_draining(town, target)
    set_draining(town, "south")
    town.run()
    assert owners(town) == ["south"], "the first choice drains"
    later(town, LOOK_S)
    assert owners(town) == ["south"]
    later(town, RETRY_S + LOOK_S)
    assert owners(town) not in (["south"], [target]), "the session goes to the other one"


def test_l06_a_session_that_cannot_move_is_tried_again_and_delays_no_other() -> None:
    town = crowded()
    for name in NAMES:  # the others refuse a session that they have
        town[name].subscribed(town[name].attach("sip:pat@example.org", "phone"), "N > 0")
    set_draining(town, "south")
    town.run()
    assert "south" in owners(town, "sip:pat@example.org")
    assert all(owners(town, user) != ["south"] for user in USERS)
    before = len(town["south"].ended)
    later(town, RETRY_S + LOOK_S)
    assert len(town["south"].ended) == before + 1
    assert "the session is here" in town["south"].ended[-1].reason


def test_l06_a_session_with_a_pattern_moves_too() -> None:
    town = Town()
    south = town["south"]
    link = south.attach("sip:pat@example.org", "phone")
    south.subscribed(link, "pattern p match A: a then B: b within 1 hour emit c", subject="c", language=PATTERN)
    set_draining(town, "south")
    town.run()
    (owner,) = owners(town, "sip:pat@example.org")
    assert owner != "south"
    assert len(town[owner].broker.state.patterns) == 1


def test_l06_a_server_of_an_earlier_version_gets_no_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving_sessions, "VERSION", 1)
    town = Town()
    south = town["south"]
    link = south.attach("sip:pat@example.org", "phone")
    south.subscribed(link, "pattern p match A: a then B: b within 1 hour emit c", subject="c", language=PATTERN)
    set_draining(town, "south")
    town.run()
    assert owners(town, "sip:pat@example.org") == ["south"]
    reasons = {each.user: each.reason for each in town["south"].ended}
    assert "has an earlier version, which takes no pattern" in reasons["sip:pat@example.org"]


def used(count: int = 3) -> tuple[Town, list[str]]:
    """A crowded town that has begun to drain, and ``count`` users whose devices are connected."""
    town = crowded()
    set_draining(town, "south", is_draining=False)
    south, connected = town["south"], USERS[7 : 7 + count]
    for user in connected:
        south.attach(user, "phone", epoch=2)
    south.give()
    switch(town, is_draining=True)
    return town, connected


def switch(town: Town, *, is_draining: bool) -> None:
    """Let the first server drain from now on, or no more."""
    servers = town["south"].broker.state.servers
    servers["south"].is_draining = is_draining
    servers.put("south", servers["south"])
    town["south"].hand()


def away(town: Town, connected: list[str]) -> list[str]:
    """Return those of these users whose sessions have left."""
    return [user for user in connected if owners(town, user) != ["south"]]


def test_l06_sessions_with_a_connected_device_leave_first_and_wait_for_devices_to_come_back() -> None:
    town, connected = used()
    town.run()
    (first,) = away(town, connected)
    assert all(owners(town, user) == ["south"] for user in USERS if user != first), "its device is on its way"
    (server,) = owners(town, first)
    town[server].locate("10.2.0.7", "phone", first)
    town.run()
    assert len(away(town, connected)) == 2
    assert all(owners(town, user) == ["south"] for user in USERS if user not in connected)


def test_l06_no_more_sessions_are_prepared_than_leave_soon() -> None:
    town, connected = used(8)
    town.run()
    assert len(away(town, connected)) == 1
    assert sum(len(town[name].broker.state.awaited) for name in NAMES) == USED_MOVES


def test_l06_devices_that_do_not_come_back_delay_a_drain_for_a_moment_each() -> None:
    town, connected = used()
    town.run()
    for count in (2, 3):
        later(town, RETURN_S_MAX)
        assert len(away(town, connected)) == count
        assert all(owners(town, user) == ["south"] for user in USERS if user not in connected)
    later(town, RETURN_S_MAX)
    assert all(owners(town, user) != ["south"] for user in USERS)


def test_l06_a_drain_that_is_cancelled_holds_no_session_back() -> None:
    town, connected = used()
    town.run()
    switch(town, is_draining=False)
    town.run()
    assert len(away(town, connected)) == 3, "they were on their way"
    assert not any(owners(town, user) != ["south"] for user in USERS if user not in connected)


def test_l06_a_target_reports_the_first_device_of_each_of_the_last_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving_sessions, "AWAITED_USERS_MAX", 2)
    town, users = crowded(), USERS[:3]
    for user in users:
        town["south"].move("north", user=user)
        town.run()
    town.trace.clear()
    for user in (*users, *users):
        town["north"].locate("10.2.0.7", "phone", user)
    town.run()
    assert town.trace == [("north", "south", "MoveTaken")] * 2
