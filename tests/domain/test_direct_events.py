"""Decentralised channels at three brokers: direct, causal, durable, without their leader (SPEC K-04 to K-08)."""

from __future__ import annotations

import msgspec
import pytest

from tests.broker.desk import ALICE, BOB, SUBJECT, rows_of
from tests.domain.town import SERVERS, Town
from wanderbus.broker.messages import CausalMessageArrived, DiskFreed, DiskFull, InterestCounts, LinkDropped
from wanderbus.channels.causal.interface import Hello
from wanderbus.protocol import Done, Notify, PublishAccepted, PublishRefused, Subscribe
from wanderbus.records import ArrivalsLost, Arrived, CausalChanged, Published

CAROL = "sip:carol@example.org"


@pytest.fixture
def town() -> Town:
    return Town()


def subscribed(town: Town, name: str, link: int, expression: str = "", subject: str = SUBJECT) -> str:
    """Subscribe at a server; return the id once it counts everywhere."""
    post = town[name]
    handle = post._handles = post._handles + 1
    post.send(link, Subscribe(handle, subject, expression, None, (), this_device_only=False, reader=handle))
    town.run()
    answers = [each for each in post.received(link, Done) if each.request == handle]
    assert answers, "the subscription does not count"
    return answers[0].subscriptions[0].id


def test_an_event_reaches_the_servers_that_want_it_and_no_other(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
    subscribed(town, "s2", alice, "N > 1")
    for n in (1, 2):
        town["s1"].publish(bob, n)
    town.run()
    assert town["s2"].stream(alice) == [2]
    assert not town["s3"].written(Arrived)
    assert len(town["s2"].written(Arrived)) == 1


def test_the_publisher_is_answered_at_once_and_local_sessions_get_the_event(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
    carol = town["s1"].attach(CAROL)
    subscribed(town, "s2", alice)
    subscribed(town, "s1", carol)
    town.stopped = {("s1", "s2"), ("s2", "s1")}
    town["s1"].publish(bob, 1)
    assert town["s1"].accepted(bob) == [1]
    assert town["s1"].stream(carol) == [1]
    assert town["s2"].stream(alice) == []
    town.stopped.clear()
    town.run()
    assert town["s2"].stream(alice) == [1]


def test_the_event_and_its_header_are_one_record(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
    subscribed(town, "s2", alice)
    town["s1"].publish(bob, 1)
    town.run()
    assert town["s1"].written(Published)[-1].causal
    arrived = town["s2"].written(Arrived)[-1]
    assert arrived.causal
    assert (arrived.arrival.leader, arrived.arrival.number) == ("s1", 1)
    assert town["s2"].received(alice, Notify)[0].id == town["s1"].received(bob, PublishAccepted)[0].id


def test_a_reply_waits_for_its_cause(town: Town) -> None:
    alice, bob, carol = town["s1"].attach(ALICE), town["s2"].attach(BOB), town["s3"].attach(CAROL)
    subscribed(town, "s2", bob)
    subscribed(town, "s3", carol)
    town.stopped.add(("s1", "s3"))
    town["s1"].publish(alice, 1)
    town.run()
    assert town["s2"].stream(bob) == [1]
    town["s2"].publish(bob, 2)
    town.run()
    assert town["s3"].stream(carol) == []
    town.stopped.clear()
    town.run()
    assert town["s3"].stream(carol) == [1, 2]


def test_nothing_is_sent_before_it_is_durable(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
    subscribed(town, "s2", alice)
    post, sent = town["s1"], town.causal
    post.held = True
    post.publish(bob, 1)
    assert (town.causal, post.accepted(bob)) == (sent, [])
    post.held = False
    post.sync()
    assert town.causal > sent
    assert post.accepted(bob) == [1]


def test_a_subscription_is_answered_when_it_counts_everywhere(town: Town) -> None:
    alice = town["s2"].attach(ALICE)
    town.kill("s3")
    post = town["s2"]
    post.send(alice, Subscribe(7, SUBJECT, "", None, (), this_device_only=False))
    town.run()
    town.later(3)
    assert not post.received(alice, Done)
    town.restart("s3")
    town.later(3)
    assert [each.request for each in post.received(alice, Done)] == [7]


@pytest.mark.parametrize("with_rows", [False, True])
def test_known_routes_work_without_the_leader_and_after_a_restart(town: Town, with_rows: bool) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s3"].attach(BOB)
    subscribed(town, "s2", alice)
    town.kill("s1")
    town["s3"].publish(bob, 1)
    town.run()
    town["s3"].save()
    town.restart("s3", with_rows=with_rows)
    bob = town["s3"].attach(BOB, epoch=2)
    town["s3"].publish(bob, 2)
    town.run()
    assert town["s2"].stream(alice) == [1, 2]


def test_an_event_is_refused_for_a_while_if_a_route_is_unknown() -> None:
    town = Town()
    town.kill("s1")
    town["s3"].log.clear()
    town.restart("s3")
    bob = town["s3"].attach(BOB)
    town["s3"].publish(bob, 1)
    (refused,) = town["s3"].received(bob, PublishRefused)
    assert refused.limit == "routes_unknown"
    assert "s1 has not told s3" in refused.reason
    town.restart("s1")
    town.later(3)
    town["s3"].publish(bob, 2)
    assert town["s3"].accepted(bob) == [2]


def test_a_repeated_publish_is_recognised(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
    subscribed(town, "s2", alice)
    town["s1"].publish(bob, 1)
    town.restart("s1")
    bob = town["s1"].attach(BOB)
    town["s1"].publish(bob, 1)
    town.run()
    assert town["s1"].accepted(bob) == [1]
    assert town["s2"].stream(alice) == [1]


def test_an_event_on_its_way_arrives_after_a_crash_of_either_side(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
    subscribed(town, "s2", alice)
    town.stopped = {("s1", "s2")}
    town["s1"].publish(bob, 1)
    town["s1"].save()
    town.restart("s1", with_rows=True)
    town["s1"].publish(town["s1"].attach(BOB, epoch=2), 2)
    town.restart("s2")
    alice = town["s2"].attach(ALICE)
    town.stopped.clear()
    town.run()
    town.later(3)
    assert town["s2"].stream(alice) == [1, 2]
    assert [record.arrival.number for record in town["s2"].written(Arrived)] == [1, 2]


def test_the_state_is_the_same_from_rows_and_from_the_log(town: Town) -> None:
    links = {name: town[name].attach(user) for name, user in zip(SERVERS, (ALICE, BOB, CAROL), strict=True)}
    for name, link in links.items():
        subscribed(town, name, link, "N != 5")
    for n in range(12):
        name = SERVERS[n % 3]
        town[name].publish(links[name], n)
        if n == 6:
            town.stopped.add(("s1", "s3"))
        if n % 2:
            town.run()
        if n % 4 == 3:
            for each in SERVERS:
                town[each].save()
    assert town["s1"].broker.state.direct.causal.outgoing.retained
    assert any(town[name].broker.state.direct.causal.kept for name in SERVERS)
    for name in SERVERS:
        live = rows_of(town[name].broker.state)
        assert rows_of(town[name].recovered()) == live
        assert rows_of(town[name].recovered(from_log_alone=True)) == live


def test_a_settled_event_is_forgotten(town: Town) -> None:
    alice, bob, carol = town["s1"].attach(ALICE), town["s2"].attach(BOB), town["s3"].attach(CAROL)
    subscribed(town, "s2", bob)
    subscribed(town, "s3", carol)
    for n in range(5):
        town["s1"].publish(alice, n)
        town.run()
    town.later(2)
    for name in SERVERS:
        causal = town[name].broker.state.direct.causal
        assert not causal.outgoing.retained
    assert town["s1"].written(CausalChanged)


def test_a_subscription_to_every_subject_gets_direct_events(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
    subscribed(town, "s2", alice, subject="*")
    town["s1"].publish(bob, 1)
    town.run()
    assert town["s2"].stream(alice) == [1]


def test_a_server_with_another_numbering_is_refused(town: Town) -> None:
    """Numbers of servers are their places in the domain file, so the files must be the same."""
    post = town["s1"]
    link = next(number for number, ends in town.wires.items() if ends == ("s1", "s2"))
    other = msgspec.msgpack.encode(Hello(1, 0, 0, b"other"))
    (dropped,) = [each for each in post.step(CausalMessageArrived(link, "s2", other)) if isinstance(each, LinkDropped)]
    assert dropped.link == link
    assert "use the same file" in dropped.reason


@pytest.mark.parametrize("payload", [b"", b"\xc0", b"\x93\xa7Carried\xc4\x01\xff\xc4\x00"])
def test_a_malformed_message_closes_the_link(town: Town, payload: bytes) -> None:
    post = town["s1"]
    link = next(number for number, ends in town.wires.items() if ends == ("s1", "s2"))
    outputs = post.step(CausalMessageArrived(link, "s2", payload))
    assert [each.link for each in outputs if isinstance(each, LinkDropped)] == [link]


def test_after_a_full_disk_everything_is_sent_again(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
    subscribed(town, "s2", alice)
    town["s2"].give(DiskFull())
    town["s1"].publish(bob, 1)
    town.run()
    assert town["s2"].stream(alice) == []
    town["s2"].give(DiskFreed())
    town.connect("s2")
    town.later(3)
    assert town["s2"].stream(alice) == [1]


def test_a_lost_log_is_a_gap_for_those_that_wait(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
    subscribed(town, "s2", alice)
    town["s1"].publish(bob, 1)
    town.run()
    town.kill("s1")
    town["s1"].log.clear()
    town["s1"].now += 1000
    town.restart("s1")
    town.later(3)
    assert [each.reason for each in town["s2"].written(ArrivalsLost)] == ["server_lost"]
    assert town["s2"].stream(alice) == [1, (2, 2)]
    town["s1"].publish(town["s1"].attach(BOB), 2)
    town.run()
    assert town["s2"].stream(alice) == [1, (2, 2), 2]


def test_a_message_of_a_closed_link_is_ignored(town: Town) -> None:
    """A message that was on its way must not be taken for part of a later link."""
    link = next(number for number, ends in town.wires.items() if ends == ("s1", "s2"))
    town.open("s1", "s2")
    town.run()
    assert town["s2"].step(CausalMessageArrived(link, "s1", msgspec.msgpack.encode(Hello(1, 0, 0, b"other")))) == []


def test_a_subscription_of_both_models_waits_for_both() -> None:
    """The sessions at leaders are not in this town, so their report is given by hand."""
    town = Town(has_ordered=True)
    post = town["s2"]
    alice = post.attach(ALICE)
    post.send(alice, Subscribe(7, "*", "", None, (), this_device_only=False))
    town.run()
    assert not post.received(alice, Done)
    post.give(InterestCounts(tuple(post.broker._interest._held)))
    assert [each.request for each in post.received(alice, Done)] == [7]
