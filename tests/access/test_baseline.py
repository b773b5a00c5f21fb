"""Addresses as users of the broker: registration, lifetime and bounds (SPEC A-09, X36)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from tests.broker.desk import rows_of
from tests.client.eci_town import SUBJECT, EciTown, Pager
from tests.client.town import Town, connected
from wanderbus import protocol, records
from wanderbus.access.baseline import ECI_SOCKET, Baseline
from wanderbus.access.messages import DevicesRestored
from wanderbus.broker.messages import LinkOpened, MessageArrived, SendOnLink
from wanderbus.broker.state.state import BrokerState, DeviceRow
from wanderbus.client.machine.messages import ConnectRefused
from wanderbus.event import Event, EventId, Loss, Position
from wanderbus.machine import Address, DatagramReceived, Input, Output, SendDatagram
from wanderbus.parameters.eci import BaselineConfig
from wanderbus.protocol.eci_address import user_at
from wanderbus.records import decode_record
from wanderbus.simulation.server import ECI_ADDRESS

STRANGER: Address = ("10.66.0.1", 6666)
KEY = bytes(32)
ATTACH = protocol.encode(protocol.Attach(1, "default", None, keep=True))


@pytest.fixture
def town() -> EciTown:
    return EciTown()


def state_of(town: EciTown) -> BrokerState:
    return town.server.state


def throw(town: EciTown, *messages: protocol.AgentMessage | bytes, source: Address = STRANGER) -> None:
    """Let datagrams arrive at the server, in this order, from ``source``."""
    for message in messages:
        data = message if isinstance(message, bytes) else protocol.encode(message)
        town.network.carry(source, ECI_ADDRESS, data, 0.0)
        town.run(0.05)


def attach(baseline: Baseline, address: Address, now: float = 0.0) -> Sequence[Input | Output]:
    """Attach from an address that proves it receives its datagrams."""
    outputs = baseline.step([DatagramReceived(ECI_SOCKET, address, ATTACH)], now)
    (challenge,) = [each.data for each in outputs if isinstance(each, SendDatagram)]
    return baseline.step([DatagramReceived(ECI_SOCKET, address, challenge + ATTACH)], now)


def test_an_address_is_a_user_with_one_device_and_no_sip(town: EciTown) -> None:
    pager = Pager(town).connect()
    assert pager.user == "eci:10.1.0.1:40000"
    device = state_of(town).devices[f"{pager.user}/eci"]
    assert (device.session, device.status, device.binding) == ("default", "CONNECTED", None)
    assert pager.subscribe().owner == pager.user


def test_an_address_of_ipv6_is_written_in_brackets() -> None:
    assert user_at(("2001:db8::1", 4000)) == "eci:[2001:db8::1]:4000"


def test_a_notification_is_taken_when_it_is_sent_so_no_queue_waits(town: EciTown) -> None:
    seller, buyer = Pager(town, "10.1.0.1").connect(), Pager(town, "10.2.0.1").connect()
    buyer.subscribe()
    buyer.node.kill()
    seller.publish(*range(1_000))
    town.run(1.0)
    session = state_of(town).sessions[f"{buyer.user}/default"]
    assert (session.waiting, session.delivered, session.next) == (0, 1_000, 1_001)
    assert len(state_of(town).queue) == 0
    assert len(town.to(buyer.address)) == 3 + 1_000
    assert not any(isinstance(decode_record(each), records.Dropped) for _, _, each in town.server.disk.log)


def test_only_attached_addresses_are_accepted(town: EciTown) -> None:
    pager = Pager(town).connect()
    pager.subscribe()
    throw(town, protocol.Publish(1, Event(SUBJECT, {"N": 1})), protocol.Query(1), protocol.Leave(2))
    assert pager.received == []
    assert town.to(STRANGER) == []
    assert town.baseline.dropped == 3
    assert not any(user_at(STRANGER) in key for key, _ in state_of(town).devices.items())


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x91\x63", b"REGISTER sip:x SIP/2.0\r\n\r\n", b"\x92\x02\x01"])
def test_garbage_from_an_address_does_not_end_its_stream(town: EciTown, data: bytes) -> None:
    pager = Pager(town).connect()
    pager.subscribe()
    throw(town, data, source=pager.address)
    assert town.baseline.dropped == 1
    pager.publish(1)
    town.run(0.1)
    assert pager.received == [1]


def test_a_repeated_attachment_is_no_new_one(town: EciTown) -> None:
    """A network may repeat a datagram late, when the agent has subscribed since."""
    pager = Pager(town, keep=False).connect()
    pager.subscribe()
    throw(town, protocol.Attach(1, "default", None, keep=False), source=pager.address)
    assert len(pager.ask(protocol.Query(pager.next_request())).subscriptions) == 1


def test_another_life_may_discard_what_it_finds(town: EciTown) -> None:
    first = Pager(town).connect()
    first.subscribe()
    first.node.kill()
    second = Pager(town, epoch=2, keep=False).connect()
    assert second.ask(protocol.Query(1)).subscriptions == ()


def test_there_is_one_session_and_no_position(town: EciTown) -> None:
    """The original ECI has no sessions and positions: those of an agent are ignored."""
    pager = Pager(town).connect()
    pager.subscribe()
    throw(town, protocol.Attach(2, "elsewhere", Position(1, 10**9), keep=True), source=pager.address)
    assert {key for key, _ in state_of(town).sessions.items()} == {f"{pager.user}/default"}


def test_an_agent_that_leaves_is_removed_with_its_subscriptions_and_notified(town: EciTown) -> None:
    seller, pager = Pager(town, "10.2.0.1").connect(), Pager(town).connect()
    pager.subscribe()
    settled = pager.ask(protocol.Leave(pager.next_request()))
    assert (settled.refusal, settled.answered) == (None, True)
    seller.publish(1)
    town.run(0.2)
    assert pager.received == []
    state = state_of(town)
    assert [key for key, _ in state.devices.items() if pager.user in key] == []
    assert len(state.subscriptions) == 0
    assert len(town.baseline._addresses) == 1, "nothing is kept for the answer once it is sent"
    assert len(town.baseline._identities) == 1


def test_an_address_may_come_back_after_it_left(town: EciTown) -> None:
    first = Pager(town).connect()
    first.ask(protocol.Leave(1))
    again = Pager(town, epoch=2).connect()
    again.subscribe()
    again.publish(1)
    town.run(0.1)
    assert (again.accepted, again.received) == ([1], [1])


def test_identities_max_turns_further_addresses_away() -> None:
    town = EciTown(eci=BaselineConfig(identities_max=2))
    one, two = Pager(town, "10.1.0.1").connect(), Pager(town, "10.2.0.1").connect()
    three = Pager(town, "10.3.0.1").connect()
    assert three.statuses == []
    reason = "identities_max is 2, and it is reached"
    assert three.all_of(ConnectRefused) == [ConnectRefused("attachment", None, reason, "identities_max")]
    assert town.baseline.refused == 1
    (limited,) = town.server.refusals.entries()
    assert (limited.limit, limited.party, limited.count) == ("eci.identities_max", "10.3.0.1", 1)
    again = Pager(town, "10.2.0.1", epoch=2).connect()
    assert again.statuses == ["CONNECTED"], "who has a place keeps it"
    one.ask(protocol.Leave(1))
    assert Pager(town, "10.3.0.1", epoch=3).connect().statuses == ["CONNECTED"]
    assert two.statuses == ["CONNECTED"]


def test_an_idle_address_is_forgotten_with_its_subscriptions() -> None:
    town = EciTown(eci=BaselineConfig(identity_idle_s=10.0))
    silent, busy = Pager(town, "10.1.0.1").connect(), Pager(town, "10.2.0.1").connect()
    silent.subscribe()
    busy.subscribe()
    for value in range(5):
        town.run(3.0)
        busy.publish(value)
    town.run(0.5)
    assert silent.received == [0, 1, 2]
    assert busy.received == [0, 1, 2, 3, 4]
    assert [row.subscription.owner for row in state_of(town).subscriptions.values()] == [busy.user]
    town.run(20.0)
    assert len(state_of(town).subscriptions) == 0
    assert town.baseline._identities == {}
    assert town.baseline._addresses == {}
    assert Pager(town, "10.1.0.1", epoch=2).connect().statuses == ["CONNECTED"]
    town.run(20.0)
    assert town.baseline._identities == {}, "the timer is set again"


def test_a_restart_of_the_server_goes_on_sending_where_it_did(town: EciTown) -> None:
    """The log has the subscriptions by address; their agents need not notice."""
    seller, buyer = Pager(town, "10.1.0.1").connect(), Pager(town, "10.2.0.1").connect()
    buyer.subscribe()
    seller.publish(1)
    town.run(0.2)
    town.restart()
    seller.publish(2)
    town.run(0.2)
    assert (seller.accepted, buyer.received) == ([1, 2], [1, 2])
    assert buyer.statuses == ["CONNECTED"]


def test_the_state_is_what_the_log_gives(town: EciTown) -> None:
    seller, buyer = Pager(town, "10.1.0.1").connect(), Pager(town, "10.2.0.1").connect()
    buyer.subscribe()
    seller.publish(1, 2)
    town.run(0.2)
    buyer.ask(protocol.Leave(buyer.next_request()))
    assert rows_of(state_of(town)) == rows_of(town.server.storage.recovered(from_log_alone=True))


def test_users_of_both_systems_receive_each_others_events() -> None:
    """One broker, one event model: only the way to it differs."""
    both = Town()
    both.server.eci = BaselineConfig()
    both.server.crash(lose_rows=False)
    both.server.start()
    both.run(1.0)
    alice = connected(both)
    pager = Pager(both, "10.9.0.1").connect()  # type: ignore[arg-type]
    pager.subscribe()
    alice.publish(1)
    pager.publish(2)
    both.run(1.0)
    assert (alice.received, pager.received) == ([1, 2], [1, 2])


def test_without_the_mode_nobody_answers(town: EciTown) -> None:
    town.server.eci = None
    town.restart()
    pager = Pager(town).connect()
    assert pager.statuses == []
    assert town.server._access is not None
    outputs = town.server._access.machine.step(
        [DatagramReceived(ECI_SOCKET, STRANGER, protocol.encode(protocol.Attach(1, "default", None, keep=True)))], 0.0
    )
    assert outputs == []


def test_links_are_apart_from_those_of_data_channels() -> None:
    baseline = Baseline(key=KEY)
    for port in range(1, 4):
        for_broker = [each for each in attach(baseline, ("10.1.0.1", port)) if isinstance(each, Input)]
        assert [type(each) for each in for_broker] == [LinkOpened, MessageArrived]
        assert {each.link for each in for_broker} == {-port}  # type: ignore[attr-defined]


def test_a_link_to_an_address_is_unattended_so_that_all_counts_as_taken_when_it_is_sent() -> None:
    baseline = Baseline(key=KEY)
    device = DeviceRow(user_at(STRANGER), "eci", "default", epoch=5)
    for_broker = baseline.step([DevicesRestored((device,))], 0.0)
    assert [each for each in for_broker if isinstance(each, LinkOpened)] == [
        LinkOpened(-1, user_at(STRANGER), "eci", unattended=True)
    ]
    gap = protocol.NotifyGap(1, 7, (Loss("s", "purged", 7),))
    notify = protocol.Notify(
        8, EventId("wb", 1, 1), msgspec.Raw(protocol.encode_event(Event(SUBJECT, {}))), ("s",), False
    )
    sent = [protocol.encode(gap), protocol.encode(notify)]
    outputs = baseline.step([SendOnLink(-1, payload) for payload in sent], 0.0)
    assert outputs == [SendDatagram(ECI_SOCKET, STRANGER, payload) for payload in sent]
