"""A device on hold: it gets no data, events wait, subscriptions continue, and nothing is lost (RFC 3264 8.4)."""

from __future__ import annotations

import pytest

from tests.client.town import Phone, Town, connected
from wanderbus.access import device_session
from wanderbus.machine import TimerFired
from wanderbus.sip.message.sdp import MediaDescription, with_direction


@pytest.fixture
def held() -> tuple[Town, Phone, Phone]:
    """Alice, on hold, and bob, who publishes."""
    town = Town()
    alice, bob = connected(town), connected(town, "bob", number=2)
    direct(alice, "inactive")
    return town, alice, bob


def direct(phone: Phone, direction: str) -> None:
    """Set the direction of the next description of ``phone``, and offer it."""
    describe = type(phone.agent)._media

    def media() -> MediaDescription:
        return with_direction(describe(phone.agent), direction)

    phone.agent._media = media  # type: ignore[method-assign]
    phone.node.feed([TimerFired("heal")])
    phone.town.run(0.5)


def test_events_wait_and_come_once_and_in_order(held: tuple[Town, Phone, Phone]) -> None:
    town, alice, bob = held
    for n in range(1, 301):
        bob.publish(n)
    town.run(3.0)
    assert alice.received == []
    assert len(town.access.broker.state.subscriptions) == 2
    assert alice.statuses[-1] == "CONNECTED"
    direct(alice, "sendrecv")
    town.run(3.0)
    assert alice.received == list(range(1, 301))


@pytest.mark.parametrize("direction", ["sendonly", "recvonly"])
def test_only_a_device_that_does_not_receive_is_spared(town_of: tuple[Town, Phone, Phone], direction: str) -> None:
    town, alice, bob = town_of
    direct(alice, direction)
    bob.publish(1)
    town.run(1.0)
    assert alice.received == ([1] if direction == "recvonly" else [])


@pytest.fixture
def town_of() -> tuple[Town, Phone, Phone]:
    town = Town()
    return town, connected(town), connected(town, "bob", number=2)


def test_withheld_data_are_bounded_and_the_events_stay_in_the_queue(
    held: tuple[Town, Phone, Phone], monkeypatch: pytest.MonkeyPatch
) -> None:
    town, alice, bob = held
    monkeypatch.setattr(device_session, "WITHHELD_MAX", 3)
    for n in range(1, 11):
        bob.publish(n)
    town.run(0.5)
    del alice.agent._media
    town.run(20.0)
    assert alice.received == list(range(1, 11))
