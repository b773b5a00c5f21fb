"""T-06: the engine names exactly the subscriptions that the broker's matcher finds, however the work is divided."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.filters import cesql_trees, trees
from tests.spark.engine.records import (
    INCARNATION,
    OWNER,
    SERVER,
    arrived,
    for_engine,
    imported,
    is_encodable,
    started,
    subscription,
    write_log,
)
from tests.spark.engine.workers import Workers, decoded, matched
from wanderbus import filters
from wanderbus.broker.interest.filter_work import FilterWork
from wanderbus.broker.interest.matcher import Matcher
from wanderbus.event import Event
from wanderbus.filters import LANGUAGES, eci, xml
from wanderbus.filters.cesql.writing import write as write_cesql
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.pipeline.engine import chunks, index_versions
from wanderbus.records import Changed, Record, SessionFenced, Subscribed, Unsubscribed
from wanderbus.runtime.services.engine import Begin, EventMatches
from wanderbus.subscription import EVERY_SUBJECT, Subscription, concerns

WORK_MAX: Final = 400
"""Bound on the work of a filter, which some of the filters exceed for some of the events."""


class History:
    """Records of a log, and the subscriptions that the broker's matcher finds at each event."""

    def __init__(self) -> None:
        self.records: list[Record] = [started()]
        self.live: dict[str, Subscription] = {}
        self.ended: dict[str, Subscription] = {}
        self.in_front: list[dict[str, Subscription]] = [{}]
        """Live subscriptions in front of each record."""
        self.events: dict[int, Event] = {}
        self.expected: dict[int, tuple[set[str], set[str]]] = {}
        self._work = FilterWork(BrokerConfig(filter_work_max=WORK_MAX, user_filter_work_per_s=1e18), lambda: 0)
        self._matcher = Matcher("scan", self._work)
        self._number = 0

    def _write(self, record: Record) -> None:
        self.in_front.append(dict(self.live))
        self.records.append(record)

    def publish(self, event: Event) -> None:
        offset = len(self.records)
        found, undecided = set(self._matcher.matching(event)), set(self._work.take_undecided(event))
        self.events[offset], self.expected[offset] = event, (found - undecided, undecided)
        self._write(for_engine(event, offset))

    def subscribe(self, subject: str, expression: str, language: str, session: str) -> None:
        self._number += 1
        added = subscription(f"wb-1-{self._number}", subject, expression, language, session=session)
        self._write(Subscribed(at_us=0, subscription=added, number=self._number))
        self._add(added)

    def end(self, which: int) -> None:
        if self.live:
            identity = sorted(self.live)[which % len(self.live)]
            self._write(Unsubscribed(at_us=0, user=OWNER, subscription=identity, reason="asked"))
            self._remove(identity)

    def renew(self, which: int) -> None:
        if known := {**self.live, **self.ended}:
            chosen = known[sorted(known)[which % len(known)]]
            self._write(Changed(at_us=0, subscription=chosen))
            self._add(chosen)

    def fence(self, session: str) -> None:
        self._write(SessionFenced(at_us=0, user=OWNER, session=session, owner_epoch=1))
        for identity in [each.id for each in self.live.values() if each.session == session]:
            self._remove(identity)

    def take_over(self, session: str, expression: str) -> None:
        self._number += 1
        added = subscription(f"other-1-{self._number}", "S", expression, session=session)
        self._write(imported(session, [added]))
        self._add(added)

    def _add(self, added: Subscription) -> None:
        self.live[added.id] = added
        self.ended.pop(added.id, None)
        self._matcher.remove(added.id)
        self._matcher.add_many([added])

    def _remove(self, identity: str) -> None:
        self.ended[identity] = self.live.pop(identity)
        self._matcher.remove(identity)

    def check(self, data: Path, random: Random) -> None:
        """Match the log in batches, and compare what the server keeps of the matches with what it would find."""
        log = write_log(data, self.records, per_segment=random.randint(2, 12))
        first = random.randrange(1, len(self.records) + 1)
        snapshot = random.randint(first, len(self.records))
        known = {key: each for live in self.in_front[first : snapshot + 1] for key, each in live.items()}
        begin = Begin(1, SERVER, INCARNATION, first, tuple(known.values()), WORK_MAX, True)
        workers = Workers(random.randint(1, 3), random)
        found = decoded(matched(log, begin, len(self.records), workers, random, batch_max=8))
        self.compare(found, first)

    def compare(self, found: Mapping[int, EventMatches], first: int) -> None:
        """Compare the matches from ``first`` on, as far as they hold, with those of the broker's matcher."""
        assert found.keys() <= self.expected.keys()
        for offset, (matching, undecided) in self.expected.items():
            if offset >= first:
                self._check_event(offset, found.get(offset, EventMatches(offset, ())), matching, undecided)

    def _check_event(self, offset: int, found: EventMatches, matching: set[str], undecided: set[str]) -> None:
        ours = set(found.matched), set(found.undecided)
        live = self.in_front[offset].keys()
        assert matching <= ours[0]
        assert ours[0] & live <= matching | undecided
        assert ours[1] & live <= undecided
        assert not ours[0] & ours[1]
        for identity in (undecided | ours[0]) - ours[1]:  # a scan evaluates filters that an index decides at once
            assert self._is_match(identity, offset) is (identity in ours[0])

    def _is_match(self, identity: str, offset: int) -> bool:
        event = self.events[offset]
        known = self.live.get(identity) or self.ended[identity]
        is_concerned = concerns(known.subject, event.subject)
        return is_concerned and filters.parse(known.expression, known.language).matches(event)


def _expressions(random: Random) -> tuple[str, str]:
    """Draw a filter, and its language."""
    language = random.choice(LANGUAGES)
    if language == "cesql":
        return write_cesql(cesql_trees.random_expression(random)), language
    node = trees.random_node(random)
    return (eci.write if language == "eci" else xml.write)(node), language


def _event(random: Random) -> Event:
    subject = random.choice("STU")
    if random.random() < 0.5:
        return Event(subject, cesql_trees.random_attributes(random))
    event = trees.random_event(random)
    while not is_encodable(event):
        event = trees.random_event(random)
    return Event(subject, event.attributes)


def _play(random: Random, steps: int) -> History:
    history = History()
    for _ in range(steps):
        match random.choice(("publish", "publish", "publish", "subscribe", "subscribe", "end", "renew", "move")):
            case "publish":
                history.publish(_event(random))
            case "subscribe":
                expression, language = _expressions(random)
                subject = random.choice(("S", "T", EVERY_SUBJECT))
                history.subscribe(subject, expression, language, random.choice(("default", "other")))
            case "end":
                history.end(random.randrange(100))
            case "renew":
                history.renew(random.randrange(100))
            case "move" if random.random() < 0.5:
                history.fence("other")
            case "move":
                history.take_over("other", "a > 0 or b == 'x'")
    return history


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every bound so small that it is reached."""
    monkeypatch.setattr(chunks, "EVENTS_MAX", 3)
    monkeypatch.setattr(chunks, "CHUNK_BYTES_MAX", 60)
    monkeypatch.setattr(index_versions, "BLOCKS_MAX", 3)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 60))
def test_t06_matches_are_those_of_the_brokers_matcher(seed: int, steps: int) -> None:
    random = Random(seed)
    history = _play(random, steps)
    with tempfile.TemporaryDirectory() as directory:
        history.check(Path(directory), random)


def test_thousands_of_subscriptions_come_and_go(tmp_path: Path) -> None:
    random = Random(5)
    history = History()
    for number in range(6_000):
        if number % 3 == 0:
            history.publish(Event("S", {"n": random.randrange(40)}))
        elif number % 3 == 1 or len(history.live) < 20:
            history.subscribe("S", f"n == {random.randrange(40)}", "eci", "default")
        else:
            history.end(random.randrange(1_000))
    assert len(history.live) + len(history.ended) > 1_500
    log = write_log(tmp_path / "log", history.records)
    workers = Workers(2, random, killed_share=0.01)
    begin = Begin(1, SERVER, INCARNATION, 1, (), WORK_MAX, True)
    found = decoded(matched(log, begin, len(history.records), workers, random, batch_max=200))
    history.compare(found, 1)


def test_t06_events_that_arrived_are_matched_too_and_a_parent_gets_those_of_its_children(tmp_path: Path) -> None:
    parent, child = subscription("wb-1-1", "Up", "n > 1"), subscription("wb-1-2", "Down", "")
    records: list[Record] = [
        started(),
        arrived(Event("Down", {"n": 2})),
        for_engine(Event("Down", {"n": 1}), 2),
        msgspec.structs.replace(arrived(Event("Down", {"n": 3})), engine=""),
        Subscribed(at_us=0, subscription=subscription("wb-1-4", "Up", "n == 5"), number=3),
        arrived(Event("Up", {"n": 5})),
    ]
    log = write_log(tmp_path, records)
    begin = Begin(1, SERVER, INCARNATION, 1, (parent, child), WORK_MAX, True, {"Down": "Up"})
    random = Random(1)
    found = decoded(matched(log, begin, len(records), Workers(1, random), random, batch_max=9))
    assert {offset: set(each.matched) for offset, each in found.items()} == {
        1: {"wb-1-1", "wb-1-2"},
        2: {"wb-1-2"},
        5: {"wb-1-1", "wb-1-4"},
    }
