"""The access server as a user agent of a SIP server that others run: refusals, streams, their end (DESIGN 6.4)."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.client.town import DATA_ADDRESS, STREAM_ADDRESS
from wanderbus.access.access_server import AccessServer
from wanderbus.access.device_signalling import REGISTER_AGAIN_S, REGISTRATION_REFUSALS
from wanderbus.access.messages import BrokerRegistered, BrokerUnregistered
from wanderbus.broker.core import Broker
from wanderbus.broker.state.state import BrokerState
from wanderbus.machine import (
    DatagramReceived,
    Input,
    Output,
    SendDatagram,
    SendOnStream,
    SetTimer,
    StreamClosed,
    StreamReceived,
    TimerFired,
)
from wanderbus.mobility.properties import Properties
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.server import BROKER_URI, SERVER_ADDRESS, SERVER_IP
from wanderbus.simulation.world import SeededRandom, World
from wanderbus.sip.message.message import Request, encode_message, make_response, parse_message
from wanderbus.sip.message.targets import Target, Transport


def access_server(transport: Transport) -> AccessServer:
    return AccessServer(
        Properties(uri=BROKER_URI, server=SERVER_ADDRESS, transport=transport),
        Broker(BrokerState("wb", 8), BrokerConfig()),
        SeededRandom(World(3)),
        sip_address=(SERVER_IP, 5070),
        data_address=DATA_ADDRESS,
        stream_address=STREAM_ADDRESS,
        reset_key=bytes(32),
        authenticator=None,
    )


def registers(outputs: list[Output]) -> list[Request]:
    messages = [parse_message(each.data) for each in outputs if isinstance(each, SendDatagram | SendOnStream)]
    return [each for each in messages if isinstance(each, Request) and each.method == "REGISTER"]


def answer(request: Request, status: int) -> bytes:
    return encode_message(make_response(request, status, to_tag="there"))


@pytest.mark.parametrize("status", sorted(REGISTRATION_REFUSALS))
def test_a_refused_registration_is_reported_and_retried(status: int) -> None:
    """The SIP server may have restarted without its users, or its operator may correct the password."""
    server = access_server("UDP")
    (request,) = registers(server.start(0, 0.0))
    given: Input = DatagramReceived("broker-sip", SERVER_ADDRESS, answer(request, status))
    outputs = server.step([given], 1.0)
    (told,) = [each for each in outputs if isinstance(each, BrokerUnregistered)]
    assert told.status == status
    assert SetTimer("register", 1.0 + REGISTER_AGAIN_S) in outputs
    (again,) = registers(server.step([TimerFired("register")], 1.0 + REGISTER_AGAIN_S))
    given = DatagramReceived("broker-sip", SERVER_ADDRESS, answer(again, 200))
    assert BrokerRegistered() in server.step([given], 40.0)


@pytest.mark.parametrize("transport", ["TCP", "TLS"])
def test_over_a_stream_and_when_it_breaks(transport: Literal["TCP", "TLS"]) -> None:
    server = access_server(transport)
    target = Target(transport, SERVER_ADDRESS)
    outputs = server.start(0, 0.0)
    (request,) = registers(outputs)
    assert [each.target for each in outputs if isinstance(each, SendOnStream)] == [target]
    assert f"transport={transport.lower()}" in (request.header("Contact") or "")
    given = StreamReceived("broker-sip", 7, SERVER_ADDRESS, answer(request, 200), transport, target)
    assert BrokerRegistered() in server.step([given], 1.0)
    outputs = server.step([StreamClosed("broker-sip", 7, "closed by the other side", target)], 2.0)
    (timer,) = [
        each for each in outputs if isinstance(each, SetTimer) and each.key == ("sip", ("registration", "register"))
    ]
    assert 2.0 < timer.at < 3.0
    assert len(registers(server.step([TimerFired(timer.key)], timer.at))) == 1
