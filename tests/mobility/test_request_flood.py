"""A user agent that limits the requests of one source, as a broker does (SPEC C-20)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.sip.transaction_world import SeededRandom, make_request, wire
from wanderbus.machine import Address, DatagramReceived, Output, SendDatagram, StreamReceived
from wanderbus.mobility.checked_admission import checked
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.user_agent import UserAgent
from wanderbus.parameters.signalling import FloodLimits
from wanderbus.refusals import Limited
from wanderbus.sip.authentication.digest import Authenticator
from wanderbus.sip.message.message import Response, parse_message

PROXY: Address = ("127.0.0.1", 5060)
STRANGER: Address = ("203.0.113.9", 5060)


@pytest.fixture
def broker() -> UserAgent:
    flood = FloodLimits(stranger_requests_per_s=1.0, stranger_burst_requests=10.0)
    properties = Properties(uri="sip:bob@example.com", server=PROXY)
    authenticator = Authenticator("example.com", {"alice": "wonder"}.get, b"k" * 32)
    return UserAgent(properties, SeededRandom(), contact=("127.0.0.1", 7000), admission=checked(authenticator, flood))


def invite(number: int) -> bytes:
    large = make_request("INVITE", call_id=f"call-{number}").with_header("Subject", "x" * 400)
    return wire(large, f"SIP/2.0/UDP 203.0.113.9;branch=z9hG4bK{number}")


def statuses(outputs: Sequence[Output]) -> list[int]:
    found = [parse_message(each.data) for each in outputs if isinstance(each, SendDatagram)]
    return [each.status for each in found if isinstance(each, Response)]


def answers(broker: UserAgent, source: Address, count: int) -> tuple[list[int], list[Output]]:
    outputs: list[Output] = [
        output
        for number in range(count)
        for output in broker.step([DatagramReceived("sip", source, invite(number))], 1.0)
    ]
    return statuses(outputs), outputs


def test_requests_above_the_limit_of_a_source_are_dropped_and_reported(broker: UserAgent) -> None:
    seen, outputs = answers(broker, STRANGER, 50)
    assert seen == [401] * 10 + [503]
    limited = [each for each in outputs + broker.step([], 3.0) if isinstance(each, Limited)]
    assert {(each.limit, each.party) for each in limited} == {("flood.stranger_requests_per_s", STRANGER[0])}
    assert sum(each.count for each in limited) == 40
    assert broker.transaction_count == 0


def test_the_server_carries_everybody_and_is_not_limited(broker: UserAgent) -> None:
    assert answers(broker, PROXY, 50)[0] == [401] * 50


def test_another_program_on_the_host_of_the_server_is(broker: UserAgent) -> None:
    assert answers(broker, (PROXY[0], 9), 50)[0] == [401] * 10 + [503]


def test_requests_on_a_stream_are_counted_too(broker: UserAgent) -> None:
    for number in range(20):
        data = invite(number).replace(b"SIP/2.0/UDP", b"SIP/2.0/TCP").replace(b"INVITE", b"OPTIONS")
        broker.step([StreamReceived("sip", 1, STRANGER, data, "TCP")], 1.0)
    assert any(isinstance(each, Limited) for each in broker.step([], 3.0))


def test_without_limits_everything_is_read() -> None:
    properties = Properties(uri="sip:bob@example.com", server=PROXY)
    authenticator = Authenticator("example.com", {"alice": "wonder"}.get, b"k" * 32)
    broker = UserAgent(properties, SeededRandom(), contact=("127.0.0.1", 7000), admission=checked(authenticator))
    assert answers(broker, STRANGER, 50)[0] == [401] * 50
