"""Interest by multicast at three brokers, whatever the network does to it (SPEC J-12, K-05)."""

from __future__ import annotations

import msgspec
import pytest

from tests.access.town import Town
from tests.broker.desk import ALICE, BOB, SUBJECT
from wanderbus.channels.interest.messages import ChangeForMany, NumberedFilter, Stream, encode_for_many
from wanderbus.channels.interest.multicast import CONFIRM_S, MISSES_MAX, MulticastMissed
from wanderbus.channels.interest.outgoing_stream import RETRY_S
from wanderbus.machine import DatagramReceived
from wanderbus.peers.messages import ServerLinkClosed
from wanderbus.protocol import Done, Subscribe
from wanderbus.simulation.domains.multicast_network import GROUP

STREAM = Stream(0, "s1")


@pytest.fixture
def town() -> Town:
    return Town(has_multicast=True)


def subscribe(town: Town, link: int, expression: str, name: str = "s1") -> int:
    """Ask for a subscription; return the number of the request."""
    post = town[name]
    handle = post._handles = post._handles + 1
    post.send(link, Subscribe(handle, SUBJECT, expression, None, (), this_device_only=False, reader=handle))
    town.run()
    return handle


def counts(town: Town, link: int, request: int, name: str = "s1") -> bool:
    """True if the subscription counts everywhere, so that it is answered."""
    return any(each.request == request for each in town[name].received(link, Done))


def interest(town: Town, name: str) -> list[str]:
    """The filters of s1 that a server knows."""
    return [each.expression for each in town[name].broker.state.decentralised.routes.filters(("s1", STREAM))]


def position(town: Town, name: str) -> tuple[int, int] | None:
    return town[name].broker.state.decentralised.routes.position(("s1", STREAM))


def test_a_change_for_two_servers_is_one_datagram_and_no_message_but_confirmations(town: Town) -> None:
    alice = town["s1"].attach(ALICE)
    town.run()
    town.interest_messages = 0
    assert counts(town, alice, subscribe(town, alice, "N < 5"))
    assert (len(town.datagrams), town.interest_messages) == (1, 2)
    assert interest(town, "s2") == interest(town, "s3") == ["N < 5"]
    bob = town["s2"].attach(BOB)
    town["s2"].publish(bob, 3)
    town.run()
    assert town["s1"].stream(alice) == [3]


def test_a_subscription_waits_for_a_server_that_lost_the_datagram(town: Town) -> None:
    alice = town["s1"].attach(ALICE)
    town.deaf = {"s3"}
    request = subscribe(town, alice, "N < 5")
    assert not counts(town, alice, request)
    assert (interest(town, "s2"), interest(town, "s3")) == (["N < 5"], [])
    town.later(CONFIRM_S)
    assert counts(town, alice, request)
    assert interest(town, "s3") == ["N < 5"]
    sent = town["s1"].interest.multicast_counts()
    assert [(sent[name].sent, sent[name].repaired) for name in ("s2", "s3")] == [(1, 0), (1, 1)]


def test_lost_repeated_and_reordered_datagrams_are_harmless(town: Town) -> None:
    alice = town["s1"].attach(ALICE)
    town.deaf = {"s2", "s3"}
    requests = [subscribe(town, alice, f"N == {number}") for number in range(4)]
    assert len(town.datagrams) == 4
    town.deaf = set()
    for number in (2, 0, 0, 3, 1, 2, 0):
        town.replay(number)
    town.later(CONFIRM_S)
    assert all(counts(town, alice, request) for request in requests)
    for _ in range(2):
        assert interest(town, "s2") == interest(town, "s3") == ["N in (0, 1, 2, 3)"]
        before = position(town, "s2")
        messages = town.interest_messages
        for number in range(4):
            town.replay(number)
        assert (position(town, "s2"), town.interest_messages) == (before, messages), "a repeat is not answered"
        town.restart("s2")
        town.later(RETRY_S)


def test_a_datagram_of_an_earlier_life_of_the_leader_is_ignored(town: Town) -> None:
    alice = town["s1"].attach(ALICE)
    subscribe(town, alice, "N < 5")
    town.restart("s1")
    town.later(1.0)
    before = position(town, "s2")
    messages = town.interest_messages
    town.replay(0)
    assert (position(town, "s2"), town.interest_messages) == (before, messages)


def test_a_datagram_is_ignored_without_a_link_to_the_leader(town: Town) -> None:
    alice = town["s1"].attach(ALICE)
    (link,) = [each for each, ends in town.wires.items() if ends == ("s2", "s1")]
    s2 = town["s2"]
    s2.execute(s2.interest.step([ServerLinkClosed(link, "s1", "cut")], s2.now))
    request = subscribe(town, alice, "N < 5")
    assert len(town.datagrams) == 1, "the leader does not know yet that the link is closed"
    assert interest(town, "s2") == []
    assert not counts(town, alice, request)
    town.open("s2", "s1")
    town.run()
    assert interest(town, "s2") == ["N < 5"]
    assert counts(town, alice, request)


def test_an_unusable_datagram_ends_no_link(town: Town) -> None:
    """Another server with the domain's key can send it in the name of the leader."""
    found = position(town, "s2")
    assert found is not None
    incarnation, version = found
    wires = dict(town.wires)
    wrong = ChangeForMany(
        STREAM, incarnation, version + 1, ((version, b"\x06"),), (NumberedFilter(9, SUBJECT, "N =="),), ()
    )
    group = town.group("s1")
    for payload in (encode_for_many(wrong), b"\xc1", msgspec.msgpack.encode(["x"])):
        given = DatagramReceived("multicast", GROUP, group.seal(payload).data)
        town["s2"].execute(town["s2"].interest.step([given], 0.0))
    assert town.wires == wires
    assert position(town, "s2") == found


def test_a_server_without_multicast_is_left_out_with_one_report(town: Town) -> None:
    alice = town["s1"].attach(ALICE)
    town.deaf = {"s3"}
    for number in range(MISSES_MAX):
        request = subscribe(town, alice, f"N == {number}")
        town.later(CONFIRM_S)
        assert counts(town, alice, request)
    assert town["s1"].reports == [MulticastMissed("s3")]
    datagrams = len(town.datagrams)
    assert counts(town, alice, subscribe(town, alice, "N == 9")), "without waiting for a repair"
    assert len(town.datagrams) == datagrams, "one server alone gets a message"


def test_a_server_with_a_slow_disk_is_not_left_out(town: Town) -> None:
    alice, slow = town["s1"].attach(ALICE), town["s3"]
    for number in range(2 * MISSES_MAX):
        slow.held = True
        request = subscribe(town, alice, f"N == {number}")
        town.later(CONFIRM_S)
        assert not counts(town, alice, request)
        slow.held = False
        slow.sync()
        town.run()
        assert counts(town, alice, request)
    assert town["s1"].reports == []
    sent = town["s1"].interest.multicast_counts()["s3"]
    assert (sent.sent, sent.repaired) == (2 * MISSES_MAX, 2 * MISSES_MAX)
