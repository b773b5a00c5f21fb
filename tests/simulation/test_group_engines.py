"""Channel groups that move while matching engines are slow, away or killed beside their servers (SPEC J-08, T-06)."""

from __future__ import annotations

import re

import pytest

from tests.simulation.group_domain import NAMES, Domain, Phone, user
from wanderbus.broker.groups.group_move import PAUSE_S
from wanderbus.broker.servers.arrivals import LEADER_REPLACED
from wanderbus.records import GroupMoved, GroupPrepared


class Town(Domain):
    """Each server has an engine and a subscriber, who is named like it; alice publishes at the third server."""

    def __init__(self) -> None:
        super().__init__(engines=NAMES)
        self.alice = self.phone("s3", user("alice"))
        self.readers: dict[str, Phone] = {}
        for name in NAMES:
            self.readers[name] = self.phone(name, user(name))
            self.readers[name].subscribe("A", "everything")
        self.wait()

    def set_away(self, name: str, *, is_away: bool = True) -> None:
        self.nodes[name].engine.is_away = is_away

    def behind(self, name: str) -> int:
        """Return how many records the engine beside a server is behind."""
        row = self.nodes[name].broker.engine.row()
        assert row is not None
        return int(row["records_behind"])

    def have_all(self) -> bool:
        """Return whether every subscriber has every event, in order."""
        expected = [f"e{number}" for number in range(1, self.events + 1)]
        return all(each.uids() == expected for each in self.readers.values())


@pytest.fixture
def town() -> Town:
    return Town()


def test_j08_nothing_of_the_next_leader_overtakes_what_waits_for_the_engine_of_the_former(town: Town) -> None:
    town.stream(town.alice, "A")
    town.wait(0.5)
    assert town.move("s2") == []
    assert town.have_all()
    assert town.accepted_at("s1")
    assert town.accepted_at("s2")


@pytest.mark.parametrize("killed", NAMES)
@pytest.mark.parametrize("step", [GroupPrepared, GroupMoved])
def test_j08_a_server_and_its_engine_are_killed_in_the_middle_of_a_move(town: Town, killed: str, step: type) -> None:
    town.stream(town.alice, "A")

    kills = list[str]()

    def kill() -> None:
        kills.append(killed)
        town.nodes[killed].engine.forget()
        town.restart(killed)

    town.when("s2", step, kill)
    town.wait(0.5)
    town.move("s2")
    town.wait(60.0)
    assert kills
    assert town.have_all()
    assert town.alice.is_settled


def test_j08_a_group_stays_if_the_engine_of_its_leader_dies_in_the_pause(town: Town) -> None:
    """The events that have waited are accepted where they were, before the engine is back."""
    town.slow("s3", "s1", 0.3)
    writer = town.phone("s1", user("carol"))
    town.world.after(0.4, lambda: town.set_away("s1"))
    for number in range(10):
        town.world.after(0.5 + number / 10, lambda: town.publish(writer, 1))
    (reason,) = town.move("s2", wait_s=PAUSE_S + 2.0)
    assert re.fullmatch(
        "channel group 0 stays at s1: s1: its matching engine is [0-9]+ records? behind, and away: the engine is away; "
        "events have waited for 1 s",
        reason,
    )
    assert (len(town.accepted_at("s1")), writer.is_settled) == (10, True)
    town.set_away("s1", is_away=False)
    town.wait()
    assert town.have_all()


@pytest.mark.parametrize("name", NAMES)
def test_j08_a_group_stays_while_an_engine_is_away_at_any_server(town: Town, name: str) -> None:
    town.set_away(name)
    town.publish(town.alice)
    town.wait(1.0)
    (reason,) = town.move("s2", wait_s=1.0)
    assert reason == (
        f"channel group 0 stays at s1: {name}: its matching engine is {town.behind(name)} records behind, and away: "
        "the engine is away"
    )
    town.publish(town.alice)
    town.wait(1.0)
    assert town.alice.is_settled
    town.set_away(name, is_away=False)
    town.wait()
    assert town.move("s2") == []
    assert town.have_all()


def test_j08_a_group_stays_while_the_engine_of_another_server_is_too_slow(town: Town) -> None:
    engine = town.nodes["s3"].engine
    engine.events_max, engine.delay_s_max = 1, 4.0
    town.publish(town.alice, 100)
    town.wait(1.0)
    (reason,) = town.move("s2")
    assert re.fullmatch("channel group 0 stays at s1: s3: its matching engine is [0-9]+ records? behind", reason)


def test_j08_a_leader_by_force_says_where_a_gap_ends_once_its_engine_knows(town: Town) -> None:
    """Another subscription has counted there all the time, and gets one of the events before that."""
    other = town.phone("s1", user("other"))
    other.subscribe("*", 'Uid == "e2"')
    town.wait()
    town.nodes["s1"].crash(lose_rows=False)
    town.wait()
    assert town.move("s2", at="s2", force=True) == []
    town.set_away("s2")
    town.publish(town.alice)
    town.wait()
    town.nodes["s1"].start()
    town.wait()
    town.set_away("s2", is_away=False)
    town.wait()
    town.publish(town.alice)
    town.wait()
    assert town.leaders() == [("s2", 3)] * 3
    assert town.readers["s1"].uids() == [LEADER_REPLACED, "e4", "e5", "e6"]
    assert other.uids() == [LEADER_REPLACED]


def test_j08_a_former_leader_leads_again_once_its_engine_has_named_its_late_events(town: Town) -> None:
    town.links.partition({"s3": 1})
    writer = town.phone("s1", user("carol"))
    town.set_away("s1")
    town.publish(writer)
    town.wait(1.0)
    town.nodes["s1"].crash(lose_rows=False)
    town.links.partition({})
    town.wait()
    assert town.move("s2", at="s2", force=True) == []
    town.nodes["s1"].start()
    town.wait()
    (reason,) = town.move("s1", at="s2")
    assert "s1: its matching engine" in reason
    town.set_away("s1", is_away=False)
    town.wait()
    assert town.move("s1", at="s2") == []
    town.publish(writer)
    town.wait()
    assert town.leaders() == [("s1", 4)] * 3
    assert town.readers["s3"].uids() == [LEADER_REPLACED, "e4", "e5", "e6"]


def test_j08_a_former_leader_replaces_the_next_one_once_its_engine_has_named_its_late_events(town: Town) -> None:
    """The force is refused at once: nobody knows before what waits for the next leader, which is gone."""
    town.set_away("s1")
    town.publish(town.phone("s1", user("carol")), 100)
    town.wait(1.0)
    town.nodes["s1"].crash(lose_rows=False)
    town.wait()
    assert town.move("s2", at="s2", force=True) == []
    town.nodes["s1"].start()
    town.wait()
    town.nodes["s2"].crash(lose_rows=False)
    engine = town.nodes["s1"].engine
    engine.events_max, engine.delay_s_max, engine.is_away = 1, 2.0, False
    town.wait(5.0)
    (reason,) = town.move("s1", at="s1", wait_s=1.0, force=True)
    assert re.fullmatch("channel group 0 stays at s2: s1: its matching engine is [0-9]+ records? behind", reason)
    town.wait(400.0)
    (reason,) = town.move("s1", at="s1", wait_s=1.0, force=True)
    assert "events that it accepted as an earlier leader still wait for s2; let another server lead" in reason


def test_j08_a_gap_about_a_former_leader_follows_its_events(town: Town) -> None:
    """They wait for the engine of the subscriber's server when the leader is replaced."""
    town.set_away("s3")
    town.publish(town.alice)
    town.wait()
    town.nodes["s1"].crash(lose_rows=False)
    town.wait()
    (reason,) = town.move("s2", at="s2", force=True)
    assert "s3: its matching engine" in reason
    town.set_away("s3", is_away=False)
    town.wait()
    assert town.move("s2", at="s2", force=True) == []
    assert town.readers["s3"].uids() == ["e1", "e2", "e3", LEADER_REPLACED]
