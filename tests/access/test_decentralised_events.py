"""Decentralised channels at three brokers: decentralised, causal, durable, without their leader (SPEC K-04 to K-08)."""

from __future__ import annotations

import msgspec
import pytest

from tests.access.town import SERVERS, Town
from tests.broker.desk import ALICE, BOB, SUBJECT, rows_of
from wanderbus.broker.messages import CausalMessageArrived, DiskFreed, DiskFull, InterestEffective, LinkDropped
from wanderbus.channels.causal.interface import Hello
from wanderbus.channels.decentralised_channels import CAUSAL_PREFIX
from wanderbus.channels.interest.interest_set import MODES
from wanderbus.protocol import Done, Notify, NotifyGap, PublishAccepted, PublishRefused, Subscribe, Unsubscribe
from wanderbus.records import ArrivalsLost, Arrived, CausalChanged, Published, RolledBack

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


def test_k04_the_server_that_leads_the_channel_handles_no_event_of_others(town: Town) -> None:
    """Events of s2 go to s3 alone; s1 leads all channels and only tells servers what others want."""
    alice, bob = town["s3"].attach(ALICE), town["s2"].attach(BOB)
    subscribed(town, "s3", alice)
    to_leader = town.causal_to["s1"]
    for n in range(10):
        town["s2"].publish(bob, n)
    town.run()
    assert town["s3"].stream(alice) == list(range(10))
    assert town.causal_to["s1"] == to_leader
    assert not town["s1"].written(Arrived) + town["s1"].written(Published)


def test_j09_a_subscription_and_an_event_pass_a_bounded_number_of_servers_however_many_there_were(town: Town) -> None:
    """Hops of messages: a change to the leader, on to the others, and two confirmations; an event takes one."""
    alice, bob = town["s2"].attach(ALICE), town["s3"].attach(BOB)
    for number in range(30):
        town.hops_max = 0
        subscribed(town, "s2", alice, f"N == {number}")
        assert town.hops_max == 4, number
    town.hops_max = 0
    town["s3"].publish(bob, 7)
    assert [hops for _, _, payload, hops in town.sent if payload[:1] == CAUSAL_PREFIX] == [1]
    town.run()
    assert town.hops_max <= 2, "the event and its acknowledgement"
    assert town["s2"].stream(alice) == [7]


def test_j11_a_server_joins_a_channel_by_its_first_subscription_and_leaves_by_ending_the_last(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
    town["s1"].publish(bob, 1)
    town.run()
    assert phase(town, "s2", "destination") == (0, 0)
    identities = [subscribed(town, "s2", alice, expression) for expression in ("N > 1", "N < 9")]
    town["s1"].publish(bob, 2)
    town.run()
    assert phase(town, "s2", "destination") == (1, 0)
    for handle, identity in enumerate(identities, 90):
        town["s2"].send(alice, Unsubscribe(handle, identity))
        town.run()
    town["s1"].publish(bob, 3)
    town.run()
    assert phase(town, "s2", "destination") == (1, 0)
    assert town["s2"].stream(alice) == [2]


WANTED = ("N < 3", "N > 1 and N < 5", "N == 7", "N == 8", "N == 9 and M == 1", "N == 9 and M == 2", "N == 6 and M == 3")


def test_b10_b13_subscribers_get_the_same_whatever_the_merging() -> None:
    """Channels merge in four ways, and send each other different filters; nobody who subscribes notices."""
    streams, filters = {}, {}
    for mode in MODES:
        town = Town(mode=mode)
        alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
        identities = [subscribed(town, "s2", alice, expression) for expression in WANTED]
        filters[mode] = len(town.filters_at_leader("s2"))
        for n in range(12):
            town["s1"].publish(bob, n)
        town.run()
        town["s2"].send(alice, Unsubscribe(99, identities[0]))
        town.run()
        town["s1"].publish(bob, 0)
        town.run()
        streams[mode] = town["s2"].stream(alice)
    assert set(map(tuple, streams.values())) == {(0, 1, 2, 3, 4, 7, 8)}
    assert filters["none"] == len(WANTED) > filters["perfect"] > filters["imperfect"]


def phase(town: Town, server: str, name: str) -> tuple[int, int]:
    """The events that a phase of filtering has examined at a server, and those that it held back."""
    (row,) = [each for each in town[server].broker._phases.rows() if each["phase"] == name]
    return row["examined"], row["held_back"]


def test_n01_the_server_of_the_publisher_and_that_of_the_subscriber_count_what_they_filter(town: Town) -> None:
    """The merged filter of s2 lets an event through for a subscription that ends before it arrives."""
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
    identity = subscribed(town, "s2", alice, "N > 1")
    for n in range(5):
        town["s1"].publish(bob, n)
    town["s2"].send(alice, Unsubscribe(99, identity))
    assert phase(town, "s1", "channel") == (5, 2)
    assert phase(town, "s2", "destination") == (0, 0)
    town.run()
    assert phase(town, "s2", "destination") == (3, 3)
    subscribed(town, "s2", alice, "N == 7")
    town["s1"].publish(bob, 7)
    town.run()
    assert phase(town, "s2", "destination") == (4, 3)


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


def test_a_subscription_is_answered_when_effective_everywhere(town: Town) -> None:
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
    assert town["s1"].broker.state.decentralised.causal.outgoing.retained
    assert any(town[name].broker.state.decentralised.causal.kept for name in SERVERS)
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
        causal = town[name].broker.state.decentralised.causal
        assert not causal.outgoing.retained
    assert town["s1"].written(CausalChanged)


def test_a_subscription_to_every_subject_gets_decentralised_events(town: Town) -> None:
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
    ((of_leaders, _),) = post.broker._interest._reported.values()
    post.give(InterestEffective((of_leaders,)))
    assert [each.request for each in post.received(alice, Done)] == [7]


def roll_back(town: Town, name: str, log: list[bytes]) -> None:
    """Replace the log of a server by an earlier copy, and start it again; links that it closes are opened again."""
    town.kill(name)
    town[name].log[:] = log
    for each in SERVERS:
        town[each].now += 10
    town.restart(name)
    town.later(1)
    town.connect(name)
    town.later(3)


def test_a_publisher_that_was_rolled_back_goes_on_in_another_incarnation(town: Town) -> None:
    """Events 1 and 2, a copy, 3 and 4 that arrive; then 5 to 8 get the numbers of 3 and 4, and of others."""
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
    subscribed(town, "s2", alice)
    for n in (1, 2):
        town["s1"].publish(bob, n)
    town.run()
    copy = list(town["s1"].log)
    for n in (3, 4):
        town["s1"].publish(bob, n)
    town.run()
    roll_back(town, "s1", copy)
    again = town["s1"].attach(BOB, epoch=2)
    for n in (5, 6, 7, 8):
        town["s1"].publish(again, n)
    town.run()
    assert [n for n in town["s2"].stream(alice) if isinstance(n, int)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [each.reason for each in town["s2"].written(ArrivalsLost)] == ["server_lost"]
    assert len(town["s1"].written(RolledBack)) == 1


def test_a_rollback_is_noticed_after_the_log_has_grown_past_what_others_have(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
    subscribed(town, "s2", alice)
    town["s1"].publish(bob, 1)
    town.run()
    copy = list(town["s1"].log)
    town["s1"].publish(bob, 2)
    town.run()
    town.kill("s1")
    town["s1"].log[:] = copy
    town["s1"].now += 10
    town["s1"].start()
    again = town["s1"].attach(BOB, epoch=2)
    for n in (3, 4, 5, 6):
        town["s1"].publish(again, n)
    town.connect("s1")
    town.connect("s1")
    town.later(3)
    assert [n for n in town["s2"].stream(alice) if isinstance(n, int)] == [1, 2, 3, 4, 5, 6]
    assert len(town["s1"].written(RolledBack)) == 1


def two_readers(town: Town) -> tuple[int, int, int]:
    """Let readers at s2 and s3 have event 1 of a publisher at s1; return the links of all three."""
    alice, carol, bob = town["s2"].attach(ALICE), town["s3"].attach(CAROL), town["s1"].attach(BOB)
    subscribed(town, "s2", alice)
    subscribed(town, "s3", carol)
    town["s1"].publish(bob, 1)
    town.run()
    return alice, carol, bob


def test_an_event_that_others_still_need_is_published_again_and_delivered_once(town: Town) -> None:
    """Server s2 has the event, without the publisher knowing it; s3 gets it only after the rollback."""
    alice, carol, bob = two_readers(town)
    town.stopped |= {("s1", "s3"), ("s2", "s1")}
    town["s1"].publish(bob, 2)
    town.run()
    copy = list(town["s1"].log)
    town.stopped -= {("s2", "s1")}
    town["s1"].publish(bob, 3)
    town.run()
    town.stopped.clear()
    roll_back(town, "s1", copy)
    assert [n for n in town["s2"].stream(alice) if isinstance(n, int)] == [1, 2, 3]
    assert [n for n in town["s3"].stream(carol) if isinstance(n, int)] == [1, 2]
    assert len(town["s2"].written(Arrived)) == 3


def test_the_gap_after_a_rollback_follows_what_is_published_again(town: Town) -> None:
    """Event 2 waits for s2 in the copy; 3 waits for it too, and is lost with the log, which s3 proves."""
    alice, _, bob = two_readers(town)
    town.stopped |= {("s1", "s2")}
    town["s1"].publish(bob, 2)
    town.run()
    copy = list(town["s1"].log)
    town["s1"].publish(bob, 3)
    town.run()
    town.stopped.clear()
    roll_back(town, "s1", copy)
    again = town["s1"].attach(BOB, epoch=2)
    town["s1"].publish(again, 4)
    town.run()
    heard = town["s2"].stream(alice)
    assert [n if isinstance(n, int) else "gap" for n in heard] == [1, 2, "gap", 4]


def test_a_receiver_that_was_rolled_back_learns_what_it_has_acknowledged(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s1"].attach(BOB)
    subscribed(town, "s2", alice)
    copy = list(town["s2"].log)
    for n in (1, 2):
        town["s1"].publish(bob, n)
    town.run()
    roll_back(town, "s2", copy)
    town["s1"].publish(bob, 3)
    town.run()
    again = town["s2"].attach(ALICE)
    gaps = [loss.reason for each in town["s2"].received(again, NotifyGap) for loss in each.lost]
    assert {"server_restored", "server_lost"} == set(gaps)
    assert town["s2"].stream(again)[-1] == 3


def test_a_server_forgets_routes_that_may_have_changed_since_its_copy(town: Town) -> None:
    """The subscription is younger than the copy: no event is published by the routes of the copy."""
    bob = town["s3"].attach(BOB)
    town["s3"].publish(bob, 1)
    copy = list(town["s3"].log)
    alice = town["s2"].attach(ALICE)
    subscribed(town, "s2", alice)
    town.kill("s3")
    town["s3"].log[:] = copy
    town["s3"].now += 10
    town["s3"].start()
    early = town["s3"].attach(BOB, epoch=2)
    town["s3"].publish(early, 2)
    town["s3"].broker._rollback.found("a test says so")
    town["s3"].publish(early, 3)
    refusals = town["s3"].received(early, PublishRefused)
    assert [each.limit for each in refusals] == ["routes_unknown"]
    town.connect("s3")
    town.later(3)
    town["s3"].publish(early, 4)
    town.run()
    heard = town["s2"].stream(alice)
    assert (heard[-1], any(isinstance(each, tuple) for each in heard)) == (4, True)
