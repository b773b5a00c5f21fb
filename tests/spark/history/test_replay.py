"""A replay of the log decides as the broker did: lifetimes, restrictions, absences and the operator's kinds."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest

from tests.broker.desk import ALICE, BOB, SUBJECT, Desk
from tests.published import published
from wanderbus import protocol
from wanderbus.broker.core import Broker
from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.restrictions.restriction_kinds import Asked, Kind, Parameters
from wanderbus.broker.rollback.messages import ServerStarted
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.pipeline.history.lifetimes import (
    Absences,
    Change,
    SubscriptionVersion,
    UserAbsence,
    absences_of,
    versions_of,
)
from wanderbus.pipeline.history.queries import QueryMatcher, queries_of
from wanderbus.pipeline.history.replay_rows import Replay, VersionLifetimes
from wanderbus.records import Dropped, Published, decode_record, encode_record
from wanderbus.subscription import Custom, Daily, Frequency, Interval, Restriction, Subscription, When

Decisions = dict[tuple[str, int], int | None]


def is_above(parameters: Parameters, asked: Asked) -> bool:
    price = asked.event.get("Price")
    return isinstance(price, int) and price > parameters["price"]


KINDS: Mapping[str, Kind] = {"above": Kind(is_above)}


def records_in(desk: Desk) -> list[Change]:
    return [(offset, decode_record(payload)) for offset, payload in enumerate(desk.log)]


def decided_by_broker(changes: Sequence[Change]) -> Decisions:
    """The notifications and the restricted matches in the records of the events."""
    found: Decisions = {}
    for offset, record in changes:
        if isinstance(record, Published):
            found |= {(each, offset): None for one in record.delivery.notified for each in one.subscriptions}
            found |= {(each, offset): place for each, place in record.delivery.restricted}
    return found


def events_in(changes: Sequence[Change], log: Sequence[bytes]) -> pa.RecordBatch:
    published = [(offset, record) for offset, record in changes if isinstance(record, Published)]
    return pa.RecordBatch.from_pydict(
        {
            "offset": pa.array([offset for offset, _ in published], pa.int64()),
            "subject": pa.array([record.event.subject for _, record in published]),
            "at_us": pa.array([record.at_us for _, record in published], pa.int64()),
            "received_us": pa.array([record.acceptance.received_us for _, record in published], pa.int64()),
            "record": pa.array([log[offset] for offset, _ in published], pa.binary()),
        }
    )


def replayed(
    versions: Sequence[SubscriptionVersion], absences: Sequence[UserAbsence], batch: pa.RecordBatch
) -> Decisions:
    """Decisions of a replay, in batches of a few rows."""
    matcher = QueryMatcher(queries_of(each.subscription for each in versions))
    lifetimes = VersionLifetimes(versions)
    parts = [lifetimes.candidates(matcher, batch.slice(first, 7)) for first in range(0, len(batch), 7)]
    ordered = pa.Table.from_batches(parts).sort_by([("subscription", "ascending"), ("offset", "ascending")])
    found: Decisions = {}
    for each in Replay(versions, Absences(absences), KINDS).decided(ordered.to_batches(max_chunksize=5)):
        for row in each.to_pylist():
            found[row["subscription"], row["offset"]] = row["restricted_by"]
    return found


def restrictions_of(rng: random.Random, wall_us: int) -> tuple[Restriction, ...]:
    when: When = rng.choice(("always", "always", "away"))
    possible: list[Restriction] = [
        Frequency(rng.choice((1, 30, 200)), when),
        Interval(wall_us + rng.randint(0, 200) * 1_000_000, wall_us + rng.randint(201, 900) * 1_000_000, when),
        Daily("22:13", rng.choice(("22:14", "22:16:30", "22:40")), "UTC", when),
        Custom("above", {"price": rng.randint(0, 9)}, when),
    ]
    return tuple(rng.sample(possible, rng.choice((0, 1, 1, 2, 3))))


EVERY_2_S: tuple[Restriction, ...] = (Frequency(2, "always"),)


class KindsDesk(Desk):
    """A desk whose broker has the operator's kinds of restriction."""

    def start(self) -> None:
        self._reading_all.clear()
        self.broker = Broker(self.recovered(), self.config, CustomRestrictions(KINDS))
        self.timers.clear()
        self.give(ServerStarted())


class World:
    """Two users who subscribe, change, leave and come back, and a publisher; by a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.desk = KindsDesk()
        self.mine: list[Subscription] = []
        self.requests = 1_000
        self.epochs = 0
        self.links: dict[str, int] = {}
        self.connect()

    def connect(self) -> None:
        self.epochs += 1
        self.links = {user: self.desk.attach(user, "phone", epoch=self.epochs) for user in (ALICE, BOB)}
        self.publisher = self.desk.attach("sip:publisher@example.org", "desk", epoch=self.epochs)

    def live(self, steps: int) -> None:
        for number in range(steps):
            self.desk.later(self.rng.choice((0.2, 3.0, 20.0)))
            self.step(self.rng.choice((ALICE, BOB)), number)

    def step(self, user: str, number: int) -> None:
        desk, rng, link = self.desk, self.rng, self.links[user]
        own = [each.id for each in self.mine if each.owner == user]
        self.requests += 1
        match rng.randrange(16):
            case 0 | 1 if link:
                self.subscribe(link)
            case 2 if link:
                desk.close(link)
                self.links[user] = 0
            case 3 | 4 if not link:
                self.epochs += 1
                self.links[user] = desk.attach(user, "phone", epoch=self.epochs)
            case 5:
                desk.offset_us += rng.randint(-50, 50) * 1_000_000
            case 6 if link and own:
                desk.send(link, protocol.Unsubscribe(self.requests, rng.choice(own)))
            case 7 if link and own:
                desk.send(link, protocol.Renew(self.requests, rng.choice(own), rng.choice((None, 30.0))))
            case 8 if link and own:
                restrictions = restrictions_of(rng, desk.wall_us)
                desk.send(link, protocol.Restrict(self.requests, rng.choice(own), restrictions))
            case 9 if number % 3 == 0:
                desk.restart()
                self.epochs += 1
                self.links = dict.fromkeys(self.links, 0)
                self.publisher = desk.attach("sip:publisher@example.org", "desk", epoch=self.epochs)
            case _:
                desk.publish(self.publisher, number, rng.choice((SUBJECT, "Other")), Price=rng.randint(0, 10))

    def subscribe(self, link: int) -> None:
        done = self.desk.subscribed(
            link,
            self.rng.choice(("", "Price > 4", "Price < 7 and N >= 0")),
            subject=self.rng.choice((SUBJECT, "*")),
            lifetime_s=self.rng.choice((None, 40.0)),
            restrictions=restrictions_of(self.rng, self.desk.wall_us),
        )
        self.mine.append(done)


@pytest.mark.parametrize("seed", range(12))
def test_a_replay_decides_as_the_broker_did(seed: int) -> None:
    world = World(seed)
    world.subscribe(world.links[ALICE])
    world.subscribe(world.links[BOB])
    world.live(150)
    changes = records_in(world.desk)
    batch = events_in(changes, world.desk.log)
    decided = decided_by_broker(changes)
    assert replayed(versions_of(changes), absences_of(changes), batch) == decided
    assert len(decided) > 20


def test_the_seeds_cover_every_restriction() -> None:
    restricted = {type(each).__name__ for seed in range(12) for each in _restrictions_that_blocked(seed)}
    assert restricted == {"Frequency", "Interval", "Daily", "Custom"}


def _restrictions_that_blocked(seed: int) -> list[Restriction]:
    world = World(seed)
    world.subscribe(world.links[ALICE])
    world.subscribe(world.links[BOB])
    world.live(150)
    changes = records_in(world.desk)
    live = versions_of(changes)
    return [
        next(
            each.subscription.restrictions[place]
            for each in live
            if each.subscription.id == identity and each.from_offset <= offset < (each.to_offset or len(world.desk.log))
        )
        for (identity, offset), place in decided_by_broker(changes).items()
        if place is not None
    ]


def test_lifetimes_begin_and_end_at_their_offsets() -> None:
    subscription = Subscription("1", ALICE, "default", SUBJECT, "", expires_us=15)
    batch = pa.RecordBatch.from_pydict(
        {
            "offset": pa.array([3, 4, 6, 7, 8], pa.int64()),
            "subject": [SUBJECT] * 5,
            "at_us": pa.array([3, 4, 14, 15, 16], pa.int64()),
            "record": [encode_record(published(Event(SUBJECT, {}), number=number)) for number in range(5)],
        }
    )
    assert set(replayed([SubscriptionVersion(subscription, 4, 8)], [], batch)) == {("1", 4), ("1", 6)}
    forever = Subscription("1", ALICE, "default", SUBJECT, "")
    assert set(replayed([SubscriptionVersion(forever, 4, 7)], [], batch)) == {("1", 4), ("1", 6)}


def test_absences_are_open_at_the_end() -> None:
    absences = Absences([UserAbsence(ALICE, 5, 9), UserAbsence(ALICE, 12)])
    assert [offset for offset in range(15) if absences.is_away(ALICE, offset)] == [5, 6, 7, 8, 12, 13, 14]
    assert not absences.is_away(BOB, 5)


def test_a_replay_leaves_undecided_what_the_broker_left() -> None:
    desk = KindsDesk(BrokerConfig("s", sweep_s=None, filter_work_max=2_000))
    mine = desk.subscribed(desk.attach(ALICE), "UPPER(Text) = 'X' OR TRUE", language="cesql", restrictions=EVERY_2_S)
    link = desk.attach(BOB)
    for number, size in enumerate((10, 9_000, 10, 9_000, 9_000), 1):
        desk.publish(link, number, Text="x" * size)
        desk.later(1.5)
    changes = records_in(desk)
    dropped = [each for each in desk.written(Dropped) if each.reason == "filter_work_max"]
    batch = events_in(changes, desk.log)
    versions = versions_of(changes)
    matcher = QueryMatcher(queries_of((each.subscription for each in versions), 2_000))
    found = [VersionLifetimes(versions).candidates(matcher, batch)]
    [decided] = Replay(versions, Absences([]), {}).decided([found[0].sort_by("offset")])
    rows = decided.to_pylist()
    assert {(row["subscription"], row["offset"]): row["restricted_by"] for row in rows} == decided_by_broker(changes)
    undecided = [row["offset"] for row in rows if row["undecided"] and row["restricted_by"] is None]
    assert len(undecided) == sum(each.last - each.first + 1 for each in dropped) > 0
    assert all(row["subscription"] == mine.id for row in rows)
