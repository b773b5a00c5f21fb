"""One update of a session carries the addresses of several devices of its user (SPEC D-14)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.town import DATA_ADDRESS, Phone, Sent, Town, connected
from wanderbus.client.machine.messages import Moved
from wanderbus.datachannel.description import PLACE, PLACES_MAX, Place, places_of, read_place, with_places
from wanderbus.errors import SIPParseError
from wanderbus.machine import Address
from wanderbus.rudp.frames import decode_header
from wanderbus.sip.message.sdp import MediaDescription

TABLET_AT: Address = ("10.32.0.1", 40_000)


@pytest.fixture
def trio() -> tuple[Town, Phone, Phone, Phone]:
    """Alice's phone and tablet, and bob, who publishes."""
    town = Town()
    return town, connected(town), connected(town, number=2), connected(town, "bob", number=3)


def move_along(tablet: Phone, ip: str) -> str:
    """Move a device without an update of its own; return the place that it has signed."""
    tablet.ip = ip
    tablet.node.rebind(tablet.sockets(), tablet.streams())
    tablet.node.feed([Moved(*tablet.addresses(), by_other=True)])
    return tablet.agent.place


def move(phone: Phone, ip: str, *places: str) -> None:
    """Move a device, whose update carries ``places``."""
    phone.ip = ip
    phone.node.rebind(phone.sockets(), phone.streams())
    phone.node.feed([Moved(*phone.addresses(), places=places)])


def invites(sent: list[Sent]) -> list[str]:
    """Return the hosts of the requests INVITE to the broker, in order."""
    return [each.source[0] for each in sent if each.method == "INVITE" and each.destination[0] != each.source[0]]


def data_to(sent: list[Sent]) -> set[str]:
    """Return the hosts to which the server has sent data."""
    return {each.destination[0] for each in sent if each.source == DATA_ADDRESS}


def test_d14_one_update_changes_the_places_of_two_devices(trio: tuple[Town, Phone, Phone, Phone]) -> None:
    town, phone, tablet, bob = trio
    before = town.world.now
    place = move_along(tablet, TABLET_AT[0])
    move(phone, "10.31.0.1", place)
    town.run(1.0)
    assert [host for host in invites(town.since(before)) if host.startswith("10.")] == ["10.31.0.1"], "one update"
    after = town.world.now
    bob.publish(1)
    town.run(0.5)
    assert (phone.received[-1], tablet.received[-1]) == (1, 1)
    assert {"10.31.0.1", TABLET_AT[0]} <= data_to(town.since(after))
    assert not {"10.1.0.1", "10.2.0.1"} & data_to(town.since(after)), "nothing goes to the old places"
    town.run(30.0)
    assert invites(town.since(after)) == [], "and the tablet needs no update of its own"
    assert phone.statuses[-1] == tablet.statuses[-1] == "CONNECTED"


def test_d14_two_devices_over_tcp() -> None:
    """Over TCP the tablet connects itself from its new place."""
    town = Town()
    over: dict[str, Any] = {"data_transport": "TCP"}
    phone, tablet = connected(town, **over), connected(town, number=2, **over)
    bob = connected(town, "bob", number=3)
    before = town.world.now
    move(phone, "10.31.0.1", move_along(tablet, TABLET_AT[0]))
    town.run(1.0)
    assert [host for host in invites(town.since(before)) if host.startswith("10.")] == ["10.31.0.1"]
    bob.publish(1)
    town.run(0.5)
    assert (phone.received[-1], tablet.received[-1]) == (1, 1)
    town.run(30.0)
    assert invites(town.since(before + 1.0)) == []


def test_d14_place_where_nobody_answers_gets_challenges_and_no_data(trio: tuple[Town, Phone, Phone, Phone]) -> None:
    town, phone, tablet, bob = trio
    victim = ("10.99.0.1", 40_000)
    channel = tablet.agent._channel
    claimed = channel.parties.signed_place(Place(channel.local, 1, victim)).text
    before = town.world.now
    move(phone, "10.31.0.1", claimed)
    town.run(0.2)
    for n in range(1, 101):
        bob.publish(n)
    town.run(30.0)
    assert tablet.received == list(range(1, 101)), "the stream stays where the device is"
    there = [each for each in town.since(before) if each.destination == victim]
    assert 1 <= len(there) <= 5
    assert sum(len(each.data) for each in there) < 500
    assert {decode_header(each.data)[0] for each in there} == {channel.local}


@pytest.mark.parametrize(
    "fault",
    ["mac", "address", "generation", "of the phone", "of bob", "no place", "of a multicast group", "unsigned"],
)
def test_d14_place_that_the_device_has_not_signed(trio: tuple[Town, Phone, Phone, Phone], fault: str) -> None:
    town, phone, tablet, bob = trio
    channel = tablet.agent._channel
    signed = channel.parties.signed_place(Place(channel.local, 1, ("10.99.0.1", 40_000)))
    of_phone = phone.agent._channel.parties.signed_place(signed)
    group = channel.parties.signed_place(Place(channel.local, 1, ("224.0.0.1", 40_000)))
    of_bob = bob.agent._channel
    text = {
        "mac": signed.text[:-4] + "AAA=",
        "address": signed.text.replace("10.99", "10.98"),
        "generation": signed.text.replace(" 1 ", " 2 "),
        "of the phone": of_phone.text,
        "of bob": of_bob.parties.signed_place(Place(of_bob.local, 1, ("10.99.0.1", 40_000))).text,
        "no place": "nowhere",
        "of a multicast group": group.text,
        "unsigned": Place(channel.local, 1, ("10.99.0.1", 40_000)).text,
    }[fault]
    before = town.world.now
    move(phone, "10.31.0.1", text)
    town.run(5.0)
    assert not {"10.98.0.1", "10.99.0.1", "224.0.0.1"} & data_to(town.since(before))
    assert phone.statuses[-1] == "CONNECTED", "the update of the phone itself counts"
    assert sum(town.access.refused.values()) == (0 if fault == "of bob" else 1)


def test_d14_place_that_was_sent_before(trio: tuple[Town, Phone, Phone, Phone]) -> None:
    """An earlier place of a device that has moved on leads nowhere."""
    town, phone, tablet, bob = trio
    earlier = move_along(tablet, TABLET_AT[0])
    move(phone, "10.31.0.1", earlier)
    town.run(1.0)
    move(phone, "10.33.0.1", move_along(tablet, "10.34.0.1"))
    town.run(1.0)
    before = town.world.now
    move(phone, "10.35.0.1", earlier)
    town.run(5.0)
    assert TABLET_AT[0] not in data_to(town.since(before))
    bob.publish(1)
    town.run(0.5)
    assert tablet.received[-1] == 1


def test_d14_place_that_is_older_than_an_update_of_the_device(trio: tuple[Town, Phone, Phone, Phone]) -> None:
    town, phone, tablet, _ = trio
    earlier = move_along(tablet, TABLET_AT[0])
    move(tablet, "10.34.0.1")
    town.run(1.0)
    before = town.world.now
    move(phone, "10.31.0.1", earlier)
    town.run(1.0)
    assert TABLET_AT[0] not in data_to(town.since(before))
    assert list(town.access.refused.values()) == [1], "the operator sees it"


def test_d14_place_that_arrives_before_the_device(trio: tuple[Town, Phone, Phone, Phone]) -> None:
    """Packets from the old place do not end the search at the new one."""
    town, phone, tablet, bob = trio
    channel = tablet.agent._channel
    before = town.world.now
    move(phone, "10.31.0.1", channel.parties.signed_place(Place(channel.local, 1, TABLET_AT)).text)
    town.run(0.05)
    bob.publish(1)
    town.run(0.05)
    assert tablet.received[-1] == 1
    move_along(tablet, TABLET_AT[0])
    town.run(1.0)
    bob.publish(2)
    town.run(0.5)
    assert tablet.received[-1] == 2
    assert TABLET_AT[0] not in invites(town.since(before))


def test_d14_device_whose_place_does_not_arrive(trio: tuple[Town, Phone, Phone, Phone]) -> None:
    """It updates its own session after a while, as at a broker of an earlier version, which ignores places."""
    town, _, tablet, bob = trio
    before = town.world.now
    assert move_along(tablet, TABLET_AT[0])
    town.run(tablet.properties.heal_s + 0.5)
    assert TABLET_AT[0] in invites(town.since(before))
    assert tablet.statuses == ["CONNECTED"] * len(tablet.statuses), "before its connection fails"
    bob.publish(1)
    town.run(0.5)
    assert tablet.received[-1] == 1


def test_d14_update_that_is_lost_and_repeated(trio: tuple[Town, Phone, Phone, Phone]) -> None:
    town, phone, tablet, bob = trio
    place = move_along(tablet, TABLET_AT[0])
    town.blocked.add(("10.31.0.1", 5060))
    move(phone, "10.31.0.1", place)
    town.run(0.3)
    town.blocked.clear()
    town.run(3.0)
    bob.publish(1)
    town.run(0.5)
    assert (phone.received[-1], tablet.received[-1]) == (1, 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1f00c3a8d2b94e61 4 10.2.0.1 40000",
        "1f00c3a8d2b94e61 4 10.2.0.1 0 -",
        "1f00c3a8d2b94e61 4 10.2.0.1 65536 -",
        "1f00c3a8d2b94e61 4294967296 10.2.0.1 40000 -",
        "1f00 4 10.2.0.1 40000 -",
        "1f00c3a8d2b94e61 4 host 40000 -",
        f"1f00c3a8d2b94e61 4 10.2.0.1 40000 {'A' * 40}",
    ],
)
def test_d14_malformed_place(text: str) -> None:
    with pytest.raises(SIPParseError):
        read_place(text)


def test_d14_places_of_a_description() -> None:
    place = Place(7, 3, ("2001:db8::1", 40_000), bytes(32))
    assert read_place(place.text) == place
    media = MediaDescription(address="10.1.0.1", port=9)
    assert with_places(media, ()) is media
    assert places_of(with_places(media, (place.text, "x"))) == [place.text, "x"]
    assert len(with_places(media, ("x",) * 100).attributes) == PLACES_MAX
    many = MediaDescription(address="10.1.0.1", port=9, attributes=((PLACE, "x"),) * 100)
    assert len(places_of(many)) == PLACES_MAX
