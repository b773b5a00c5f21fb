"""Two users whose devices have one id, one address or one connection id: each has its own session and events."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.town import DATA_ADDRESS, Phone, Town, connected
from wanderbus.client.machine.core import DATA_SOCKET, SIP_SOCKET
from wanderbus.hosts import may_be_peer
from wanderbus.machine import Address

DEVICE = "0" * 32


@pytest.fixture
def town() -> Town:
    return Town()


class Thief(Phone):
    """A phone of another user, whose data channel claims somebody else's address and connection."""

    def __init__(self, town: Town, victim: Phone, *, takes_id: bool, **options: Any) -> None:
        self.victim = victim
        super().__init__(town, "mallory", number=9, **options)
        if takes_id:
            (theirs,) = victim.agent._transports.udp.endpoint._connections
            self.agent._transports.udp.endpoint.allocate = lambda: theirs  # type: ignore[method-assign]

    def addresses(self) -> tuple[Address, Address]:
        return (self.ip, 5060), self.victim.addresses()[1]

    def sockets(self) -> dict[str, Address]:
        return {SIP_SOCKET: (self.ip, 5060), DATA_SOCKET: (self.ip, 40_000)}


def test_the_same_device_id_is_no_reason_to_end_anothers_session(town: Town) -> None:
    """Also with the same number of the agent's life, and when either comes back."""
    alice = connected(town, "alice", number=1, device=DEVICE, epoch=7)
    bob = connected(town, "bob", number=2, device=DEVICE, epoch=7)
    for n, publisher in enumerate([alice, bob, alice, bob], 1):
        publisher.publish(n)
        town.run(0.5)
    bob.node.kill()
    again = connected(town, "bob", number=3, device=DEVICE, epoch=8)
    again.publish(5)
    alice.publish(6)
    town.run(1.0)
    assert alice.received == [1, 2, 3, 4, 5, 6]
    assert bob.received == [1, 2, 3, 4]
    assert again.received == [5, 6]
    assert alice.statuses == ["CONNECTED"]


@pytest.mark.parametrize("takes_id", [False, True])
def test_a_user_who_describes_anothers_end_neither_receives_nor_ends_anything(town: Town, takes_id: bool) -> None:
    alice, bob = connected(town, "alice", number=1), connected(town, "bob", number=2)
    Thief(town, alice, takes_id=takes_id, device=alice.properties.device).connect()
    for n in range(1, 21):
        bob.publish(n)
        town.run(3.0)
    assert alice.received == bob.received == list(range(1, 21))
    assert alice.statuses == bob.statuses == ["CONNECTED"]


def test_datagrams_of_another_user_that_are_sent_again_move_and_repeat_nothing(town: Town) -> None:
    alice, bob = connected(town, "alice", number=1), connected(town, "bob", number=2)
    mallory = (bob.ip, 45_000)
    for n in range(1, 11):
        alice.publish(n)
        town.run(0.5)
        for sent in [each for each in town.sent if each.source == alice.addresses()[1]]:
            town.network.carry(mallory, DATA_ADDRESS, sent.data, 0.0)
            town.network.carry(bob.addresses()[1], DATA_ADDRESS, sent.data, 0.0)
    town.run(5.0)
    assert alice.received == bob.received == list(range(1, 11))
    assert not [each for each in town.sent if each.destination == mallory]
    assert alice.statuses == bob.statuses == ["CONNECTED"]


@pytest.mark.parametrize(
    ("host", "here", "may"),
    [
        ("192.0.2.1", "10.0.0.1", True),
        ("127.0.0.2", "10.0.0.1", False),
        ("::ffff:127.0.0.1", "10.0.0.1", False),
        ("127.0.0.2", "127.0.0.1", True),
        ("127.0.0.2", "0.0.0.0", True),
        ("::1", "::", True),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", True),
    ],
)
def test_a_peer_is_on_loopback_only_where_we_are_there_too(host: str, here: str, may: bool) -> None:
    assert may_be_peer(host, here) == may


class Liar(Phone):
    """A phone whose data channel claims another address, in its own description or in a relay's."""

    place: Address = ("", 0)

    def addresses(self) -> tuple[Address, Address]:
        return (self.ip, 5060), self.place

    def sockets(self) -> dict[str, Address]:
        return {SIP_SOCKET: (self.ip, 5060), DATA_SOCKET: (self.ip, 40_000)}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "224.0.0.251", "255.255.255.255"])
def test_a_data_channel_is_not_sent_to_where_no_agent_can_be(
    town: Town, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Otherwise local services of the server's host, and multicast groups, would get data; the MAC does not
    cover this.
    """
    monkeypatch.setattr(Liar, "place", (host, 53))
    liar, alice = Liar(town, "mallory", number=9), connected(town, "alice", number=1)
    liar.connect()
    town.run(30.0)
    assert "CONNECTED" not in liar.statuses
    assert not [sent for sent in town.sent if sent.source == DATA_ADDRESS and sent.destination[0] == host]
    assert [reason for reason in town.access.refused if reason.startswith("the data channel is described at ")]
    alice.publish(1)
    town.run(1.0)
    assert alice.received == [1]
