"""The fold over a user's entries counts as the broker does (SPEC T-08, U-02)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.user_entries import entries_of
from tests.spark.analytics.random_records import USERS, RandomLog
from wanderbus import records
from wanderbus.broker.state.rows import SessionRow
from wanderbus.metrics import Durations
from wanderbus.pipeline.analytics.user_fold import Fate, FoldEntry, Match, Taking, UserFold


def folded(written: Iterable[records.AnyRecord], user: str) -> tuple[list[Fate | Taking], UserFold]:
    fold = UserFold()
    found = [each for entry in entries_of(written, user) for each in fold.step(entry)]
    return [*found, *fold.close()], fold


def magnitudes(durations_us: Iterable[int]) -> Durations:
    counted = Durations()
    for each in durations_us:
        counted.add(each)
    return counted


def deepest(fates: Iterable[Fate]) -> int:
    """Return the largest number of matches that wait between two times at which some begin or end."""
    changes: Counter[int] = Counter()
    for each in fates:
        changes[each.match.at_us] += 1
        if each.ended_us is not None:
            changes[each.ended_us] -= 1
    return max(accumulate(changes[at_us] for at_us in sorted(changes)), default=0)


def counters(found: Sequence[Fate | Taking], session: str, accepted_us: Mapping[int, int]) -> dict[str, object]:
    """Return the counters of a session; ``accepted_us`` is the time of each notification that an engine matched."""
    taken = [each for each in found if isinstance(each, Taking) and each.match.session == session]
    fates = [each for each in found if isinstance(each, Fate) and each.match.session == session]
    outcomes = Counter(each.outcome for each in fates)
    return {
        "generated": len(fates),
        "delivered": outcomes["delivered"],
        "queued": outcomes["queued"],
        "dropped": dict(Counter(each.reason for each in fates if each.outcome == "dropped")),
        "queued_max": deepest(fates),
        "acknowledgements": magnitudes(
            each.taken_us - accepted_us.get(each.match.number, each.match.at_us) for each in taken
        ),
    }


def own_counters(row: SessionRow) -> dict[str, object]:
    names = ("generated", "delivered", "queued", "dropped", "queued_max", "acknowledgements")
    return {name: getattr(row, name) for name in names}


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 160))
@example(seed=3580, count=40)
def test_t08_the_counts_of_every_session_are_those_of_the_broker(seed: int, count: int) -> None:
    log = RandomLog(seed).grow(count)
    for user in USERS:
        found, fold = folded(log.records, user)
        away = Durations()
        for row in log.state.sessions_of(user):
            accepted_us = {
                notified.number: event.at_us
                for record in log.records
                if isinstance(record, records.Matched)
                for event in record.events
                for notified in event.notified
                if (notified.user, notified.session) == (user, row.name)
            }
            assert counters(found, row.name, accepted_us) == own_counters(row)
            away.add_all(row.absences)
        assert away == magnitudes(each.to_us - each.from_us for each in fold.times.absences if each.to_us is not None)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 160))
def test_t08_a_match_has_one_fate_and_a_device_takes_it_once(seed: int, count: int) -> None:
    log = RandomLog(seed).grow(count)
    for user in USERS:
        found, _ = folded(log.records, user)
        fates = [each.match for each in found if isinstance(each, Fate)]
        assert len(set(fates)) == len(fates)
        taken = [(each.match, each.device) for each in found if isinstance(each, Taking)]
        ended = {each.match: each.ended_us for each in found if isinstance(each, Fate)}
        # A member that leaves and comes back may take a match again, and that alone.
        left = any(isinstance(each, records.Left | records.Attached) for each in log.records)
        assert left or len(set(taken)) == len(taken)
        for each in found:
            if isinstance(each, Taking):
                assert each.match in ended
                assert 0 <= each.away_us <= each.taken_us - each.match.at_us


def entry(kind: str, at_us: int, **more: Any) -> FoldEntry:
    return FoldEntry("default", at_us, at_us, kind, **more)


def test_t08_times_away_are_a_part_of_the_time_until_a_match_is_taken() -> None:
    fold = UserFold()
    steps = [
        entry("attached", 1, device="phone", first=1),
        entry("status", 2, device="phone", value="CONNECTED"),
        entry("notified", 10, subject="S", last=1, subscriptions=["s"]),
        entry("status", 20, device="phone", value="DISCONNECTED", reason="timeout"),
        entry("status", 50, device="phone", value="CONNECTED"),
        entry("started", 60),
        entry("status", 65, device="phone", value="CONNECTED"),
        entry("acknowledged", 70, device="phone", last=1, subscriptions=["s"]),
        entry("status", 80, device="phone", value="DISCONNECTED", reason="timeout"),
        entry("left", 90, device="phone"),
    ]
    found = [each for step in steps for each in fold.step(step)]
    match = Match("default", "S", 1, "s", 10, 10, 0)
    assert found == [Taking(match, "phone", 70, 35, False), Fate(match, "delivered", 70, device="phone")]
    assert [(each.from_us, each.to_us, each.reason, each.ended) for each in fold.times.absences] == [
        (20, 50, "timeout", "connected"),
        (60, 65, "server started", "connected"),
        (80, 90, "timeout", "left"),
    ]


def test_t08_matches_that_an_earlier_life_may_have_seen_are_marked() -> None:
    fold = UserFold()
    steps = [
        entry("attached", 1, device="phone", first=1),
        *(entry("notified", 10 + number, subject="S", last=number, subscriptions=["s"]) for number in (1, 2, 3)),
        entry("attached", 20, device="phone", first=2),
        entry("redelivered", 20, device="phone", last=2, subscriptions=["s"]),
        *(entry("acknowledged", 30 + number, device="phone", last=number, subscriptions=["s"]) for number in (1, 2, 3)),
    ]
    found = [each for step in steps for each in fold.step(step)]
    assert [each.is_redelivered for each in found if isinstance(each, Taking)] == [True, True, False]


def test_t08_a_device_that_acknowledges_while_it_is_away_was_away_until_then() -> None:
    fold = UserFold()
    steps = [
        entry("attached", 1, device="phone", first=1),
        entry("status", 2, device="phone", value="CONNECTED"),
        entry("status", 5, device="phone", value="DISCONNECTED", reason="timeout"),
        entry("notified", 10, subject="S", last=1, subscriptions=["s"]),
        entry("acknowledged", 25, device="phone", last=1, subscriptions=["s"]),
    ]
    taken = [each for step in steps for each in fold.step(step) if isinstance(each, Taking)]
    assert [each.away_us for each in taken] == [15]


def test_t08_a_member_that_leaves_and_comes_back_has_acknowledged_nothing() -> None:
    fold = UserFold()
    steps = [
        *(entry("attached", 1, device=device, first=1) for device in ("phone", "laptop")),
        entry("notified", 10, subject="S", last=1, subscriptions=["s"]),
        entry("acknowledged", 20, device="phone", last=1, subscriptions=["s"]),
        entry("left", 30, device="phone"),
        entry("attached", 40, device="phone", first=2),
        entry("acknowledged", 50, device="laptop", last=1, subscriptions=["s"]),
    ]
    found = [each for step in steps for each in fold.step(step)]
    assert [each.outcome for each in [*found, *fold.close()] if isinstance(each, Fate)] == ["queued"]


def test_t08_a_new_member_does_not_take_what_others_have_acknowledged() -> None:
    fold = UserFold()
    steps = [
        *(entry("attached", 1, device=device, first=1) for device in ("phone", "laptop")),
        *(entry("notified", 10 + number, subject="S", last=number, subscriptions=["s"]) for number in (1, 2)),
        entry("acknowledged", 20, device="phone", last=1, subscriptions=["s"]),
        entry("attached", 30, device="watch", first=1),
        entry("begins_behind", 30, device="watch", last=1, subscriptions=["s"]),
        *(entry("acknowledged", 40, device=device, last=2, subscriptions=["s"]) for device in ("watch", "laptop")),
    ]
    found = [each for step in steps for each in fold.step(step)]
    taken = [(each.match.number, each.device) for each in found if isinstance(each, Taking)]
    assert taken == [(1, "phone"), (2, "watch"), (1, "laptop"), (2, "laptop")]
    assert [(each.match.number, each.outcome) for each in found if isinstance(each, Fate)] == [(1, "delivered")]


def test_t08_an_address_that_changes_is_a_move_and_one_that_is_repeated_is_none() -> None:
    fold = UserFold()
    for at_us, address in enumerate(("a:1", "a:1", "b:1", "b:2")):
        assert not list(fold.step(entry("dialog_stored", at_us, device="phone", value=address)))
    list(fold.close())
    assert [(each.moved_us, each.former, each.address) for each in fold.times.moves] == [
        (2, "a:1", "b:1"),
        (3, "b:1", "b:2"),
    ]


def test_t08_another_life_of_an_agent_begins_with_its_address_and_is_no_move() -> None:
    fold = UserFold()
    steps = [
        entry("dialog_stored", 1, device="phone", value="a:1"),
        entry("attached", 2, device="phone", first=1),
        entry("dialog_stored", 3, device="phone", value="b:1"),
        entry("attached", 4, device="phone", first=1),
        entry("dialog_stored", 5, device="phone", value="c:1"),
        entry("acknowledged", 6, device="phone", last=1),
        entry("dialog_stored", 7, device="phone", value="d:1"),
        entry("attached", 8, device="phone", first=2),
        entry("dialog_stored", 9, device="phone", value="e:1"),
        entry("dialog_stored", 10, device="phone", value="f:1"),
        entry("attached", 11, device="phone", first=3),
    ]
    for step in steps:
        list(fold.step(step))
    list(fold.close())
    assert [each.moved_us for each in fold.times.moves] == [3, 5, 9]


def test_the_random_logs_have_every_kind_of_record_and_outcome() -> None:
    log = RandomLog(2013).grow(1_500)
    assert {type(each) for each in log.records} >= {
        *(records.Published, records.Acknowledged, records.Dropped, records.Subscribed, records.Unsubscribed),
        *(records.Forgotten, records.Replayed, records.Matched, records.Attached, records.Left, records.StatusChanged),
        *(records.DialogStored, records.Started, records.Changed),
    }
    found = [each for user in USERS for each in folded(log.records, user)[0]]
    reasons = {each.reason for each in found if isinstance(each, Fate)}
    assert reasons == {None, "device_left", "forgotten", "queue.notifications_max", "purged"}
    assert {each.outcome for each in found if isinstance(each, Fate)} == {"delivered", "dropped", "queued"}
    assert {each.is_redelivered for each in found if isinstance(each, Taking)} == {True, False}
