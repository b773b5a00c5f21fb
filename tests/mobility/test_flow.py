"""The flow to the server: kept alive, and registered again when it breaks (RFC 5626 4.4, 4.5)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from tests.mobility.world import SERVER, Phone, SeededRandom, Talk, World, settled
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
from wanderbus.mobility.flow import Recovery
from wanderbus.mobility.messages import FlowFailed, Registered, Start, StopUserAgent
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.request_handlers import OWNER_TRANSACTION_PREFIX
from wanderbus.mobility.user_agent import UserAgent
from wanderbus.sip.message.message import Request, parse_message
from wanderbus.sip.message.targets import Target
from wanderbus.sip.transaction.transaction_layer import SendRequest

PING = b"\r\n\r\n"
TCP = Target("TCP", SERVER)


@pytest.mark.parametrize("data", [PING, b"\r\n", b"\n\n", b""])
def test_a_bare_crlf_datagram_is_tolerated(talk: Talk, data: bytes) -> None:
    """RFC 5626 4.4 and 5.4: it is no message, gets no response and is not counted."""
    world, alice, broker = talk
    before = alice.agent.dropped
    assert alice.agent.step([DatagramReceived("sip", SERVER, data)], world.now) == []
    assert alice.agent.dropped == before
    assert settled(alice, broker)


def pings(world: World) -> list[float]:
    return [sent.at for sent in world.trace if sent.data == PING]


def test_keep_alives_are_sent_to_the_server_while_started(world: World) -> None:
    alice = world.phone("alice", "10.0.2.1", properties={"keep_alive_s": 20.0})
    world.run(600.0)
    gaps = [after - before for before, after in itertools.pairwise(pings(world))]
    assert len(gaps) > 28
    assert all(16.0 <= gap <= 20.0 for gap in gaps)
    assert len(set(gaps)) > 5, "spread, so that not all devices send at once"
    alice.give(StopUserAgent())
    world.run(1.0)
    sent = len(pings(world))
    world.run(100.0)
    assert len(pings(world)) == sent


def test_by_default_there_are_none(world: World) -> None:
    world.phone("alice", "10.0.2.1")
    world.run(600.0)
    assert pings(world) == []


def registers(world: World, phone: Phone) -> list[float]:
    return [sent.at for sent in world.sent("REGISTER", phone)]


def test_a_broken_flow_is_registered_again_soon(world: World) -> None:
    alice = world.phone("alice", "10.0.2.1", register_expires_s=3_000)
    world.run(200.0)
    world.trace.clear()
    broke = world.now
    alice.give(FlowFailed(), FlowFailed(), FlowFailed())
    world.run(20.0)
    again = registers(world, alice)
    assert len(again) == 1, "one failure may show many times"
    assert 0.25 <= again[0] - broke <= 0.5
    assert len(alice.all_of(Registered)) == 2


def test_a_flow_that_breaks_again_and_again_waits_longer_each_time(world: World) -> None:
    alice = world.phone("alice", "10.0.2.1", register_expires_s=3_000)
    world.run(200.0)
    pauses = []
    for _ in range(7):
        world.trace.clear()
        broke = world.now
        alice.give(FlowFailed())
        world.run(10.0)
        pauses.append(registers(world, alice)[0] - broke)
    for pause, bound in zip(pauses, [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0], strict=True):
        assert bound / 2 <= pause <= bound
    world.run(130.0)
    world.trace.clear()
    broke = world.now
    alice.give(FlowFailed())
    world.run(1.0)
    assert registers(world, alice)[0] - broke <= 0.5, "it held for two minutes: no past"


def test_a_broken_flow_after_stop_is_ignored(world: World) -> None:
    alice = world.phone("alice", "10.0.2.1")
    world.run(1.0)
    alice.give(StopUserAgent())
    world.run(1.0)
    world.trace.clear()
    alice.give(FlowFailed())
    world.run(20.0)
    assert registers(world, alice) == []


def test_a_move_forgets_what_broke_before() -> None:
    recovery = Recovery(SeededRandom("recovery"))
    for _ in range(5):
        recovery.pause_s(0.0)
    assert recovery.pause_s(0.0) > 4.0 - 1e-9
    recovery.forget()
    assert recovery.pause_s(0.0) <= 0.5


class Streaming:
    """A user agent with a TCP connection to its server, stepped by the test."""

    def __init__(self) -> None:
        properties = Properties(uri="alice@example.org", server=SERVER, transport="TCP", keep_alive_s=100.0)
        self.agent = UserAgent(properties, SeededRandom("streaming"), contact=("10.0.2.1", 5060))
        self.outputs: Sequence[Output] = ()
        self.give(Start(), now=0.0)

    def give(self, *inputs: Input, now: float) -> None:
        self.outputs = self.agent.step(inputs, now)
        assert not any(isinstance(output, SendDatagram) for output in self.outputs)

    def set_for(self, key: tuple[str, str]) -> list[float]:
        """Return when the timer ``key`` was set to fire."""
        return [output.at for output in self.outputs if isinstance(output, SetTimer) and output.key == key]

    def sent(self) -> list[bytes]:
        return [output.data for output in self.outputs if isinstance(output, SendOnStream)]


def test_c11_over_tcp_the_contact_names_the_transport() -> None:
    streaming = Streaming()
    register = parse_message(streaming.sent()[0])
    assert isinstance(register, Request)
    assert register.via.transport == "TCP"
    assert register.contact is not None
    assert str(register.contact.uri) == "sip:alice@10.0.2.1:5060;transport=tcp"


KEEP_ALIVE = ("flow", "keep-alive")
REGISTER = ("registration", "register")


def test_an_unanswered_keep_alive_on_a_stream_registers_the_flow_again() -> None:
    """RFC 5626 4.4.1: CRLF within ten seconds."""
    streaming = Streaming()
    streaming.give(TimerFired(KEEP_ALIVE), now=100.0)
    assert streaming.sent() == [PING]
    assert streaming.set_for(KEEP_ALIVE) == [110.0]
    streaming.give(StreamReceived("sip", 1, SERVER, b"\r\n", target=TCP), now=100.1)
    assert 180.1 <= streaming.set_for(KEEP_ALIVE)[0] <= 200.1
    streaming.give(TimerFired(KEEP_ALIVE), now=200.0)
    streaming.give(TimerFired(KEEP_ALIVE), now=210.0)
    assert 210.25 <= streaming.set_for(REGISTER)[0] <= 210.5


@pytest.mark.parametrize(("target", "broken"), [(TCP, True), (Target("TCP", ("10.0.7.7", 5060)), False), (None, False)])
def test_a_closed_connection_to_the_server_is_a_broken_flow(target: Target | None, broken: bool) -> None:
    streaming = Streaming()
    streaming.give(StreamClosed("sip", 1, "reset by peer", target=target), now=50.0)
    assert bool(streaming.set_for(REGISTER)) == broken


def test_a_route_to_the_server_leads_there_by_the_connection_that_is_open() -> None:
    """A Record-Route has the server's address and not the name in its certificate."""
    properties = Properties(
        uri="alice@example.org", server=SERVER, transport="TLS", server_name="sip.example.org", keep_alive_s=100.0
    )
    agent = UserAgent(properties, SeededRandom("streaming"), contact=("10.0.2.1", 5060))
    headers = (("From", "<sip:a@b>;tag=1"), ("To", "<sip:b@b>"), ("Call-ID", "c"), ("CSeq", "1 OPTIONS"))
    request = Request("OPTIONS", "sip:bob@10.0.3.1", headers)
    (sent,) = [
        output
        for output in agent.step([SendRequest(f"{OWNER_TRANSACTION_PREFIX}1", request, Target("TLS", SERVER))], 0.0)
        if isinstance(output, SendOnStream)
    ]
    assert sent.target == properties.server_target
    assert sent.target.server_name == "sip.example.org"
