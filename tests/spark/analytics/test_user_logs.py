"""The fold over several logs counts a match that moved once, as the server does that has its session (SPEC T-08)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from harness.user_entries import entries_of, followed
from tests.broker.desk import ALICE, BOB
from tests.log_files import write_records
from tests.peers.handover_town import KEY, NAMES, Server, Town
from tests.spark.analytics.test_user_fold import counters, magnitudes, own_counters
from tests.spark.domain_logs import fill
from wanderbus.broker.sessions.handover_messages import MoveSession
from wanderbus.pipeline.analytics import GoldTables, analyse, lake_tables, user_logs
from wanderbus.pipeline.analytics.handovers import Handover
from wanderbus.pipeline.analytics.user_fold import Fate, FoldEntry, Taking
from wanderbus.pipeline.analytics.user_logs import UserLogs
from wanderbus.pipeline.history import versions_of
from wanderbus.pipeline.lake_offsets import OFFSETS_A_LAKE, OFFSETS_A_LOG, base_below, base_of
from wanderbus.records import AnyRecord, GroupMoved, GroupPrepared, decode_record

DEVICES = ("phone", "laptop")
MINUTE_US = 60_000_000


def folded(town: Town, names: Sequence[str] = NAMES) -> tuple[list[Fate | Taking], list[Handover], UserLogs]:
    """Return what Alice's entries in several logs settle, and the handovers."""
    return followed(ALICE, {name: [decode_record(each) for each in town[name].log] for name in names})


class Walk:
    """Alice's session walks between three servers at random, while events come and are acknowledged."""

    def __init__(self, seed: int, *, apart_us: int = 0) -> None:
        self.random = random.Random(seed)
        self.town = Town()
        self.moves = 0
        for place, name in enumerate(NAMES):
            self.town[name].offset_us = place * apart_us
            self.town.crash(name)
        self.bob = {name: self.town[name].attach(BOB, "tower") for name in NAMES}
        self.links: dict[str, int] = {}
        self.numbers = 10

    @property
    def owner(self) -> Server:
        (owner,) = (each for each in self.town.servers.values() if each.has_session)
        return owner

    def go(self, steps: int) -> Walk:
        """Take some steps."""
        for _ in range(steps):
            for server in self.town.servers.values():
                server.later(self.random.choice((0.001, 0.2, 3.0)))
            self.random.choice((self._publish, self._publish, self._publish, self._attach, self._take, self._move))()
            self.town.run()
        return self

    def _publish(self) -> None:
        self.numbers += 1
        self.owner.publish(self.bob[self.owner.name], self.numbers)

    def _attach(self) -> None:
        device = self.random.choice(DEVICES)
        if device in self.links:
            self.owner.close(self.links.pop(device))
        else:
            self.links[device] = self.owner.attach(ALICE, device)

    def _take(self) -> None:
        if self.links:
            link = self.links[self.random.choice(list(self.links))]
            next_number = self.owner.broker.state.sessions[KEY].next
            self.owner.take(link, self.random.randrange(max(1, next_number - 4), next_number))

    def _move(self) -> None:
        others = [name for name in NAMES if name != self.owner.name]
        self.owner.hand(MoveSession(ALICE, "default", self.random.choice(others), "drain"))
        self.links.clear()
        self.moves += 1


@pytest.mark.parametrize("apart_us", [0, MINUTE_US, -MINUTE_US // 4], ids=["same clock", "ahead", "behind"])
def test_t08_a_match_that_moved_is_counted_once_as_its_last_owner_does(apart_us: int) -> None:
    for seed in range(8):
        walk = Walk(seed, apart_us=apart_us).go(60)
        found, handovers, logs = folded(walk.town)
        row = walk.owner.broker.state.sessions[KEY]
        own = own_counters(row)
        counted = counters(found, "default", {})
        del own["queued_max"], counted["queued_max"]
        assert counted == own, f"seed {seed}"
        away = [each for fold in logs.folds for each in fold.times.absences if each.to_us is not None]
        assert magnitudes(each.to_us - each.from_us for each in away if each.to_us is not None) == row.absences
        assert walk.moves == len(handovers) > 2
        assert not any(each.outcome == "handed_over" for each in found if isinstance(each, Fate))


def test_t08_a_handover_has_its_steps_its_size_and_its_gap() -> None:
    town = Town()
    south, north = town["south"], town["north"]
    link = south.attach(ALICE, "phone")
    south.take(link, 1)
    for server in town.servers.values():
        server.later(1.0)
    south.move()
    town.run()
    for server in town.servers.values():
        server.later(0.25)
    fenced_us = north.wall_us - 250_000
    north.take(north.attach(ALICE, "phone"), 2)
    _, (handover,), _ = folded(town)
    times = (handover.awaited_us, handover.fenced_us, handover.imported_us, handover.done_us)
    assert times == (fenced_us,) * 4
    assert (handover.source, handover.target, handover.notifications) == ("south", "north", 1)
    assert handover.taken_us == fenced_us + 250_000
    assert handover.withdrawn_us is None


def test_t08_a_device_that_was_away_makes_no_gap() -> None:
    town = Town()
    town["south"].move()
    town.run()
    town["north"].take(town["north"].attach(ALICE, "phone"), 2)
    found, (handover,), _ = folded(town)
    assert [each.outcome for each in found if isinstance(each, Fate)] == ["delivered"] * 2
    assert (handover.imported_us is None, handover.taken_us) == (False, None)


def test_t08_times_away_at_both_servers_are_a_part_of_the_time_until_a_match_is_taken() -> None:
    town = Town()
    south, north = town["south"], town["north"]

    def later(seconds: float) -> None:
        for server in town.servers.values():
            server.later(seconds)

    link = south.attach(ALICE, "phone")
    south.publish(south.attach(BOB, "tower"), 3)
    later(1.0)
    south.close(link)
    later(10.0)
    south.attach(ALICE, "phone")
    later(1.0)
    south.move()
    town.run()
    later(5.0)
    north.take(north.attach(ALICE, "phone"), 3)
    found, _, _ = folded(town)
    (taken,) = [each for each in found if isinstance(each, Taking) and each.match.number == 3]
    assert (taken.away_us, taken.taken_us - taken.match.at_us) == (15_000_000, 17_000_000)


def test_t08_a_move_that_is_withdrawn_is_no_handover_of_matches() -> None:
    town = Town()
    town["south"].move()
    town.deliver()
    town.cut(town.link("south", "east"))
    for server in town.servers.values():
        server.later(31.0)
    town.run()
    found, (handover,), _ = folded(town)
    assert handover.awaited_us is not None
    assert handover.withdrawn_us is not None
    assert (handover.fenced_us, handover.imported_us) == (None, None)
    assert [each.outcome for each in found if isinstance(each, Fate)] == ["queued"] * 2


def test_t08_matches_whose_next_owner_has_no_log_here_are_handed_over() -> None:
    town = Town()
    town["south"].move()
    town.run()
    town["north"].take(town["north"].attach(ALICE, "phone"), 2)
    assert {each.outcome for each in folded(town, ["south"])[0] if isinstance(each, Fate)} == {"handed_over"}
    assert not folded(town, ["north"])[0]


def test_t08_an_import_without_its_fence_holds_a_bounded_number_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    town = Town()
    north = town["north"]
    town["south"].move()
    town.run()
    link, bob = north.attach(ALICE, "phone"), north.attach(BOB, "tower")
    for number in range(30):
        north.publish(bob, number + 1)
    north.take(link, 20)
    monkeypatch.setattr(user_logs, "HELD_MAX", 12)
    logs = UserLogs(NAMES)
    entries = list(entries_of(map(decode_record, north.log), ALICE))
    found = [each for entry in entries for each in logs.step(entry)]
    taken = [each.match.number for each in found if isinstance(each, Taking)]
    assert taken == list(range(3, 21)), "what came after the handover is counted without the end of the log"


def test_t08_m01_a_session_waits_for_its_fence_in_another_domain_that_names_the_server_otherwise() -> None:
    """The clock of beta is behind, and knows the only server of alpha by the name of its gateway."""
    beta = OFFSETS_A_LAKE
    move: dict[str, Any] = {"session": "s", "first": 99}
    entries = [
        FoldEntry("s", 0, 0, "started", value="alpha/wb1"),
        FoldEntry("s", beta, 0, "started", value="beta/wb2"),
        FoldEntry("s", 1, 1, "attached", first=1, device="d"),
        FoldEntry("s", 2, 2, "notified", subject="Price", first=2, last=1, subscriptions=["wb1-7-1"]),
        FoldEntry(offset=beta + 1, at_us=3, kind="session_awaited", value="alpha/gate", **move),
        FoldEntry(offset=beta + 2, at_us=4, kind="session_imported", **move),
        FoldEntry("s", beta + 3, 5, "acknowledged", last=1, device="d"),
        FoldEntry(offset=3, at_us=6, kind="session_fenced", value="beta/gate", **move),
    ]
    logs = UserLogs(("alpha/wb1", "beta/wb2"))
    found = [each for entry in entries for each in logs.step(entry)] + list(logs.close())
    assert [each.outcome for each in found if isinstance(each, Fate)] == ["delivered"]
    (handover,) = [each for each in found if isinstance(each, Handover)]
    assert (handover.source, handover.target, handover.notifications) == ("alpha/wb1", "beta/wb2", 1)


def moved_group(server: str, at_us: int) -> list[AnyRecord]:
    """Return the records of a channel group that moves from the first server to the second one."""
    leader, target = NAMES[:2]
    prepared = GroupPrepared(at_us=at_us + 1, group=17, target=target, epoch=2, leader=leader)
    moved = GroupMoved(at_us=at_us + 4, group=17, server=target, epoch=2, former=leader, servers=NAMES)
    if server == leader:
        moved = msgspec.structs.replace(moved, paused_us=at_us + 2, waited=7, publishers=5)
    return [prepared, moved]


@pytest.mark.spark
def test_t08_gold_tables_and_report_of_a_domain_have_its_handovers(spark: SparkSession, tmp_path: Path) -> None:
    walk = Walk(5).go(60)
    lake, logs = tmp_path / "lake", []
    for name in NAMES:
        written = [decode_record(payload) for payload in walk.town[name].log]
        written += moved_group(name, written[-1].at_us)
        logs.append(write_records(tmp_path / name / "log", written, per_segment=50))
    fill(spark, logs, lake)
    with GoldTables(lake_tables(spark, lake)) as gold:
        found = analyse(gold)
        versions = gold.tables.subscriptions.where(f"owner = '{ALICE}'").orderBy("from_us", "from_offset").collect()
    rows, (counts,) = found.handovers.rows, [row for row in found.sessions.rows if row["user"] == ALICE]
    _, handovers, _ = folded(walk.town)
    steps = ("owner_epoch", "source", "target", "cause", "fenced_us", "imported_us", "notifications", "bytes")
    expected = [tuple(getattr(each, name) for name in steps) for each in handovers]
    assert sorted(tuple(row[name] for name in steps) for row in rows) == sorted(expected)
    own = walk.owner.broker.state.sessions[KEY]
    names = ("generated", "delivered", "queued")
    assert [counts[name] for name in names] == [getattr(own, name) for name in names]
    assert (counts["handed_over"], counts["missing"], counts["repeated"]) == (0, 0, 0)
    gaps = {row["gap_us"]: row["taken_us"] - row["fenced_us"] for row in rows if row["gap_us"] is not None}
    assert 0 < len(gaps) < len(rows)
    assert all(0 <= gap <= max(0, whole) for gap, whole in gaps.items()), "the servers do not keep the same time"
    (place,) = [number for number, name in enumerate(NAMES) if walk.town[name] is walk.owner]
    assert [each.ended for each in versions].count("moved") == walk.moves == len(versions) - 1
    assert [base_below(each.from_offset) for each in versions if each.is_live] == [base_of(place)]
    assert all(base_below(each.to_offset) == base_below(each.from_offset) for each in versions if not each.is_live)
    totals = found.totals
    assert (totals.subscriptions, totals.live) == (1, 1)
    assert (totals.handovers, totals.handed_over) == (walk.moves, 0)
    assert totals.handover_bytes == sum(each.bytes or 0 for each in handovers) > 0
    assert totals.handover_notifications == sum(each.notifications or 0 for each in handovers) > 0
    assert {row["cause"]: row["handovers"] for row in found.causes.rows} == {"drain": walk.moves}
    (move,) = found.group_moves.rows
    assert (move["source"], move["target"], move["epoch"], move["outcome"]) == (*NAMES[:2], 2, "moved")
    assert (move["moved_us"] - move["paused_us"], move["waited"], move["publishers"]) == (2, 7, 5)
    assert move["pause_us"] == max(0, move["adopted_us"] - move["paused_us"])
    assert (totals.group_moves, totals.group_pause_max_ms) == (1, move["pause_us"] / 1_000)
    assert totals.handover_gap_max_ms == max(row["gap_us"] or 0 for row in rows) / 1_000


def test_t03_a_subscription_has_a_version_for_each_stay_at_a_server() -> None:
    walk = Walk(5).go(60)
    changes = [
        (base_of(number) + offset, decode_record(payload))
        for number, name in enumerate(NAMES)
        for offset, payload in enumerate(walk.town[name].log)
    ]
    versions = [each for each in versions_of(changes) if each.subscription.owner == ALICE]
    (live,) = [each for each in versions if each.to_offset is None]
    assert len(versions) == walk.moves + 1
    assert walk.town[NAMES[base_below(live.from_offset) // OFFSETS_A_LOG]] is walk.owner
    assert all(base_below(each.from_offset) == base_below(each.to_offset or each.from_offset) for each in versions)
