"""A user who publishes without end waits at its own window, and nothing is lost (SPEC U-03, F-01)."""

from __future__ import annotations

import pytest

from tests.client.town import Phone, Town, connected
from wanderbus.access.link_traffic import CONSUMED_UNITS, consumed_units
from wanderbus.client.machine.messages import PublishSettled
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.transports import RudpConfig, TcpConfig

FLOOD = 2_500
"""More than the window of a connection over reliable UDP, in which every event is a frame."""


@pytest.mark.parametrize("over", ["UDP", "TCP"])
def test_a_flood_beyond_the_window_is_published_once_each_and_in_order(over: str) -> None:
    town = Town(broker=BrokerConfig(turn_units=20, unsynced_units_max=100))
    alice, mallory = connected(town), Phone(town, "bob", number=2, data_transport=over).connect()
    for n in range(FLOOD):
        mallory.publish(n)
    town.run(30.0)
    assert alice.received == list(range(FLOOD))
    assert [settled.number for settled in mallory.all_of(PublishSettled)] == list(range(1, FLOOD + 1))
    assert mallory.statuses == ["CONNECTED"]


def test_small_windows_are_updated_sooner() -> None:
    assert consumed_units(RudpConfig(), TcpConfig()) == CONSUMED_UNITS
    assert consumed_units(RudpConfig(), TcpConfig(receive_window_bytes=4_096)) == 1
    assert consumed_units(RudpConfig(datagram_bytes_max=100), TcpConfig()) < CONSUMED_UNITS
