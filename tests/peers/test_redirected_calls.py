"""Calls of agents at two servers of a domain: only new ones are redirected, to the owner (SPEC J-01, L-06, D-08)."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.client.town import Phone
from tests.peers.fleet import Fleet, ip_of
from wanderbus.access import connect_pacing
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.client.machine.messages import Connect, Disconnect
from wanderbus.composition import Composition
from wanderbus.machine import Input, Output
from wanderbus.mobility.messages import SessionOffered
from wanderbus.peers.leader_sessions import LeaderSessions
from wanderbus.peers.messages import ConsumedOnServerLink, SendOnServerLink, ServerMessageReceived
from wanderbus.peers.owner_messages import OwnerAnswered, OwnerAsked, encode
from wanderbus.peers.server_parts import ServerParts
from wanderbus.peers.server_traffic import ServerTraffic
from wanderbus.peers.session_owners import ANSWER_S, SessionOwners
from wanderbus.protocol import OPERATIONS
from wanderbus.simulation.server import DOMAIN
from wanderbus.sip.message.message import Response
from wanderbus.sip.message.sdp import MediaDescription

ALICE, BOB = "sip:alice@sim.test", "sip:bob@sim.test"


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def subscribed(fleet: Fleet, server: str, **options: Any) -> Phone:
    """A device of alice that has connected at a server and subscribed to everything."""
    phone = fleet.phone(server, **options).connect()
    phone.subscribe()
    return phone


def redirections(fleet: Fleet) -> list[tuple[str, str]]:
    """Contact and sender of each 302 that a broker has sent."""
    found = [
        (str(message.contacts[0].uri), sent.source[0])
        for sent in fleet.sent
        if sent.source[1] == 5070 and isinstance(message := sent.message, Response) and message.status == 302
    ]
    return list(dict.fromkeys(found))


def test_a_new_call_reaches_the_owner_with_one_302(fleet: Fleet) -> None:
    first = subscribed(fleet, "s1")
    bob = fleet.phone("s2", "bob", number=2).connect()
    second = subscribed(fleet, "s2", number=3)
    assert redirections(fleet) == [("sip:broker@10.0.0.1:5060", ip_of("s2"))]
    assert second.statuses == ["CONNECTED"]
    assert (fleet.users_at("s1"), fleet.users_at("s2")) == ([ALICE, ALICE], [BOB])
    bob.publish(7)
    fleet.run(1.0)
    assert first.received == second.received == [7]


def test_servers_that_lead_no_channel_ask_each_other_too() -> None:
    fleet = Fleet(names=("s1", "s2", "s3"), leaders=("s1",))
    subscribed(fleet, "s2")
    assert fleet.phone("s3", number=2).connect().statuses == ["CONNECTED"]
    assert redirections(fleet) == [("sip:broker@10.0.0.2:5060", ip_of("s3"))]


def test_l06_requests_of_operators_are_about_the_server_that_is_called_and_their_sessions_as_all_others() -> None:
    fleet = Fleet(roles={ALICE: "operator"})
    subscribed(fleet, "s1")
    assert fleet.phone("s2", number=2, session=OPERATIONS).connect().statuses == ["CONNECTED"]
    assert redirections(fleet) == []
    assert fleet.users_at("s2") == [ALICE]
    assert fleet.phone("s2", number=3).connect().statuses == ["CONNECTED"]
    assert redirections(fleet) == [("sip:broker@10.0.0.1:5060", ip_of("s2"))]
    assert fleet.users_at("s2") == [ALICE]


def test_a_move_within_a_session_is_never_redirected(fleet: Fleet) -> None:
    roamer = fleet.phone("s2", number=2).connect()
    subscribed(fleet, "s1")
    calls = list(fleet.access("s2")._user_agent.sessions)
    for turn in range(2, 5):
        roamer.move(f"10.2.0.{turn}")
        fleet.run(0.5)
    assert redirections(fleet) == []
    assert set(roamer.statuses) == {"CONNECTED"}
    assert list(fleet.access("s2")._user_agent.sessions) == calls != []


def test_an_offer_within_a_dialog_asks_no_other_server(fleet: Fleet) -> None:
    signalling = fleet.access("s2")._signalling
    media = MediaDescription(address="10.2.0.1", port=40_000)
    for is_update in (True, False):
        signalling.route([SessionOffered("call", ALICE, None, media, is_update)], fleet.world.now)
        assert list(signalling._undecided) == ([] if is_update else ["call"])


def test_an_offer_that_is_repeated_before_the_decision_does_not_wait_behind_itself(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect_pacing, "BURST", 1.0)
    signalling = fleet.access("s2")._signalling
    for port in (40_000, 40_002):
        media = MediaDescription(address="10.2.0.1", port=port)
        signalling.route([SessionOffered("call", ALICE, None, media, False)], fleet.world.now)
    assert [each.media.port for each in signalling._undecided.values()] == [40_002]
    assert signalling._pacing._waiting == {}


def test_messages_about_owners_are_reported_as_consumed() -> None:
    given: list[Input] = []

    def step(inputs: Sequence[Input], now: float) -> list[Output]:
        given.extend(inputs)
        return []

    links: Any = SimpleNamespace(step=step)
    directory = Directory(ChannelGroups(b"key", 1), first_table(1, ("s2",), b"key"))
    leaders = LeaderSessions(OwnChannels(directory, "s2"), epoch=1, positions={})
    parts = Composition[Output]()
    owners = SessionOwners(("s1",), BrokerState("s2", 1), ("sip:broker@10.0.0.2",))
    traffic = ServerTraffic(parts, ServerParts("s2", links, leaders), DOMAIN, owners)
    asked = ServerMessageReceived(9, "s1", encode(OwnerAsked(1, ALICE)))
    traffic.route_links([asked, asked], 0.0)
    parts.run(0.0)
    answer = SendOnServerLink(9, encode(OwnerAnswered(1, (), takes_at=("sip:broker@10.0.0.2",))))
    assert given == [ConsumedOnServerLink(9, 2), answer, answer]


def test_a_new_call_ends_the_former_session_of_its_device_here(fleet: Fleet) -> None:
    roamer = fleet.phone("s2", number=2).connect()
    subscribed(fleet, "s1")
    roamer.node.kill()
    again = fleet.phone("s2", number=2, epoch=9).connect()
    assert again.statuses == ["CONNECTED"]
    assert redirections(fleet) != []
    assert fleet.users_at("s2") == []
    assert fleet.access("s2")._sessions.by_device == {}
    assert fleet.access("s2").broker.status(ALICE) == "DISCONNECTED"


def test_a_caller_whose_owner_is_silent_is_served_at_once(fleet: Fleet) -> None:
    subscribed(fleet, "s1")
    fleet.network.cut(ip_of("s1"))
    second = fleet.phone("s2", number=2)
    before = fleet.world.now
    second.connect()
    assert second.statuses == ["CONNECTED"]
    assert redirections(fleet) == []
    assert fleet.users_at("s2") == [ALICE]
    (answered_at,) = {
        sent.at
        for sent in fleet.sent
        if sent.source == (ip_of("s2"), 5070) and is_answer(sent.message) and sent.at > before
    }
    assert ANSWER_S < answered_at - before < ANSWER_S + 0.2


def test_a_caller_who_does_not_reach_the_owner_is_served_at_the_server_it_knows(fleet: Fleet) -> None:
    subscribed(fleet, "s1")
    second = fleet.phone("s2", number=2)
    carry = fleet.network.carry
    fleet.network.carry = lambda source, destination, data, delay_s: (  # type: ignore[method-assign]
        None if {source[0], destination[0]} == {second.ip, ip_of("s1")} else carry(source, destination, data, delay_s)
    )
    second.connect()
    assert redirections(fleet) == [("sip:broker@10.0.0.1:5060", ip_of("s2"))]
    fleet.run(10.0)
    assert second.statuses == ["CONNECTED"]
    assert fleet.users_at("s2") == [ALICE]


def test_a_call_that_is_given_up_before_the_decision_leaves_nothing(fleet: Fleet) -> None:
    fleet.network.cut(ip_of("s1"))
    phone = fleet.phone("s2")
    signalling = fleet.access("s2")._signalling
    phone.node.feed([Connect()])
    fleet.run(0.1)
    assert len(signalling._undecided) == 1
    phone.node.feed([Disconnect()])
    fleet.run(2.0)
    assert signalling._undecided == {}
    assert fleet.users_at("s2") == []
    assert fleet.access("s2")._sessions.by_id == {}


def test_a_device_that_moves_before_the_decision_is_served_at_its_new_address(fleet: Fleet) -> None:
    fleet.network.cut(ip_of("s1"))
    phone = fleet.phone("s2")
    phone.node.feed([Connect()])
    fleet.run(0.1)
    phone.move("10.1.0.9")
    fleet.run(2.0)
    assert phone.statuses == ["CONNECTED"]
    (session,) = fleet.access("s2")._user_agent.sessions.values()
    assert session.remote_media is not None
    assert session.remote_media.address == "10.1.0.9"


def is_answer(message: object) -> bool:
    """Return whether a message is a 200 to INVITE."""
    return isinstance(message, Response) and message.status == 200 and message.cseq.method == "INVITE"
