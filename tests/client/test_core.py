"""The agent as a whole: connecting, moving, healing, leaving (SPEC A-01, D-06 to D-10, E-07, G-01, G-02, C-14)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import pytest

from tests.client.town import DATA_ADDRESS, SIP_PORTS, Phone, Town, connected
from wanderbus import protocol
from wanderbus.broker.messages import SendOnLink
from wanderbus.broker.readers import Link
from wanderbus.broker.state.rows import device_key
from wanderbus.client.machine.messages import (
    Acknowledge,
    AgentStatusChanged,
    ConnectRefused,
    Disconnect,
    Disconnected,
    Moved,
    PublishEvent,
    PublishSettled,
)
from wanderbus.event import Event, Position
from wanderbus.machine import DatagramReceived, SendDatagram
from wanderbus.mobility.messages import (
    SessionEstablished,
    SessionRemoved,
    UserAgentInput,
    UserAgentOutput,
)
from wanderbus.mobility.session.session import RemoteMediaStatus
from wanderbus.mobility.user_agent import UserAgent
from wanderbus.simulation.network import PathConditions
from wanderbus.simulation.server import SERVER_ADDRESS, SERVER_IP
from wanderbus.sip.message.message import Response


@pytest.fixture
def town() -> Town:
    return Town()


Over = Literal["UDP", "TCP"]

over_both = pytest.mark.parametrize("over", ["UDP", "TCP"])
"""Transports of the data channel: the handling of failures is the same for both (SPEC F-01)."""


def test_d06_register_and_invite_and_then_data_to_the_address_in_sdp(town: Town) -> None:
    start = town.world.now
    phone = Phone(town).connect()
    sent = town.since(start)
    methods = [s.method for s in sent if s.source[0] == phone.ip and s.method]
    assert methods.index("REGISTER") < methods.index("INVITE") < methods.index("ACK")
    first_data = next(i for i, s in enumerate(sent) if s.source == (phone.ip, 40_000))
    answered = next(
        i
        for i, s in enumerate(sent)
        if isinstance(s.message, Response) and s.message.cseq.method == "INVITE" and s.message.status == 200
    )
    assert answered < first_data
    assert sent[first_data].destination == DATA_ADDRESS
    assert phone.all_of(AgentStatusChanged) == [
        AgentStatusChanged("CONNECTED", (phone.ip, 40_000), "session established")
    ]


def test_a01_a08_events_travel_between_agent_and_broker_and_never_over_sip(town: Town) -> None:
    alice, bob = connected(town), connected(town, "bob", number=2)
    start = town.world.now
    for n in (1, 2, 3):
        bob.publish(n)
    town.run(1.0)
    assert alice.received == bob.received == [1, 2, 3]
    assert [settled.number for settled in bob.all_of(PublishSettled)] == [1, 2, 3]
    carrying = [s for s in town.since(start) if s.source[1] not in SIP_PORTS]
    assert {s.destination for s in carrying} == {DATA_ADDRESS, (alice.ip, 40_000), (bob.ip, 40_000)}
    assert not any(s.destination[1] in SIP_PORTS for s in carrying)
    assert not any(b"Trade" in s.data for s in town.since(start))


def test_r08_after_negotiation_events_need_no_message_of_sip(town: Town) -> None:
    alice, bob = connected(town), connected(town, "bob", number=2)
    town.run(2.0)
    start = town.world.now
    for n in range(20):
        bob.publish(n)
        town.run(0.1)
    assert alice.received == list(range(20))
    assert [s for s in town.since(start) if {s.source[1], s.destination[1]} & set(SIP_PORTS)] == []


def test_f03_a_notify_ack_sent_at_once_shares_the_datagram_of_the_ack(town: Town) -> None:
    alice, bob = connected(town), connected(town, "bob", number=2)
    town.run(2.0)
    start = town.world.now
    bob.publish(1)
    town.run(1.0)
    assert alice.received == [1]
    assert len([s for s in town.since(start) if s.source == (alice.ip, 40_000)]) == 1


def test_d08_a_move_registers_first_and_reinvites_without_waiting(town: Town) -> None:
    phone = connected(town)
    before = phone.agent._session
    sip, data = ("10.1.9.9", 5060), ("10.1.9.9", 40_000)
    outputs = phone.agent.step([Moved(sip, data)], town.world.now)
    requests = [o for o in outputs if isinstance(o, SendDatagram) and o.socket == "sip"]
    register, invite = requests[0].data, requests[1].data
    assert (register[:8], invite[:6]) == (b"REGISTER", b"INVITE")
    assert requests[0].destination == SERVER_ADDRESS
    assert requests[1].destination == (SERVER_IP, 5070)
    assert b"Contact: <sip:alice@10.1.9.9:5060>" in invite
    assert b"c=IN IP4 10.1.9.9" in invite
    assert f"Call-ID: {before}".encode() in invite
    assert b"wanderbus-generation:1" in invite


def test_d08_a07_data_goes_to_the_new_address_after_one_round_trip_and_nothing_is_lost(town: Town) -> None:
    alice, bob = connected(town), connected(town, "bob", number=2)
    old_ip = alice.ip
    moved_at = town.world.now
    alice.move("10.1.7.7")
    bob.publish(1)
    town.run(1.0)
    assert alice.received == [1]
    change = alice.all_of(AgentStatusChanged)[-1]
    assert (change.status, change.address) == ("CONNECTED", ("10.1.7.7", 40_000))
    to_new = [s for s in town.since(moved_at) if s.destination == ("10.1.7.7", 40_000)]
    to_old = [s for s in town.since(moved_at) if s.destination == (old_ip, 40_000)]
    assert to_new[0].at - moved_at < 0.02
    assert all(s.at < to_new[0].at for s in to_old)
    assert len(alice.agent._user_agent.sessions) == 1


def test_d09_the_reinvite_goes_past_the_proxy(town: Town) -> None:
    phone = connected(town)
    start = town.world.now
    phone.move("10.1.7.7")
    town.run(1.0)
    assert [s.destination for s in town.since(start) if s.method == "INVITE"] == [(SERVER_IP, 5070)]


@over_both
def test_d11_a_publisher_and_a_subscriber_move_in_mid_stream(town: Town, over: Over) -> None:
    alice = connected(town, data_transport=over)
    bob = connected(town, "bob", number=2, data_transport=over)
    for n in range(1, 21):
        bob.publish(n)
        if n % 3 == 0:
            bob.move(f"10.2.0.{10 + n}")
        if n % 4 == 0:
            alice.move(f"10.1.0.{10 + n}")
        town.run(0.003)
    town.run(2.0)
    assert alice.received == list(range(1, 21))
    assert [settled.number for settled in bob.all_of(PublishSettled)] == list(range(1, 21))
    for phone in (alice, bob):
        assert phone.statuses[-1] == town.access.broker.status(phone.uri) == "CONNECTED"
        row = town.access.broker.state.devices[device_key(phone.uri, phone.properties.device)]
        assert row.address is not None
        assert row.address.startswith(f"{phone.ip}:")
        assert {"REGISTER", "INVITE"} <= {each.method for each in town.sent if each.source[0] == phone.ip}


def test_g01_c14_an_agent_that_cannot_send_is_disconnected_and_its_sip_session_stays(town: Town) -> None:
    phone = connected(town)
    session = phone.agent._session
    town.blocked.add((phone.ip, 40_000))
    phone.publish(1)
    town.run(40.0)
    assert "DISCONNECTED" in phone.statuses
    assert "the broker does not answer" in [c.reason for c in phone.all_of(AgentStatusChanged)]
    assert list(phone.agent._user_agent.sessions) == [session]


@over_both
def test_e07_the_agents_status_is_the_media_status_of_its_session(town: Town, over: Over) -> None:
    phone = connected(town, data_transport=over)
    assert (phone.agent.connected, phone.media) == (True, [RemoteMediaStatus.CONNECTED])
    town.network.cut(phone.ip)
    phone.publish(1)
    for _ in range(300):
        town.run(0.1)
        if not phone.agent.connected:
            break
    assert (phone.agent.connected, phone.media) == (False, [RemoteMediaStatus.DISCONNECTED])
    town.network.mend(phone.ip)
    town.run(10.0)
    assert (phone.agent.connected, phone.media) == (True, [RemoteMediaStatus.CONNECTED])


@over_both
@pytest.mark.parametrize("cut_s", [0.3, 8.0, 20.0, 100.0])
def test_d10_after_a_cable_pull_it_heals_at_the_same_address_and_nothing_is_lost(
    town: Town, cut_s: float, over: Over
) -> None:
    alice = connected(town, data_transport=over)
    bob = connected(town, "bob", number=2, data_transport=over)
    town.network.cut(alice.ip)
    for n in (1, 2):
        bob.publish(n)
        alice.publish(100 + n)
        town.run(cut_s / 2)
    town.network.mend(alice.ip)
    town.run(12.0)
    assert sorted(alice.received) == sorted(bob.received) == [1, 2, 101, 102]
    assert [n for n in alice.received if n < 100] == [1, 2]
    assert alice.statuses[-1] == "CONNECTED"
    assert town.access.broker.status(alice.uri) == "CONNECTED"


def test_d10_while_disconnected_a_fresh_reinvite_goes_out_at_intervals(town: Town) -> None:
    """A retransmission is not enough: the other side may have answered, and the answer be lost."""
    phone = connected(town)
    town.network.cut(phone.ip)
    phone.publish(1)
    town.run(30.0)
    start = town.world.now
    town.run(20.0)
    invites = [s.message for s in town.since(start) if s.method == "INVITE" and s.source[0] == phone.ip]
    assert len({invite.cseq.number for invite in invites if invite}) >= 4


def test_d08_a_move_continues_the_conversation(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    phone = connected(town)
    monkeypatch.setattr(phone.agent._conversation, "opening", lambda: pytest.fail("said again"))
    phone.move("10.1.7.7")
    town.run(1.0)
    assert phone.statuses == ["CONNECTED", "CONNECTED"]


@over_both
def test_g01_an_idle_subscriber_learns_of_a_dead_channel_by_itself(town: Town, over: Over) -> None:
    phone = connected(town, data_transport=over)
    town.network.cut(phone.ip)
    town.run(30.0)
    assert phone.statuses[-1] == "DISCONNECTED"


@over_both
def test_g02_the_broker_draws_no_status_from_silence(town: Town, over: Over) -> None:
    phone = connected(town, data_transport=over)
    town.network.cut(phone.ip)
    town.run(60.0)
    assert town.access.broker.status(phone.uri) == "CONNECTED"
    connected(town, "bob", number=2).publish(1)
    town.run(30.0)
    assert town.access.broker.status(phone.uri) == "DISCONNECTED"


@pytest.mark.parametrize(("name", "password", "status"), [("alice", "wrong", 403), ("alice", None, 401)])
def test_wrong_credentials_are_a_refusal_and_not_a_silence(
    name: str, password: str | None, status: int, town: Town
) -> None:
    phone = Phone(town, name, password=password).connect()
    refusals = phone.all_of(ConnectRefused)
    assert {refusal.stage for refusal in refusals} <= {"registration", "session"}
    assert refusals[0].status == status
    assert phone.statuses == []
    assert not phone.agent.connected


def test_a_session_that_the_proxy_may_not_carry_is_a_refusal(town: Town) -> None:
    phone = Phone(town, broker="sip:broker@elsewhere.test").connect()
    assert [(refusal.stage, refusal.status) for refusal in phone.all_of(ConnectRefused)] == [("session", 403)]


def test_a_refused_attachment_is_reported(town: Town) -> None:
    phone = Phone(town, session="no/such").connect()
    (refusal,) = phone.all_of(ConnectRefused)
    assert (refusal.stage, refusal.status) == ("attachment", None)
    assert "session's name" in refusal.reason


def test_disconnect_sends_bye_unregisters_and_keeps_the_subscription(town: Town) -> None:
    alice, bob = connected(town), connected(town, "bob", number=2)
    start = town.world.now
    alice.node.feed([Disconnect()])
    town.run(2.0)
    assert len(alice.all_of(Disconnected)) == 1
    methods = [s.method for s in town.since(start) if s.source[0] == alice.ip and s.method]
    assert "BYE" in methods
    assert "REGISTER" in methods
    assert town.access.broker.status(alice.uri) == "DISCONNECTED"
    bob.publish(1)
    town.run(30.0)
    again = connected(town, epoch=50)
    assert again.received == [1]


def test_disconnect_waits_until_sent_messages_have_arrived() -> None:
    """Also with retransmissions: on a bad network no acknowledged notification is delivered again in the next life."""
    town = Town(PathConditions(delay_min_s=0.005, delay_max_s=0.005))
    alice, bob = connected(town, takes=False), connected(town, "bob", number=2)
    for n in (1, 2, 3):
        bob.publish(n)
    town.run(1.0)
    town.blocked.add((alice.ip, 40_000))
    alice.node.feed([alice.acknowledgement(3)])
    alice.publish(9)
    alice.node.feed([Disconnect()])
    town.run(0.2)
    assert alice.all_of(Disconnected) == []
    town.blocked.clear()
    town.run(2.0)
    assert len(alice.all_of(Disconnected)) == 1
    again = connected(town, epoch=50)
    assert again.received == [9]


def test_one_turn_acknowledges_the_last_notification_of_each_life_of_the_session(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = connected(town, takes=False)
    said: list[object] = []
    monkeypatch.setattr(alice.agent._conversation, "send", said.append)
    publishing = PublishEvent(7, protocol.encode_event(Event("Trade", {})))

    def acknowledgement(number: int, epoch: int, subscription: str = "wb-1") -> Acknowledge:
        return Acknowledge(subscription, Position(epoch, number))

    other = acknowledgement(9, 5, "wb-2")
    alice.node.feed(
        [
            acknowledgement(1, 5),
            acknowledgement(2, 5),
            other,
            acknowledgement(3, 5),
            acknowledgement(1, 6),
            publishing,
            acknowledgement(2, 6),
            acknowledgement(3, 6),
        ]
    )
    assert said == [
        acknowledgement(2, 5),
        other,
        acknowledgement(3, 5),
        acknowledgement(1, 6),
        publishing,
        acknowledgement(3, 6),
    ]


def test_disconnect_gives_up_after_its_time(town: Town) -> None:
    phone = connected(town, drain_s=1.0)
    town.blocked.add((phone.ip, 40_000))
    phone.publish(1)
    phone.node.feed([Disconnect()])
    town.run(0.9)
    assert phone.all_of(Disconnected) == []
    town.run(0.3)
    assert len(phone.all_of(Disconnected)) == 1


def test_an_agent_that_leaves_reports_no_restart_of_the_broker(town: Town) -> None:
    """A reset arrives during a retransmission: an agent that disconnects gets no report, but stops draining."""
    phone = connected(town, drain_s=60.0)
    town.blocked.add((phone.ip, 40_000))
    phone.publish(1)
    phone.node.feed([Disconnect()])
    town.server.crash(lose_rows=False)
    town.server.start()
    town.run(0.05)
    assert phone.all_of(Disconnected) == []
    town.blocked.clear()
    town.run(3.0)
    assert [report.reason for report in phone.all_of(AgentStatusChanged)] == ["session established", "the agent left"]
    assert len(phone.all_of(Disconnected)) == 1
    assert "heal" not in phone.node.timers.keys


@over_both
def test_an_agent_that_leaves_reports_no_silent_broker(town: Town, over: Over) -> None:
    phone = connected(town, data_transport=over, drain_s=200.0)
    town.network.cut(phone.ip)
    phone.publish(1)
    phone.node.feed([Disconnect()])
    town.run(10.0)
    assert phone.all_of(Disconnected) == []
    town.run(100.0)
    assert [report.reason for report in phone.all_of(AgentStatusChanged)] == ["session established", "the agent left"]
    assert not phone.agent.connected
    assert len(phone.all_of(Disconnected)) == 1


def test_disconnect_ends_also_when_nobody_answers_at_all(town: Town) -> None:
    phone = connected(town)
    town.network.cut(phone.ip)
    phone.node.feed([Disconnect()])
    town.run(60.0)
    assert len(phone.all_of(Disconnected)) == 1


def test_requests_before_connecting_wait(town: Town) -> None:
    phone = Phone(town)
    phone.publish(1)
    town.run(1.0)
    assert [s for s in town.sent if s.source[0] == phone.ip] == []
    phone.connect()
    assert [settled.number for settled in phone.all_of(PublishSettled)] == [1]


def test_a_broker_message_without_sense_is_healed_by_a_new_connection_that_misses_nothing(town: Town) -> None:
    """The rest of that batch is discarded: the new connection continues from the last good position."""
    alice, bob = connected(town), connected(town, "bob", number=2)
    bob.publish(1)
    town.run(1.0)
    links, garbled = town.access.broker._links, {"once": True}
    send = links.send

    def garble(link: Link, message: protocol.BrokerMessage) -> None:
        to_alice = isinstance(message, protocol.Notify) and message.number == 2 and link.user == alice.uri
        if to_alice and garbled.pop("once", False):
            links._journal.emit(SendOnLink(link.link, b"\xc1"))
        else:
            send(link, message)

    links.send = garble  # type: ignore[method-assign]
    for n in (2, 3):
        bob.publish(n)
    town.run(10.0)
    assert "DISCONNECTED" in alice.statuses
    assert alice.received == [1, 2, 3]
    assert alice.statuses[-1] == "CONNECTED"


def test_an_offer_of_anybody_but_the_broker_in_our_session_is_declined(town: Town) -> None:
    alice, bob = connected(town), connected(town, "bob", number=2)
    start = town.world.now
    other = Phone(town, "carol", number=3, broker=alice.uri).connect()
    town.run(1.0)
    assert 603 in [s.message.status for s in town.since(start) if isinstance(s.message, Response)]
    assert other.statuses == []
    bob.publish(1)
    town.run(0.5)
    assert alice.received == [1]


def test_a_session_that_ends_in_the_batch_in_which_it_begins_is_opened_again(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a stream, the answer and the BYE may arrive together."""
    step, phones, ended = UserAgent.step, list[Phone](), list[str]()

    def end_the_first(self: UserAgent, inputs: Iterable[UserAgentInput], now: float) -> list[UserAgentOutput]:
        outputs = step(self, inputs, now)
        begun = [each.id for each in outputs if isinstance(each, SessionEstablished)]
        if begun and not ended and self is phones[0].agent._user_agent:
            ended.extend(begun)
            calls = self._sessions._calls
            calls.end(calls._calls[begun[0]], removed := SessionRemoved(begun[0], "BYE"))
            outputs.append(removed)
        return outputs

    monkeypatch.setattr(UserAgent, "step", end_the_first)
    phones.append(Phone(town))
    phones[0].connect()
    town.run(3.0)
    assert ended
    assert phones[0].statuses[-1] == "CONNECTED"


def test_noise_on_either_socket_does_nothing(town: Town) -> None:
    alice, bob = connected(town), connected(town, "bob", number=2)
    for socket in ("sip", "data"):
        for data in (b"", b"\x00" * 40, b"INVITE sip:x SIP/2.0\r\n\r\n", b"\xff" * 1300):
            alice.node.feed([DatagramReceived(socket, ("192.0.2.66", 6), data)])
    bob.publish(1)
    town.run(1.0)
    assert alice.received == [1]
    assert alice.statuses == ["CONNECTED"]
