"""Calls by strangers, and floods at an agent's SIP port: its own server and broker get through."""

from __future__ import annotations

from functools import partial

import pytest

from tests.client.town import Phone, Town, connected
from wanderbus.client.machine.stranger_limits import StrangerLimits
from wanderbus.machine import Address
from wanderbus.refusals import Limited
from wanderbus.simulation.server import SERVER_ADDRESS
from wanderbus.sip.message.message import Response, parse_message

STRANGER: Address = ("10.66.0.1", 5060)


def call(phone: Phone, number: int, source: Address, method: str = "INVITE") -> bytes:
    """A call of ``phone`` that describes a data channel."""
    body = (
        "v=0\r\no=- 1 1 IN IP4 10.66.0.1\r\ns=-\r\nc=IN IP4 10.66.0.1\r\nt=0 0\r\n"
        "m=application 4000 UDP x-wanderbus\r\n"
    )
    host, port = source
    return (
        f"{method} sip:alice@{phone.ip}:5060 SIP/2.0\r\nVia: SIP/2.0/UDP {host}:{port};branch=z9hG4bK{number}\r\n"
        f"Max-Forwards: 70\r\nFrom: <sip:x@y.example>;tag={number}\r\nTo: <{phone.uri}>\r\nCall-ID: {number}\r\n"
        f"CSeq: 1 {method}\r\nContact: <sip:x@{source[0]}:{source[1]}>\r\nContent-Type: application/sdp\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def flood(town: Town, phone: Phone, per_s: int, seconds: float, method: str = "INVITE") -> None:
    def one(number: int) -> None:
        source = (f"10.66.{number % 200}.1", 5060)
        town.network.send(source, (phone.ip, 5060), call(phone, number, source, method))

    for number in range(int(per_s * seconds)):
        town.world.after(number / per_s, partial(one, number))


@pytest.mark.parametrize("method", ["INVITE", "OPTIONS"])
def test_a_flood_of_calls_costs_next_to_nothing_and_events_still_come(method: str) -> None:
    town = Town()
    phone, bob = connected(town), connected(town, "bob", number=2)
    start = town.world.now
    flood(town, phone, 600, 4.0, method)
    for n in range(4):
        bob.publish(n)
        town.run(1.0)
    assert phone.received == list(range(4))
    assert phone.agent._user_agent.transaction_count <= 200
    to_strangers = [
        s for s in town.since(start) if s.source == (phone.ip, 5060) and s.destination[0].startswith("10.66.")
    ]
    assert len(to_strangers) <= 1_200
    limited = phone.all_of(Limited)
    assert sum(each.count for each in limited) > 1_500
    assert len(limited) < 1_500
    assert {each.limit for each in limited} == {"strangers_per_s"}


def test_meanwhile_the_broker_that_was_restarted_finds_its_agents() -> None:
    town = Town()
    phone = connected(town)
    flood(town, phone, 300, 12.0)
    town.run(6.0)
    town.server.crash(lose_rows=False)
    town.server.start()
    town.run(8.0)
    assert phone.statuses[-1] == "CONNECTED"


def test_a_stranger_who_calls_once_is_refused_as_before() -> None:
    town = Town()
    phone = connected(town)
    start = town.world.now
    town.network.send(STRANGER, (phone.ip, 5060), call(phone, 1, STRANGER))
    town.run(1.0)
    answers = [parse_message(s.data) for s in town.since(start) if s.destination == STRANGER]
    assert {answer.status for answer in answers if isinstance(answer, Response)} <= {100, 488, 603}
    assert phone.all_of(Limited) == []


def test_server_and_broker_have_buckets_of_their_own() -> None:
    strangers = StrangerLimits(SERVER_ADDRESS, 2.0)
    assert [strangers.admits(STRANGER, 0.0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert strangers.admits((SERVER_ADDRESS[0], 9), 0.0), "the broker's port is another than the server's"
    assert not strangers.admits(("10.66.0.2", 5060), 0.1), "strangers share one bucket"
    assert strangers.admits(("10.66.0.2", 5060), 1.1)
    reports = strangers.take_reports(2.0)
    assert {(each.limit, each.party) for each in reports if isinstance(each, Limited)} == {
        ("strangers_per_s", "10.66.0.1"),
        ("strangers_per_s", "10.66.0.2"),
    }
