"""T-06: decentralised channels with engines beside the servers; causal order holds, nothing is lost (SPEC K-06)."""

from __future__ import annotations

import pytest

from tests.access.test_decentralised_events import CAROL, subscribed
from tests.access.town import DOMAIN, Town
from tests.broker.desk import ALICE, BOB, SUBJECT
from wanderbus.broker.messages import LinkOpened
from wanderbus.protocol import Attach, Subscribe
from wanderbus.records import Arrived, Matched, Published
from wanderbus.subscription import EVERY_SUBJECT

OTHER = "Effect"


@pytest.fixture
def town() -> Town:
    return Town(spark_subjects=("*",))


def test_an_event_and_its_header_are_one_record_at_both_servers_and_wait_for_their_engines(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
    carol = town["s1"].attach(CAROL)
    subscribed(town, "s2", alice, "N > 1")
    subscribed(town, "s1", carol)
    for n in (1, 2):
        town["s1"].publish(bob, n)
    town.run()
    assert town["s1"].accepted(bob) == [1, 2]
    assert {(each.engine, bool(each.causal)) for each in town["s1"].written(Published)} == {("spark", True)}
    assert {(each.engine, bool(each.causal)) for each in town["s2"].written(Arrived)} == {("spark", True)}
    assert town["s2"].stream(alice) == town["s1"].stream(carol) == []
    town["s2"].match()
    assert town["s2"].stream(alice) == [2]
    town["s1"].match()
    assert town["s1"].stream(carol) == [1, 2]


def test_an_effect_is_delivered_after_its_cause_although_an_engine_is_late(town: Town) -> None:
    alice, bob, carol = town["s3"].attach(ALICE), town["s1"].attach(BOB), town["s2"].attach(CAROL)
    subscribed(town, "s3", alice, subject=EVERY_SUBJECT)
    subscribed(town, "s2", carol)
    town["s1"].publish(bob, 1)
    town.run()
    town["s2"].match()
    assert town["s2"].stream(carol) == [1]
    town["s2"].publish(carol, 2, OTHER)
    town.run()
    assert town["s3"].stream(alice) == []
    town["s3"].match()
    assert town["s3"].stream(alice) == [1, 2]


def test_an_engine_of_some_subjects_leaves_all_decentralised_events_to_the_broker() -> None:
    """Otherwise an effect that the broker matches would overtake its cause that waits for the engine."""
    town = Town(spark_subjects=(SUBJECT,))
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
    subscribed(town, "s2", alice, subject=EVERY_SUBJECT)
    town["s1"].publish(bob, 1)
    town["s1"].publish(bob, 2, OTHER)
    town.run()
    assert town["s2"].stream(alice) == [1, 2]
    assert not any(each.engine for each in town["s2"].written(Arrived))


@pytest.mark.parametrize("with_rows", [False, True])
def test_restarts_between_an_event_and_its_match_lose_and_repeat_nothing(town: Town, *, with_rows: bool) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
    subscribed(town, "s2", alice)
    town["s1"].publish(bob, 1)
    town.run()
    town["s2"].match()
    town["s1"].publish(bob, 2)
    town.run()
    for name in ("s2", "s1"):
        if with_rows:
            town[name].save()
        town.restart(name, with_rows=with_rows)
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB, epoch=2)
    town["s1"].publish(bob, 3)
    town.run()
    town["s2"].match()
    assert town["s2"].stream(alice) == [1, 2, 3]
    matched = [each.id for record in town["s2"].written(Matched) for each in record.events]
    assert len(matched) == len(set(matched)) == 3


def test_the_session_of_another_server_gets_no_decentralised_event_from_the_engine(town: Town) -> None:
    link, bob, post = 99, town["s1"].attach(BOB), town["s1"]
    post.give(LinkOpened(link, f"sip:s2@servers.{DOMAIN}", "s2", is_server=True))
    post.send(link, Attach(1, "default", None, True))
    post.send(link, Subscribe(2, EVERY_SUBJECT, "", None, (), this_device_only=False))
    carol = post.attach(CAROL)
    subscribed(town, "s1", carol)
    post.publish(bob, 1)
    post.match()
    assert post.stream(carol) == [1]
    assert [one.user for record in post.written(Matched) for each in record.events for one in each.notified] == [CAROL]
