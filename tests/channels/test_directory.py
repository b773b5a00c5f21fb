"""Leaders of channel groups and their epochs (SPEC J-07, J-08)."""

from __future__ import annotations

import re
from functools import partial

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.lines import CountedText, lines_of
from wanderbus.channels.directory import Directory, Leader, LeaderTable, first_table
from wanderbus.channels.groups import GROUPS, ChannelGroups
from wanderbus.errors import ConfigurationError, Refused

KEY = b"key"
names = st.sampled_from([f"server{number}" for number in range(8)])
clusters = st.sets(names, min_size=1)


def test_j07_a_lookup_names_group_leader_and_epoch() -> None:
    table = LeaderTable(3, ("s1", "s2"), tuple(Leader("s2", number + 1) for number in range(GROUPS)))
    assert Directory(ChannelGroups(KEY, pins={"Stock": 5}), table).lookup("Stock") == (5, "s2", 6)


def lines_of_lookups(types: int) -> tuple[int, ...]:
    """Return the work to look up a pinned type, a child and another one in a directory that knows so many types."""
    names = [CountedText(f"type {number}") for number in range(types)]
    pins: dict[str, int] = {name: number % GROUPS for number, name in enumerate(names[: types // 2])}
    parents: dict[str, str] = dict.fromkeys(names[types // 2 :], names[0])
    groups = ChannelGroups(KEY, pins=pins, parents=parents)
    directory = Directory(groups, first_table(GROUPS, ["s1", "s2"], KEY))
    for number in range(min(types, 1_000)):
        directory.lookup(f"looked up before {number}")
    lookups = names[types // 2 - 1], names[-1], "another"
    return tuple(lines_of(partial(directory.lookup, each), most=10_000) for each in lookups)


def test_j07_a_lookup_takes_the_same_work_among_10_and_among_100_000_types() -> None:
    assert lines_of_lookups(100_000) == lines_of_lookups(10)


@given(clusters, names)
def test_j08_if_a_server_leaves_its_groups_move_and_no_others(servers: set[str], leaving: str) -> None:
    before = first_table(GROUPS, servers, KEY)
    if not (rest := servers - {leaving}):
        with pytest.raises(ConfigurationError, match="at least one resolution server"):
            before.reassigned(rest, KEY)
        return
    after = before.reassigned(rest, KEY)
    moved = {group for group in range(GROUPS) if before.leaders[group] != after.leaders[group]}
    assert moved == set(before.groups_of(leaving))
    assert all(after.leaders[group].epoch == 2 for group in moved)
    assert after.reassigned(servers, KEY).servers == before.servers


@given(clusters, names)
def test_j08_if_a_server_joins_groups_move_to_it_alone(servers: set[str], joining: str) -> None:
    before = first_table(GROUPS, servers - {joining} or {"another"}, KEY)
    after = before.reassigned({*before.servers, joining}, KEY)
    moved = {group for group in range(GROUPS) if before.leaders[group] != after.leaders[group]}
    assert moved == set(after.groups_of(joining))
    assert [each.server for each in after.leaders] == [
        each.server for each in first_table(GROUPS, after.servers, KEY).leaders
    ]


def test_groups_are_spread_over_the_servers() -> None:
    table = first_table(GROUPS, ["s1", "s2", "s3", "s4"], KEY)
    assert all(5 <= len(table.groups_of(server)) <= 30 for server in table.servers)
    assert sum(len(table.groups_of(server)) for server in table.servers) == GROUPS


def test_relocated_groups_stay_when_others_join_or_leave() -> None:
    table = first_table(4, ["s1", "s2"], KEY)
    target = "s2" if table.leaders[0].server == "s1" else "s1"
    table = table.relocated(0, target, epoch=1)
    same = table.reassigned(["s2", "s1"], KEY)
    assert same is table
    grown = table.reassigned(["s1", "s2", "s3"], KEY)
    assert grown.leaders[0] in (Leader(target, 2), Leader("s3", 3))
    assert grown.reassigned(["s1", "s2"], KEY).leaders[0].server in ("s1", "s2")


def test_j08_the_second_relocation_from_an_epoch_is_refused() -> None:
    table = LeaderTable(1, ("s1", "s2", "s3"), (Leader("s1", 1), Leader("s1", 1)))
    first = table.relocated(0, "s2", epoch=1)
    assert (first.version, first.leaders) == (2, (Leader("s2", 2), Leader("s1", 1)))
    with pytest.raises(Refused, match="has epoch 2 by now, not 1; look it up again"):
        first.relocated(0, "s3", epoch=1)
    assert first.relocated(0, "s1", epoch=2).leaders[0] == Leader("s1", 3)


@pytest.mark.parametrize(
    ("group", "server", "error"),
    [
        (0, "s1", "channel group 0 is led by s1 already"),
        (2, "s2", "there is no channel group 2 (expected 0 to 1)"),
        (-1, "s2", "there is no channel group -1 (expected 0 to 1)"),
        (0, "s9", "there is no resolution server 's9' (expected s1 or s2)"),
    ],
)
def test_impossible_relocations_are_refused(group: int, server: str, error: str) -> None:
    table = LeaderTable(1, ("s1", "s2"), (Leader("s1", 1), Leader("s1", 1)))
    with pytest.raises(Refused, match=re.escape(error)):
        table.relocated(group, server, epoch=1)


@pytest.mark.parametrize(
    ("offered", "error"),
    [
        (LeaderTable(4, ("s1",), (Leader("s1", 2),)), "version 4 of the table says s1, 2; restore the directory"),
        (LeaderTable(3, ("s1", "s2"), (Leader("s2", 3),)), "version 3 of the table says s2, 3; restore the directory"),
        (LeaderTable(9, ("s1",), (Leader("s1", 3), Leader("s1", 1))), "has 2 channel groups, not 1"),
    ],
)
def test_tables_with_passed_epochs_are_refused(offered: LeaderTable, error: str) -> None:
    with pytest.raises(Refused, match=error):
        LeaderTable(3, ("s1",), (Leader("s1", 3),)).adopted(offered)


class Domain(RuleBasedStateMachine):
    """A directory that changes its table, and an access server that learns of the tables late, repeated, in any order.

    The truth is the history of all tables: the leader of each group and epoch.
    """

    @initialize(servers=clusters)
    def begin(self, servers: set[str]) -> None:
        self.tables = [first_table(8, servers, KEY)]
        self.known = self.tables[0]
        self.leader_of: dict[tuple[int, int], str] = {}

    @rule(group=st.integers(0, 7), server=names, behind=st.integers(0, 2))
    def relocate(self, group: int, server: str, behind: int) -> None:
        present = self.tables[-1]
        seen = self.tables[-1 - min(behind, len(self.tables) - 1)].leaders[group]
        try:
            changed = present.relocated(group, server, epoch=seen.epoch)
        except Refused:
            is_possible = server in present.servers and server != present.leaders[group].server
            assert seen != present.leaders[group] or not is_possible
            return
        assert seen == present.leaders[group]
        assert changed.leaders[group] == Leader(server, seen.epoch + 1)
        self.tables.append(changed)

    @rule(servers=clusters)
    def change_servers(self, servers: set[str]) -> None:
        self.tables.append(self.tables[-1].reassigned(servers, KEY))

    @rule(place=st.integers(0, 100))
    def learn(self, place: int) -> None:
        offered = msgspec.msgpack.decode(
            msgspec.msgpack.encode(self.tables[place % len(self.tables)]), type=LeaderTable
        )
        before, self.known = self.known, self.known.adopted(offered)
        for group, (old, new) in enumerate(zip(before.leaders, self.known.leaders, strict=True)):
            assert new.epoch >= old.epoch
            assert self.known.accepts(group, new.epoch)
            assert self.known.accepts(group, new.epoch + 1)
            assert not self.known.accepts(group, new.epoch - 1)
        assert self.known.version == max(before.version, offered.version)

    @invariant()
    def an_epoch_has_one_leader_which_is_a_server(self) -> None:
        for table in getattr(self, "tables", ())[-1:]:
            for group, leader in enumerate(table.leaders):
                assert self.leader_of.setdefault((group, leader.epoch), leader.server) == leader.server
                assert leader.server in table.servers


TestDomain = Domain.TestCase
TestDomain.settings = settings(max_examples=40, stateful_step_count=30)
