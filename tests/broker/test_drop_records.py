"""One record when several subscriptions drop the same numbers for the same reason (SPEC G-18, U-02)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, Literal, NamedTuple

import pytest

from tests.broker.desk import ALICE, BOB, SUBJECT, Desk, rows_of
from tests.broker.test_queue_limits import SIZE, losses, publish, session_of
from wanderbus import records
from wanderbus.broker.queues.displacement import Displacement
from wanderbus.broker.state.drops import drops_of, with_drops
from wanderbus.broker.state.state import BrokerState
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import size_of
from wanderbus.records import decode_record
from wanderbus.subscription import QueuePolicy


def many(desk: Desk, count: int, policies: Sequence[QueuePolicy]) -> list[str]:
    """Alice has so many subscriptions with these bounds in turn, and goes."""
    link = desk.attach()
    identities = [
        desk.subscribed(link, f"N > {-each}", queue=policies[(each - 1) % len(policies)]).id
        for each in range(1, count + 1)
    ]
    desk.close(link)
    return identities


@pytest.mark.parametrize(
    "policy",
    [
        QueuePolicy(notifications_max=2),
        QueuePolicy(notifications_max=2, when_full="drop_newest"),
        QueuePolicy(bytes_max=2 * SIZE),
    ],
)
def test_u02_subscriptions_that_drop_the_same_for_the_same_reason_take_one_record(
    desk: Desk, policy: QueuePolicy
) -> None:
    identities = many(desk, 100, [policy])
    publish(desk, 5)
    dropped = desk.written(records.Dropped)
    assert [sorted(each.subscriptions) for each in dropped] == [sorted(identities)] * 3
    row = session_of(desk)
    assert (row.queued, sum(row.dropped.values())) == (200, 300)
    back = desk.attach()
    desk.later(1.0)
    gaps = losses(desk, back)
    assert sorted((loss.subscription, loss.count) for (loss,) in gaps) == [(each, 3) for each in sorted(identities)]


def test_u02_other_numbers_or_another_reason_take_another_record(desk: Desk) -> None:
    policies = [QueuePolicy(notifications_max=1), QueuePolicy(notifications_max=2), QueuePolicy(bytes_max=2 * SIZE)]
    identities = many(desk, 6, policies)
    publish(desk, 3)
    one, two, size = (sorted(identities[place::3]) for place in range(3))
    dropped = desk.written(records.Dropped)
    assert sorted((each.first, each.last, each.reason, sorted(each.subscriptions)) for each in dropped) == [
        (1, 1, "subscription.queue.bytes_max", size),
        (1, 1, "subscription.queue.notifications_max", one),
        (1, 1, "subscription.queue.notifications_max", two),
        (2, 2, "subscription.queue.notifications_max", one),
    ]
    assert session_of(desk).dropped == {"subscription.queue.notifications_max": 6, "subscription.queue.bytes_max": 2}


def test_g17_matches_that_grow_too_old_together_take_one_record(desk: Desk) -> None:
    identities = many(desk, 50, [QueuePolicy(age_max_s=10.0)])
    publish(desk, 3)
    desk.later(80.0)
    (dropped,) = desk.written(records.Dropped)
    assert (dropped.first, dropped.last, sorted(dropped.subscriptions)) == (1, 3, sorted(identities))
    assert session_of(desk).dropped == {"subscription.queue.age_max_s": 150}


def test_g15_an_event_takes_the_place_of_as_many_as_each_subscription_has_to_give_up(desk: Desk) -> None:
    identities = many(desk, 4, [QueuePolicy(bytes_max=3 * SIZE), QueuePolicy(bytes_max=4 * SIZE)])
    publish(desk, 3)
    large = Event(SUBJECT, {"N": 4, "text": ""})
    desk.publish(desk.attach(BOB, "desk", epoch=9), 4, text="x" * (2 * SIZE - size_of(large) - 1))
    dropped = desk.written(records.Dropped)
    assert [(each.first, sorted(each.subscriptions)) for each in dropped] == [
        (1, sorted(identities)),
        (2, sorted(identities[::2])),
    ]
    assert session_of(desk).queued == 2 * 2 + 2 * 3


@pytest.mark.parametrize(
    "config",
    [
        BrokerConfig(queue=QueuePolicy(notifications_max=2)),
        BrokerConfig(queue=QueuePolicy(notifications_max=2, when_full="drop_newest")),
        BrokerConfig(queue=QueuePolicy(bytes_max=2 * SIZE)),
        BrokerConfig(user_queued_bytes_max=2 * SIZE),
        BrokerConfig(queued_bytes_max=6 * SIZE),
    ],
)
def test_u02_drops_are_in_the_record_of_the_event_that_displaces_them(config: BrokerConfig) -> None:
    desk = Desk(config)
    for user in ("sip:alice@example.org", "sip:carol@example.org", "sip:dave@example.org"):
        link = desk.attach(user)
        desk.subscribed(link)
        desk.close(link)
    desk.attach(BOB, "desk", epoch=9)
    before = len(desk.log)
    publish(desk, 5)
    appended = [decode_record(payload) for payload in desk.log[before:]]
    assert {type(record) for record in appended if type(record) is not records.Attached} <= {
        records.Published,
        records.StatusChanged,
    }
    assert len(desk.written(records.Dropped)) == 9
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)


def test_u02_a_log_with_a_record_for_each_drop_gives_the_same_state() -> None:
    """Earlier versions have written such logs."""
    desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=2)))
    link = desk.attach()
    desk.subscribed(link)
    desk.close(link)
    publish(desk, 6)
    state, offset = BrokerState("wb", desk.broker.state.publishes_remembered), 0
    for record in map(decode_record, desk.log):
        drops = list(drops_of(record))
        plain = with_drops(record, ()) if drops else record  # type: ignore[arg-type]
        for each in (plain, *drops):
            state.apply(offset, each)
            offset += 1
    (ours,), (theirs,) = state.sessions_of(ALICE), desk.broker.state.sessions_of(ALICE)
    assert (ours.queued, ours.dropped) == (theirs.queued, theirs.dropped)
    queue, other = state.queue.get(ours.key), desk.broker.state.queue.get(theirs.key)
    assert queue is not None
    assert other is not None
    assert [each.number for each in queue] == [each.number for each in other] == [5, 6]


def test_u02_an_event_beside_full_queues_is_recorded_with_one_number_for_each() -> None:
    """The rest of a drop follows from the notification."""
    desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=2)))
    for number in range(20):
        link = desk.attach(f"sip:user{number}@example.org")
        desk.subscribed(link)
        desk.close(link)
    bob = desk.attach(BOB, "desk")
    sizes = []
    for n in range(1, 5):
        desk.publish(bob, n)
        sizes.append(len(desk.log[-1]))
    record = decode_record(desk.log[-1])
    assert isinstance(record, records.Published)
    assert record.delivery.displaced == {"queue.notifications_max": (2,) * 20}
    assert record.delivery.dropped == ()
    assert sizes[3] - sizes[1] <= 20 + 60, "a byte for each, and the name of the bound"
    drops = list(drops_of(record))
    assert [each.subscriptions for each in drops] == [each.subscriptions for each in record.delivery.notified]
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)


class Kind(NamedTuple):
    """Bounds that are reached, and what each user has."""

    config: BrokerConfig
    reason: str
    expressions: Sequence[str] = ("",)
    sessions: Sequence[str] = ("default",)
    options: Mapping[str, Any] = {}


TWO: Final = BrokerConfig(queue=QueuePolicy(notifications_max=2))
NEWEST: Final = QueuePolicy(bytes_max=2 * SIZE, when_full="drop_newest")
OWN: Final = QueuePolicy(notifications_max=2)
KINDS: Final = {
    "two subscriptions": Kind(TWO, "queue.notifications_max", ("N > 0", "N > -1")),
    "two subscriptions, the newest": Kind(BrokerConfig(queue=NEWEST), "queue.bytes_max", ("N > 0", "N > -1")),
    "bounds of two subscriptions": Kind(
        BrokerConfig(), "subscription.queue.notifications_max", ("N > 0", "N > -1"), options={"queue": OWN}
    ),
    "beside another subscription": Kind(TWO, "queue.notifications_max", ("N > 0", "N < 2")),
    "for one device": Kind(TWO, "queue.notifications_max", options={"this_device_only": True}),
    "two sessions": Kind(
        BrokerConfig(user_queued_bytes_max=4 * SIZE), "user_queued_bytes_max", sessions=("default", "other")
    ),
    "the broker": Kind(BrokerConfig(queued_bytes_max=7 * SIZE), "queued_bytes_max"),
}


@pytest.mark.parametrize("name", KINDS)
def test_u02_a_queue_that_gives_way_to_its_own_notification_is_a_number_in_the_record(name: str) -> None:
    kind, desk = KINDS[name], Desk(KINDS[name].config)
    for number in range(3):
        for session in kind.sessions:
            link = desk.attach(f"sip:user{number}@example.org", session, session=session)
            for expression in kind.expressions:
                desk.subscribed(link, expression, **kind.options)
            desk.close(link)
    bob = desk.attach(BOB, "desk")
    for n in range(1, 10):
        desk.publish(bob, n)
        if n == 4:
            desk.save()
    for payload in desk.log[-3:]:
        record = decode_record(payload)
        assert isinstance(record, records.Published)
        assert record.delivery.dropped == ()
        ((reason, numbers),) = record.delivery.displaced.items()
        assert (reason, len(numbers), all(numbers)) == (kind.reason, 3 * len(kind.sessions), True)
    for row in desk.broker.state.sessions.values():
        assert row.generated == row.delivered + row.queued + sum(row.dropped.values())
    assert rows_of(desk.recovered()) == rows_of(desk.broker.state)
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)


CHOICES: Final[Sequence[Literal["drop_oldest", "drop_newest"] | None]] = (None, None, "drop_oldest", "drop_newest")


def filled(seed: int) -> Desk:
    """Fill queues of all kinds by the same events; the bounds hold after each."""
    draw = Random(seed)
    most, bytes_most = draw.choice([1, 3, None]), draw.choice([4 * SIZE, None])
    bounds = QueuePolicy(most, bytes_most, when_full=draw.choice(CHOICES))
    desk = Desk(BrokerConfig(queue=bounds, user_queued_bytes_max=draw.choice([5 * SIZE, 2**20])))
    for number in range(8):
        link = desk.attach(f"sip:user{number}@example.org")
        for _ in range(draw.choice([1, 1, 2])):
            own = QueuePolicy(draw.choice([None, 2]), draw.choice([None, 3 * SIZE]), when_full=draw.choice(CHOICES))
            wanted = draw.choice(["", "", "Kind == 0", "Kind >= 1", "Kind <= 1"])
            desk.subscribed(link, wanted, queue=draw.choice([None, own]), this_device_only=draw.random() < 0.2)
        if draw.random() < 0.8:
            desk.close(link)
    bob = desk.attach(BOB, "desk")
    for n in range(1, 40):
        desk.publish(bob, n, Kind=draw.randrange(3), Filling="x" * draw.choice([0, 0, 1, 40]))
        if draw.random() < 0.1:
            back = desk.attach(f"sip:user{draw.randrange(8)}@example.org")
            desk.take(back, draw.randrange(1, n + 1))
            desk.close(back)
        if draw.random() < 0.2:
            desk.save()
        for row in desk.broker.state.sessions.values():
            assert row.generated == row.delivered + row.queued + sum(row.dropped.values())
            assert row.waiting <= (bounds.notifications_max or 100)
            assert row.queued_bytes <= (bounds.bytes_max or 2**20)
    return desk


@pytest.mark.parametrize("seed", range(40))
def test_u02_queues_of_all_kinds_that_one_event_fills_recover_as_they_were(seed: int) -> None:
    desk = filled(seed)
    assert rows_of(desk.recovered(from_log_alone=True)) == rows_of(desk.broker.state)
    assert rows_of(desk.recovered()) == rows_of(desk.broker.state)
    assert desk.written(records.Dropped)


@pytest.mark.parametrize("seed", range(40))
def test_u02_an_event_displaces_what_the_bounds_would_drop_behind_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = filled(seed)
    monkeypatch.setattr(Displacement, "choose", lambda *given: {})
    theirs = filled(seed)
    assert rows_of(ours.broker.state) == rows_of(theirs.broker.state)
    assert sorted(ours.written(records.Dropped), key=by_number) == sorted(
        theirs.written(records.Dropped), key=by_number
    )


def by_number(drop: records.Dropped) -> tuple[str, int, tuple[str, ...]]:
    return drop.user, drop.first, drop.subscriptions


def sharing(seed: int, fillings: Sequence[int]) -> Iterator[Desk]:
    """Fill queues up to bounds that sessions share, by events of these sizes; yield the desk after each event."""
    draw = Random(seed)
    usual = 100 + max(fillings) // 2
    users_max, broker_max = draw.choice([(25 * usual, 2**30), (2**30, 100 * usual), (25 * usual, 100 * usual)])
    desk = Desk(BrokerConfig(user_queued_bytes_max=users_max, queued_bytes_max=broker_max))
    for number in range(8):
        link = desk.attach(f"sip:user{number % 5}@example.org", f"d{number}", session=f"s{number}")
        own = draw.choice([QueuePolicy(notifications_max=9), QueuePolicy(bytes_max=11 * usual)])
        desk.subscribed(link, f"To{number} == 1", queue=own if draw.random() < 0.2 else None)
        desk.close(link)
    bob = desk.attach(BOB, "desk")
    for n in range(1, 90):
        wanted: dict[str, Any] = {f"To{number}": int(draw.random() < 0.7) for number in range(8)}
        desk.publish(bob, n, **wanted, Filling="x" * draw.choice(fillings))
        yield desk


@pytest.mark.parametrize("seed", range(40))
def test_u02_events_displace_from_the_longest_sessions_what_their_bound_would_drop(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No two sessions have the same length, or either may lose."""
    ours = list(sharing(seed, range(100, 2_000)))[-1]
    assert ours.written(records.Dropped)
    assert rows_of(ours.recovered(from_log_alone=True)) == rows_of(ours.broker.state)
    monkeypatch.setattr(Displacement, "choose", lambda *given: {})
    theirs = list(sharing(seed, range(100, 2_000)))[-1]
    assert rows_of(ours.broker.state) == rows_of(theirs.broker.state)
    assert sorted(ours.written(records.Dropped), key=by_number) == sorted(
        theirs.written(records.Dropped), key=by_number
    )


@pytest.mark.parametrize("seed", range(20))
def test_u02_no_session_loses_while_a_longer_one_shares_its_bound(seed: int) -> None:
    sizes: dict[tuple[str, int], int] = {}
    for desk in sharing(seed, [0, 0, 0, 1, 40, 300]):
        record = decode_record(desk.log[-1])
        assert isinstance(record, records.Published)
        for each in record.delivery.notified:
            sizes[each.session, each.number] = len(bytes(record.acceptance.event))
        lost: dict[str, dict[str, int]] = {}
        for drop in drops_of(record):
            lost.setdefault(drop.reason, {})[drop.session] = sizes[drop.session, drop.last]
        config, sessions = desk.config, {row.name: row for row in desk.broker.state.sessions.values()}
        length = {name: row.queued_bytes for name, row in sessions.items()}
        assert sum(length.values()) <= config.queued_bytes_max
        if last := lost.get("queued_bytes_max"):
            assert all(length[name] + size >= max(length.values()) for name, size in last.items())
            assert sum(length.values()) + max(last.values()) > config.queued_bytes_max
        for name, size in {} if last else lost.get("user_queued_bytes_max", {}).items():
            own = [length[each] for each, row in sessions.items() if row.user == sessions[name].user]
            assert length[name] + size >= max(own)
