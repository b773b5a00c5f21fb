"""Kicking a device: it loses its SIP session too, after the messages sent to it before (SPEC E-10)."""

from __future__ import annotations

import pytest

from tests.client.eci_town import EciTown, Pager
from tests.client.town import Phone, Town, connected
from wanderbus import protocol
from wanderbus.access.baseline import ECI_SOCKET
from wanderbus.broker.messages import LinkDropped
from wanderbus.client.machine.messages import AskBroker
from wanderbus.machine import DatagramReceived
from wanderbus.protocol.eci_address import user_at


@pytest.fixture
def town() -> Town:
    return Town()


def kick(town: Town, by: Phone, device: str | None, *, forget: bool = False) -> None:
    by.node.feed([AskBroker(protocol.Kick(1_000, by.uri, device, forget))])
    town.run(0.1)


def test_a_kicked_device_is_sent_bye_and_nothing_is_kept_of_its_session(town: Town) -> None:
    phone, laptop = connected(town, number=1), connected(town, number=2)
    phone.node.kill()
    at = town.world.now
    kick(town, laptop, phone.properties.device)
    assert [sent.method for sent in town.since(at) if sent.destination == (phone.ip, 5060)][:1] == ["BYE"]
    assert [session.device for session in town.access._sessions.by_id.values()] == [laptop.properties.device]
    assert len(town.access._sessions.by_connection) == len(town.access._sessions.by_link) == 1
    device = town.access.broker.state.devices[f"{phone.uri}/{phone.properties.device}"]
    assert (device.status, device.binding) == ("DISCONNECTED", b"")


@pytest.mark.parametrize("forget", [False, True])
def test_a_kicked_device_may_come_back_and_has_missed_what_was_not_kept_for_it(town: Town, forget: bool) -> None:
    phone, laptop = connected(town, number=1), connected(town, number=2)
    kick(town, laptop, phone.properties.device, forget=forget)
    laptop.publish(1)
    town.run(30.0)
    laptop.publish(2)
    town.run(1.0)
    assert phone.received == ([2] if forget else [1, 2])
    assert phone.statuses[0] == phone.statuses[-1] == "CONNECTED"
    assert "DISCONNECTED" in phone.statuses


def test_a_kicked_address_is_ignored_until_it_attaches() -> None:
    town = EciTown()
    pager = Pager(town).connect()
    baseline = town.baseline
    ((link, address),) = baseline._addresses.items()
    assert user_at(address) == pager.user
    baseline.step([LinkDropped(link, "kicked"), LinkDropped(-99, "kicked")], 0.0)
    assert (baseline._addresses, baseline._identities) == ({}, {})
    query = DatagramReceived(ECI_SOCKET, address, protocol.encode(protocol.Query(1)))
    assert baseline.step([query], 0.0) == []
