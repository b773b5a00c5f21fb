"""Agents behind firewalls without translation find a path, keep it, and leave it after a move (SPEC I-08)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.town import DATA_ADDRESS, Phone, Town, connected
from wanderbus.client.machine.data_path import TCP_PATIENCE_S, UDP_PATIENCE_S
from wanderbus.client.machine.messages import AgentStatusChanged, PublishSettled
from wanderbus.machine import Address
from wanderbus.relay.ng_client import REPEAT_S, TRIES_MAX
from wanderbus.simulation.nat.firewall import Firewall
from wanderbus.simulation.relay.relay_host import NG_PORT, RelayHost
from wanderbus.simulation.server import SERVER_ADDRESS, SERVER_IP

RELAY_IP = "10.0.0.2"
SIP: frozenset[Address | str] = frozenset({SERVER_ADDRESS, (SERVER_IP, 5070)})
ALL_BUT_SIP = Firewall(open_to=SIP)
ALL_BUT_SIP_AND_RELAY = Firewall(open_to=SIP | {RELAY_IP})
NOTHING_BUT_SIP = Firewall(protocols=frozenset({"UDP", "TCP"}), open_to=SIP)
SETTLED_S = 1.0
"""Signalling of one way, and the first events over it."""


@pytest.fixture
def town() -> Town:
    """A town with a relay."""
    town = Town(relays=((RELAY_IP, NG_PORT),))
    RelayHost(RELAY_IP, range(30_000, 30_100), town.world, town.network)
    return town


def filtered(town: Town, phone: Phone, ip: str, firewall: Firewall) -> None:
    town.network.firewalls[ip] = firewall
    phone.move(ip)


def settled(phone: Phone) -> list[int]:
    return [each.number for each in phone.all_of(PublishSettled)]


def reasons(phone: Phone) -> list[str]:
    return [report.reason for report in phone.all_of(AgentStatusChanged)]


@pytest.mark.parametrize(
    ("firewall", "way", "within_s"),
    [
        (ALL_BUT_SIP_AND_RELAY, "udp-relay", UDP_PATIENCE_S),
        (ALL_BUT_SIP, "tcp", 2 * UDP_PATIENCE_S),
    ],
    ids=["UDP to the broker is dropped", "UDP is dropped"],
)
def test_i08_the_stream_goes_on_within_a_bound_and_the_better_way_is_back(
    town: Town, firewall: Firewall, way: str, within_s: float
) -> None:
    alice, bob = connected(town), connected(town, "bob", number=2)
    for phone, ip in ((alice, "10.1.9.1"), (bob, "10.2.9.1")):
        filtered(town, phone, ip, firewall)
    alice.publish(1)
    town.run(within_s + SETTLED_S)
    assert [alice.agent.data_path, bob.agent.data_path] == [way, way]
    assert [settled(alice), alice.received, bob.received] == [[1], [1], [1]]
    assert alice.statuses[-2:] == ["DISCONNECTED", "CONNECTED"]
    assert "nothing arrived within 2.0 s over UDP" in reasons(alice)[-1]
    alice.publish(2)
    alice.move("10.1.9.2")
    bob.move("10.2.9.2")
    town.run(0.5)
    alice.publish(3)
    town.run(0.5)
    assert [alice.agent.data_path, bob.agent.data_path] == ["udp", "udp"]
    assert alice.agent.sends_to == bob.agent.sends_to == DATA_ADDRESS
    assert [settled(alice), alice.received, bob.received] == [[1, 2, 3]] * 3


def test_i08_an_agent_that_starts_behind_a_firewall_connects(town: Town) -> None:
    town.network.firewalls["10.1.0.1"] = ALL_BUT_SIP
    phone = Phone(town).connect()
    town.run(2 * UDP_PATIENCE_S)
    phone.subscribe()
    phone.publish(1)
    town.run(0.5)
    assert (phone.agent.data_path, phone.received) == ("tcp", [1])


def test_i08_without_a_relay_the_next_way_is_taken_at_once() -> None:
    town = Town()
    phone = connected(town)
    filtered(town, phone, "10.1.9.1", ALL_BUT_SIP)
    phone.publish(1)
    town.run(UDP_PATIENCE_S + SETTLED_S)
    assert (phone.agent.data_path, phone.received) == ("tcp", [1])


def test_i08_a_relay_that_does_not_answer_is_no_way(town: Town) -> None:
    town.network.cut(RELAY_IP)
    phone = connected(town)
    filtered(town, phone, "10.1.9.1", ALL_BUT_SIP_AND_RELAY)
    phone.publish(1)
    # The proxy may answer later than the agent's timeout; then the agent sends a second INVITE.
    town.run(UDP_PATIENCE_S + 2 * TRIES_MAX * REPEAT_S[1] + SETTLED_S)
    assert (phone.agent.data_path, phone.received) == ("tcp", [1])
    assert reasons(phone)[-1] == "data channel over TCP: no relay was found over UDP by relay"


def test_i08_a_way_that_dies_later_gives_way_to_the_next(town: Town) -> None:
    phone = connected(town)
    town.network.firewalls[phone.ip] = ALL_BUT_SIP
    phone.publish(1)
    town.run(30.0)
    assert (phone.agent.data_path, phone.received) == ("tcp", [1])


def test_i08_a_working_way_is_remembered_for_its_address(town: Town) -> None:
    phone = connected(town)
    filtered(town, phone, "10.1.9.1", ALL_BUT_SIP)
    town.run(2 * UDP_PATIENCE_S + TCP_PATIENCE_S + SETTLED_S)
    phone.move("10.1.9.2")
    town.run(UDP_PATIENCE_S + SETTLED_S)
    assert phone.agent.data_path == "udp"
    phone.move("10.1.9.1")
    phone.publish(1)
    town.run(0.5)
    assert (phone.agent.data_path, phone.received) == ("tcp", [1])


def test_i08_a_working_way_is_kept_without_a_word(town: Town) -> None:
    """No flapping: only a move or a failure leads to another path."""
    phone = connected(town)
    filtered(town, phone, "10.1.9.1", ALL_BUT_SIP)
    town.run(20.0)
    reported, sent = len(phone.reports), len([each for each in town.sent if each.method == "INVITE"])
    town.run(3_000.0)
    assert (phone.agent.data_path, len(phone.reports)) == ("tcp", reported)
    assert len([each for each in town.sent if each.method == "INVITE"]) <= sent + 4, "session timers alone"


def test_i08_an_agent_behind_a_closed_firewall_keeps_trying(town: Town) -> None:
    phone = connected(town)
    filtered(town, phone, "10.1.9.1", NOTHING_BUT_SIP)
    phone.publish(1)
    town.run(60.0)
    assert phone.received == []
    invites = {s.message.cseq.number for s in town.since(1.0) if s.message and s.method == "INVITE"}
    assert len(invites) < 60
    del town.network.firewalls["10.1.9.1"]
    town.run(30.0)
    assert (phone.received, phone.statuses[-1]) == ([1], "CONNECTED")


@pytest.mark.parametrize(
    ("options", "way"),
    [
        ({"data_transport": "UDP"}, "udp-relay"),
        ({"data_paths": ("udp", "tcp")}, "tcp"),
        ({"data_paths": ("udp",)}, "udp"),
    ],
    ids=["UDP alone", "no relay", "direct alone"],
)
def test_i08_a_way_that_is_not_allowed_is_never_taken(town: Town, options: dict[str, Any], way: str) -> None:
    phone = connected(town, **options)
    filtered(town, phone, "10.1.9.1", ALL_BUT_SIP)
    start = town.world.now
    town.run(8.0)
    assert phone.agent.data_path == way
    bodies = [each.data for each in town.since(start) if each.method == "INVITE"]
    assert any(b"wanderbus-relay" in body for body in bodies) == (way == "udp-relay")
    assert any(b"TCP" in body for body in bodies) == (way == "tcp")


def test_i08_an_arriving_packet_proves_only_one_direction(town: Town) -> None:
    """The broker's packets arrive, with ACKs from before the move, but our packets are dropped."""
    phone = connected(town)
    former, here = (phone.ip, 40_000), ("10.1.9.1", 40_000)
    carry = town._carry

    def filtered_carry(source: Address, destination: Address, data: bytes) -> None:
        if (source, destination) == (DATA_ADDRESS, here):
            town.world.after(0.05, lambda: carry(source, destination, data))  # after the answer to the re-INVITE
        elif (source, destination) not in ((DATA_ADDRESS, former), (here, DATA_ADDRESS)):
            carry(source, destination, data)

    town._carry = filtered_carry
    phone.publish(1)
    town.run(0.02)
    phone.move("10.1.9.1")
    town.run(UDP_PATIENCE_S + SETTLED_S)
    assert (phone.agent.data_path, settled(phone), phone.received) == ("udp-relay", [1], [1])
