"""The agent of the original ECI: by address, once, and without a report of losses (SPEC A-09, X36)."""

from __future__ import annotations

import pytest

from tests.client.eci_town import SUBJECT, EciTown, Pager
from wanderbus import protocol
from wanderbus.client.machine.baseline import ECI_SOCKET, EciAgentMachine
from wanderbus.client.machine.messages import (
    Acknowledge,
    AgentProperties,
    AskBroker,
    Connect,
    ConnectRefused,
    Disconnect,
    Disconnected,
    PublishEvent,
    PublishSettled,
    RequestSettled,
    ServerUnreachable,
    StartReading,
)
from wanderbus.event import Event, EventId, Position
from wanderbus.limits import UDP_PAYLOAD_BYTES_MAX
from wanderbus.machine import Address, DatagramReceived, Output, SendDatagram, SetTimer, TimerFired
from wanderbus.simulation.network import PathConditions
from wanderbus.subscription import Frequency

BROKER: Address = ("192.0.2.1", 5070)
HERE: Address = ("192.0.2.9", 4000)


@pytest.fixture
def town() -> EciTown:
    return EciTown()


def alone() -> EciAgentMachine:
    """An agent whose broker is the test."""
    properties = AgentProperties(uri="eci://x", server=BROKER, broker="eci://x", device="", epoch=7)
    return EciAgentMachine(properties, data=HERE)


def sent_messages(outputs: list[Output]) -> list[protocol.FromAgent]:
    return [protocol.decode_from_agent(each.data) for each in outputs if isinstance(each, SendDatagram)]


def receive(agent: EciAgentMachine, message: protocol.BrokerMessage, *, source: Address = BROKER) -> list[Output]:
    return agent.step([DatagramReceived(ECI_SOCKET, source, protocol.encode(message))], 0.0)


def attached() -> EciAgentMachine:
    agent = alone()
    agent.step([Connect()], 0.0)
    receive(agent, protocol.Attachment(99))
    return agent


def test_connecting_is_one_datagram_and_the_same_again_behind_the_challenge(town: EciTown) -> None:
    pager = Pager(town).connect()
    assert pager.statuses == ["CONNECTED"]
    challenge, _ = town.to(pager.address)
    attach = protocol.encode(protocol.Attach(1, "default", None, keep=True, knows_waits=True))
    assert [data for source, _, data in town.sent if source == pager.address] == [attach, challenge + attach]


def test_a_challenge_is_answered_to_the_broker_alone_and_only_while_the_agent_attaches() -> None:
    challenge = b"\xc1" + bytes(8)
    agent = alone()
    challenged = DatagramReceived(ECI_SOCKET, BROKER, challenge)
    assert agent.step([challenged], 0.0) == []
    agent.step([Connect()], 0.0)
    assert agent.step([DatagramReceived(ECI_SOCKET, ("203.0.113.1", 5070), challenge)], 0.0) == []
    (answer,) = agent.step([challenged], 0.0)
    assert isinstance(answer, SendDatagram)
    assert (answer.destination, answer.data[:9]) == (BROKER, challenge)
    receive(agent, protocol.Attachment(99))
    assert agent.step([challenged], 0.0) == []
    assert agent.unreadable == 0


def test_publish_filter_restrict_and_unsubscribe(town: EciTown) -> None:
    seller, buyer = Pager(town, "10.1.0.1").connect(), Pager(town, "10.2.0.1").connect()
    cheap = buyer.subscribe("(N < 3)")
    seller.publish(1, 2, 3)
    town.run(0.2)
    assert (seller.accepted, buyer.received) == ([1, 2, 3], [1, 2])
    buyer.ask(protocol.Restrict(buyer.next_request(), cheap.id, (Frequency(3600.0),)))
    seller.publish(1)
    town.run(0.2)
    assert buyer.received == [1, 2]
    buyer.ask(protocol.Restrict(buyer.next_request(), cheap.id, ()))
    seller.publish(2)
    town.run(0.2)
    buyer.ask(protocol.Unsubscribe(buyer.next_request(), cheap.id))
    seller.publish(1)
    town.run(0.2)
    assert buyer.received == [1, 2, 2]
    assert len(seller.accepted) == 6


def test_every_message_is_one_datagram_and_nothing_answers_a_notification(town: EciTown) -> None:
    """SPEC X36: neither the transport nor the application acknowledges."""
    seller, buyer = Pager(town, "10.1.0.1").connect(), Pager(town, "10.2.0.1").connect()
    buyer.subscribe()
    town.sent.clear()
    seller.publish(*range(20))
    town.run(1.0)
    buyer.node.feed([Acknowledge("wb-1", Position(1, 20))])
    town.run(1.0)
    assert buyer.received == list(range(20))
    assert [source for source, _, _ in town.sent if source == buyer.address] == []
    assert len([source for source, _, _ in town.sent if source == seller.address]) == 20
    assert len(town.to(buyer.address)) == len(town.to(seller.address)) == 20


def test_lost_datagrams_are_not_retransmitted(town: EciTown) -> None:
    seller, buyer = Pager(town, "10.1.0.1").connect(), Pager(town, "10.2.0.1").connect()
    buyer.subscribe()
    town.network.cut("10.2.0.1")
    seller.publish(1, 2)
    town.run(5.0)
    town.network.mend("10.2.0.1")
    seller.publish(3)
    town.run(5.0)
    assert buyer.received == [3]
    assert buyer.statuses == ["CONNECTED"]


def test_an_unanswered_publish_is_settled_after_its_timeout_with_a_reason(town: EciTown) -> None:
    pager = Pager(town).connect()
    town.network.cut("10.1.0.1")
    town.sent.clear()
    pager.publish(1)
    town.run(1.9)
    assert pager.all_of(PublishSettled) == []
    town.run(0.2)
    reason = "no response within 2 s; the original ECI does not retransmit"
    assert pager.all_of(PublishSettled) == [PublishSettled(1, None, reason, answered=False)]
    assert len(town.sent) == 1
    settled = pager.ask(protocol.Query(1), wait_s=2.0)
    assert settled.refusal == protocol.RequestRefused(1, reason)
    assert not settled.answered
    assert pager.statuses == ["CONNECTED"], "nobody told it anything"


def test_each_answer_has_its_own_time(town: EciTown) -> None:
    pager = Pager(town).connect()
    town.network.cut("10.1.0.1")
    for value in (1, 2, 3):
        pager.publish(value)
        town.run(0.5)
    assert pager.all_of(PublishSettled) == []
    for count in (1, 2, 3):
        town.run(0.5)
        assert len(pager.all_of(PublishSettled)) == count


def test_an_answer_in_time_settles_once_and_one_that_is_late_not_again() -> None:
    agent = attached()
    event = protocol.encode_event(Event(SUBJECT, {}))
    agent.step([PublishEvent(1, event), PublishEvent(2, event)], 0.0)
    accepted = protocol.PublishAccepted(1, EventId("wb", 1, 5))
    assert receive(agent, accepted) == [PublishSettled(1, EventId("wb", 1, 5))]
    assert [each.number for each in agent.step([TimerFired("answer")], 2.0) if isinstance(each, PublishSettled)] == [2]
    assert receive(agent, protocol.PublishAccepted(2, EventId("wb", 1, 6))) == []


def test_requests_before_the_attachment_wait_for_it() -> None:
    agent = alone()
    first = agent.step([Connect(), AskBroker(protocol.Query(1))], 0.0)
    assert sent_messages(first) == [protocol.Attach(7, "default", None, keep=True, knows_waits=True)]
    assert sent_messages(receive(agent, protocol.Attachment(99))) == [protocol.Query(1)]
    assert sent_messages(receive(agent, protocol.Attachment(99))) == [], "a second answer changes nothing"


def test_connecting_to_nobody_ends_in_time() -> None:
    agent = alone()
    outputs = agent.step([Connect(), AskBroker(protocol.Query(1))], 0.0)
    assert [each.at for each in outputs if isinstance(each, SetTimer)] == [2.0, 2.0]
    outputs = agent.step([TimerFired("attach"), TimerFired("answer")], 2.0)
    assert [type(each) for each in outputs] == [ServerUnreachable, RequestSettled]
    assert not agent.connected


def test_a_refusal_of_the_attachment_is_reported() -> None:
    agent = alone()
    agent.step([Connect()], 0.0)
    refusal = protocol.RequestRefused(0, "identities_max is 1, and it is reached", limit="identities_max")
    assert receive(agent, refusal) == [ConnectRefused("attachment", None, refusal.reason, refusal.limit)]


def test_a_message_above_one_datagram_is_refused_and_not_sent() -> None:
    agent = attached()
    long = protocol.Subscribe(1, SUBJECT, "x" * UDP_PAYLOAD_BYTES_MAX, None, (), False)
    (settled,) = agent.step([AskBroker(long)], 0.0)
    assert isinstance(settled, RequestSettled)
    assert settled.refusal is not None
    assert settled.refusal.limit == "udp_payload_bytes_max"
    assert "datagram" in settled.refusal.reason
    assert settled.answered
    large = protocol.encode_event(Event(SUBJECT, {"N": "x" * UDP_PAYLOAD_BYTES_MAX}))
    outputs = agent.step([PublishEvent(1, large)], 0.0)
    assert [type(each) for each in outputs] == [PublishSettled]
    small = Event(SUBJECT, {})
    publish = PublishEvent(2, protocol.encode_event(small))
    assert sent_messages(agent.step([publish], 0.0)) == [protocol.Publish(2, small)]


def test_the_longest_datagram_is_sent() -> None:
    agent = attached()
    overhead = len(protocol.encode(protocol.Subscribe(1, SUBJECT, "x" * 60_000, None, (), False))) - 60_000
    fits = protocol.Subscribe(1, SUBJECT, "x" * (UDP_PAYLOAD_BYTES_MAX - overhead), None, (), False)
    assert sent_messages(agent.step([AskBroker(fits)], 0.0)) == [fits]


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x91\x09", b"REGISTER sip:x SIP/2.0\r\n\r\n"])
def test_malformed_datagrams_are_ignored(data: bytes) -> None:
    agent = attached()
    assert agent.step([DatagramReceived(ECI_SOCKET, BROKER, data)], 0.0) == []
    assert agent.unreadable == 1
    assert agent.connected


def test_only_the_brokers_datagrams_are_accepted() -> None:
    agent = alone()
    agent.step([Connect()], 0.0)
    assert receive(agent, protocol.Attachment(99), source=("192.0.2.2", 5070)) == []
    assert receive(agent, protocol.Attachment(99), source=("192.0.2.1", 5071)) == []
    assert not agent.connected


def test_leaving_sends_no_message() -> None:
    agent = attached()
    assert agent.step([Disconnect()], 0.0) == [Disconnected()]
    assert not agent.connected


def test_e2_an_address_change_ends_the_stream_and_the_agent_does_not_know(town: EciTown) -> None:
    """SPEC A-09, EVALUATIONS E2: the subscriptions are those of the old address, and so are the notifications."""
    seller, buyer = Pager(town, "10.1.0.1").connect(), Pager(town, "10.2.0.1").connect()
    buyer.subscribe()
    seller.publish(1)
    town.run(0.2)
    before = len(town.sent)
    buyer.move("10.2.0.2")
    assert len(town.sent) == before, "the broker is not told"
    seller.publish(2)
    town.run(0.2)
    assert buyer.received == [1]
    assert (buyer.statuses, buyer.agent.connected) == (["CONNECTED"], True)
    assert len(town.to(("10.2.0.1", 40_000))) == 5, "the broker goes on sending to where the user was"
    settled = buyer.ask(protocol.Query(buyer.next_request()), wait_s=2.0)
    assert not settled.answered, "who is there now is somebody else"


def test_the_next_agent_at_an_address_is_its_user(town: EciTown) -> None:
    seller, buyer = Pager(town, "10.1.0.1").connect(), Pager(town, "10.2.0.1").connect()
    mine = buyer.subscribe()
    buyer.node.kill()
    stranger = Pager(town, "10.2.0.1", epoch=2).connect()
    assert stranger.ask(protocol.Query(1)).subscriptions == (mine,)
    stranger.node.feed([StartReading(mine.id)])
    seller.publish(1)
    town.run(0.2)
    assert stranger.received == [1]


@pytest.mark.parametrize(("port", "found"), [(40_000, 1), (40_001, 0)])
def test_a_restart_is_the_same_user_only_at_the_same_port(town: EciTown, port: int, found: int) -> None:
    pager = Pager(town).connect()
    mine = pager.subscribe()
    pager.node.kill()
    again = Pager(town, port=port, epoch=2).connect()
    assert len(again.ask(protocol.Query(1)).subscriptions) == found
    again.node.feed([StartReading(mine.id)])
    again.publish(1)
    town.run(0.2)
    assert again.accepted == [1], "another life numbers anew"
    assert again.received == [1] * found


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_bad_network_loses_but_never_repeats_or_reorders(seed: int) -> None:
    """A simulated world: the received events are some of the published ones, in the order of the log."""
    conditions = PathConditions(loss=0.2, duplication=0.2, delay_min_s=0.001, delay_max_s=0.2, spike=0.1, damage=0.0)
    town = EciTown(seed=seed)
    seller = Pager(town, "10.1.0.1").connect()
    buyers = [Pager(town, f"10.2.0.{n}").connect() for n in (1, 2, 3)]
    for buyer in buyers:
        buyer.subscribe("(N > 10)")
    town.network.conditions = conditions
    for value in range(200):
        seller.publish(value)
        town.run(0.02)
        if value == 100:
            town.restart()
        if value == 150:
            buyers[2].move("10.9.0.1")
    town.network.conditions = PathConditions()
    town.run(5.0)
    settled = seller.all_of(PublishSettled)
    assert sorted(each.number for each in settled) == list(range(1, 201)), f"seed {seed}"
    offsets = {each.number - 1: each.id.number for each in settled if each.id is not None}
    for buyer in buyers:
        assert len(set(buyer.received)) == len(buyer.received), f"seed {seed}: repeated"
        assert all(value > 10 for value in buyer.received)
        known = [offsets[value] for value in buyer.received if value in offsets]
        assert known == sorted(known), f"seed {seed}: out of order"
        assert 10 < len(buyer.received) < 189, f"seed {seed}: {len(buyer.received)}"
    assert max(buyers[2].received) <= 150
