"""SIP sessions and data channels become links; failures and refusals (SPEC A-07, E-01, E-07, E-10, G-02)."""

from __future__ import annotations

from collections.abc import Hashable

import msgspec
import pytest

from tests.client.town import DATA_ADDRESS, STREAM_ADDRESS, Phone, Town, connected
from tests.datachannel.sides import changed
from wanderbus import records
from wanderbus.access.access_server import AccessServer
from wanderbus.access.messages import BrokerRegistered, BrokerUnregistered, ChannelRefused
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import Append
from wanderbus.broker.state.state import BrokerState
from wanderbus.client.machine.messages import ConnectRefused, Disconnect
from wanderbus.errors import StateCorrupt
from wanderbus.machine import (
    CancelTimer,
    DatagramReceived,
    Output,
    SendDatagram,
    SetTimer,
    TimerFired,
)
from wanderbus.mobility.admission import Admission
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.session.session import RemoteMediaStatus
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.records import decode_record
from wanderbus.refusals import LoginRefused
from wanderbus.simulation.server import BROKER_URI, DOMAIN, SERVER_ADDRESS, SERVER_IP, SimulatedServer, password_of
from wanderbus.simulation.world import SeededRandom, World
from wanderbus.sip.authentication.digest import Authenticator, DigestClient
from wanderbus.sip.message.message import Request, Response, encode_message, parse_message
from wanderbus.sip.message.sdp import MediaDescription


@pytest.fixture
def town() -> Town:
    return Town()


def devices_of(town: Town) -> dict[str, tuple[str, bool]]:
    """The status of each device in the broker's state, and whether a SIP session is kept for it."""
    return {key: (row.status, bool(row.binding)) for key, row in town.access.broker.state.devices.items()}


def test_e01_one_session_for_each_agent_kept_by_its_uri(town: Town) -> None:
    phones = [connected(town, name, number=number) for number, name in enumerate(("alice", "bob", "carol"), 1)]
    assert [session.user for session in town.access._sessions.by_id.values()] == [phone.uri for phone in phones]
    assert devices_of(town) == {f"{phone.uri}/{phone.properties.device}": ("CONNECTED", True) for phone in phones}


def test_e02_two_devices_are_one_user(town: Town) -> None:
    phone, laptop = connected(town, number=1), connected(town, number=2)
    assert phone.uri == laptop.uri
    phone.publish(1)
    town.run(0.5)
    assert phone.received == laptop.received == [1]
    assert len(town.access.broker.state.sessions) == 1


def test_e10_a_restarted_agent_replaces_its_session_and_keeps_subscriptions_and_queue(town: Town) -> None:
    first, bob = connected(town, takes=False), connected(town, "bob", number=2)
    bob.publish(1)
    town.run(0.5)
    first.node.kill()
    bob.publish(2)
    second = connected(town, number=1, epoch=9)
    town.run(1.0)
    assert second.received == [1, 2]
    sessions = town.access._sessions.by_id
    assert [session.device for session in sessions.values() if session.user == first.uri] == [first.properties.device]
    assert len(town.access._transports.udp.endpoint._connections) == 2
    assert list(town.access._user_agent.sessions) == list(sessions)


over_both = pytest.mark.parametrize("over", ["UDP", "TCP"])
"""Transports of the data channel (SPEC F-01)."""


@over_both
def test_g02_e07_a_failed_send_makes_the_user_disconnected_and_media_too_and_leaves_sip(town: Town, over: str) -> None:
    alice, bob = connected(town, data_transport=over), connected(town, "bob", number=2)
    session = alice.agent._session
    town.network.cut(alice.ip)
    bob.publish(1)
    town.run(30.0)
    assert town.access.broker.status(alice.uri) == "DISCONNECTED"
    assert town.access._user_agent.sessions[session].media_status is RemoteMediaStatus.DISCONNECTED
    log = [decode_record(payload) for _, _, payload in town.server.disk.log]
    changes = [r for r in log if isinstance(r, records.StatusChanged) and r.user == alice.uri]
    assert [(c.status, c.reason) for c in changes] == [
        ("CONNECTED", "session established"),
        ("DISCONNECTED", "the agent does not answer"),
    ]
    town.network.mend(alice.ip)
    town.run(10.0)
    assert alice.received == [1]
    assert town.access.broker.status(alice.uri) == "CONNECTED"
    assert town.access._user_agent.sessions[alice.agent._session].media_status is RemoteMediaStatus.CONNECTED


@over_both
def test_c14_a_connection_that_the_server_gave_up_is_replaced_although_the_agent_did_not_notice(
    town: Town, over: str
) -> None:
    """An agent that was idle in the meantime offers the connection that the server has lost."""
    alice, bob = connected(town, keepalive_s=1e6, data_transport=over), connected(town, "bob", number=2)
    town.network.cut(alice.ip)
    bob.publish(1)
    town.run(30.0)
    assert town.access.broker.status(alice.uri) == "DISCONNECTED"
    assert alice.statuses == ["CONNECTED"]
    town.network.mend(alice.ip)
    alice.move("10.1.9.9")
    town.run(1.0)
    assert alice.received == [1]
    assert town.access.broker.status(alice.uri) == "CONNECTED"


@over_both
def test_c14_an_idle_agent_learns_at_its_next_keepalive_that_the_server_gave_it_up(town: Town, over: str) -> None:
    """Its pings are answered again by then, so nothing else reveals it; and it has no data to retransmit."""
    alice, bob = connected(town, data_transport=over, keepalive_s=18.0), connected(town, "bob", number=2)
    town.network.cut(alice.ip)
    bob.publish(1)
    town.run(16.5)
    assert town.access.broker.status(alice.uri) == "DISCONNECTED"
    town.network.mend(alice.ip)
    assert alice.statuses == ["CONNECTED"]
    town.run(30.0)
    assert town.access.broker.status(alice.uri) == "CONNECTED"
    assert alice.received == [1]


def test_the_end_of_a_session_is_the_end_of_its_entry(town: Town) -> None:
    alice = connected(town)
    alice.node.feed([Disconnect()])
    town.run(2.0)
    assert not town.access._sessions.by_id
    assert not town.access._sessions.by_device
    assert not town.access._sessions.by_link
    assert not town.access._transports.udp.endpoint._connections
    assert devices_of(town) == {f"{alice.uri}/{alice.properties.device}": ("DISCONNECTED", False)}


def test_a_move_is_bound_to_its_new_address_in_the_log(town: Town) -> None:
    alice = connected(town)
    alice.move("10.1.4.4")
    town.run(0.5)
    assert town.server.address_of(alice.uri) == "10.1.4.4:40000"


def test_u05_a_data_channel_that_was_changed_on_the_way_is_counted_and_reported(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[Output] = []
    monkeypatch.setattr(town.server._access, "_on_report", reports.append)
    phone = Phone(town)
    whole = phone.agent._media
    monkeypatch.setattr(phone.agent, "_media", lambda: changed(whole(), wanderbus_generation="7"))
    phone.connect()
    refusals = [report for report in reports if isinstance(report, ChannelRefused)]
    assert {refusal.user for refusal in refusals} == {phone.uri}
    assert town.access.refused == {refusals[0].reason: len(refusals)}
    assert town.access._sessions.by_id == {}


def test_u05_a_user_without_a_password_here_needs_tls_for_the_signalling(town: Town) -> None:
    """The same holds behind a registrar that keeps the passwords (DESIGN 6.5)."""
    town.access._signalling._channels._authenticator = None
    agent = town.access._user_agent
    agent._admission = Admission(agent._composer, agent._layer)
    phone = Phone(town).connect()
    assert "use TLS" in phone.all_of(ConnectRefused)[0].reason
    assert town.access._sessions.by_id == {}


def access_server(state: BrokerState | None = None) -> AccessServer:
    random = SeededRandom(World(3))
    return AccessServer(
        Properties(uri=BROKER_URI, server=SERVER_ADDRESS, password=password_of("broker")),
        Broker(state or BrokerState("wb", 8), BrokerConfig()),
        random,
        sip_address=(SERVER_IP, 5070),
        data_address=DATA_ADDRESS,
        stream_address=STREAM_ADDRESS,
        reset_key=bytes(32),
        authenticator=Authenticator(DOMAIN, password_of, random.token(16)),
    )


def test_d02_on_start_it_writes_that_it_started_and_registers() -> None:
    outputs = access_server().start(5_000_000, 0.0)
    (append,) = [output for output in outputs if isinstance(output, Append)]
    assert [decode_record(data) for _, _, data in append.entries] == [
        records.Started(at_us=5_000_000, server="wb", incarnation=5_000_000, epoch=5_000_000)
    ]
    (register,) = [output for output in outputs if isinstance(output, SendDatagram)]
    assert register.data.startswith(b"REGISTER sip:sim.test SIP/2.0\r\n")
    assert (register.socket, register.destination) == ("broker-sip", SERVER_ADDRESS)


def test_an_unreadable_stored_session_is_one_line() -> None:
    state = BrokerState("wb", 8)
    stored = records.DialogStored(
        at_us=1, user="sip:alice@sim.test", device="phone", address="10.0.0.9:1", binding=b"damaged"
    )
    state.apply(0, records.Attached(at_us=1, user=stored.user, device="phone", session="default", epoch=1))
    state.apply(1, stored)
    with pytest.raises(StateCorrupt, match=r"the stored session of sip:alice@sim\.test cannot be read"):
        access_server(state).start(0, 0.0)


def invite(body: bytes, caller: str = "alice") -> bytes:
    headers = (
        ("Via", "SIP/2.0/UDP 10.1.0.1:5060;branch=z9hG4bKx1;rport"),
        ("Max-Forwards", "70"),
        ("From", f"<sip:{caller}@sim.test>;tag=a"),
        ("To", "<sip:broker@sim.test>"),
        ("Call-ID", "call"),
        ("CSeq", "1 INVITE"),
        ("Contact", f"<sip:{caller}@10.1.0.1:5060>"),
        ("Content-Type", "application/sdp"),
    )
    return encode_message(Request("INVITE", "sip:broker@10.0.0.1:5070", headers, body))


def test_design_6_4_a_caller_is_asked_who_it_is(town: Town) -> None:
    town.network.send(("10.1.0.1", 5060), (SERVER_IP, 5070), invite(b""))
    town.run(0.2)
    (answer,) = [s.message for s in town.sent if s.destination == ("10.1.0.1", 5060)]
    assert isinstance(answer, Response)
    assert answer.status == 401
    assert len(town.access._sessions.by_id) == 0


def test_a_caller_with_a_wrong_password_is_reported() -> None:
    access, caller = access_server(), ("10.1.0.1", 5060)
    client = DigestClient("alice", "guess", SeededRandom(World(4)))
    (challenge,) = sent_datagrams(access.step([DatagramReceived("broker-sip", caller, invite(b""))], 0.0))
    challenged = parse_message(challenge.data)
    assert isinstance(challenged, Response)
    assert client.learn(challenged)
    again = parse_message(invite(b"").replace(b"z9hG4bKx1", b"z9hG4bKx2"))
    assert isinstance(again, Request)
    outputs = access.step([DatagramReceived("broker-sip", caller, encode_message(client.authorize(again)))], 0.1)
    refused = [output for output in outputs if isinstance(output, LoginRefused)]
    assert refused == [LoginRefused("sip:alice@sim.test", "Wrong User Or Password", "10.1.0.1")]


def sent_datagrams(outputs: list[Output]) -> list[SendDatagram]:
    return [output for output in outputs if isinstance(output, SendDatagram)]


@pytest.mark.parametrize("missing", ["wanderbus-connection", "wanderbus-generation", "wanderbus-key", "wanderbus-mac"])
def test_an_offer_without_a_data_channel_is_declined_with_488(
    town: Town, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = Phone(town)
    whole = phone.agent._media

    def lacking() -> MediaDescription:
        media = whole()
        return msgspec.structs.replace(media, attributes=tuple(a for a in media.attributes if a[0] != missing))

    monkeypatch.setattr(phone.agent, "_media", lacking)
    at = town.world.now
    phone.connect()
    assert 488 in [s.message.status for s in town.since(at) if isinstance(s.message, Response)]
    assert phone.statuses == []
    assert town.access._sessions.by_id == {}


def test_noise_on_either_socket_does_nothing(town: Town) -> None:
    alice = connected(town)
    node = town.server._access
    assert node is not None
    for socket in ("broker-sip", "data", "unheard of"):
        for data in (b"", b"\x00" * 40, b"INVITE sip:x SIP/2.0\r\n\r\n", b"\xff" * 2000, invite(b"v=0")[:-1]):
            node.feed([DatagramReceived(socket, ("192.0.2.66", 6), data)])
    alice.publish(1)
    town.run(1.0)
    assert alice.received == [1]


def test_a_broker_that_cannot_register_reports_it_and_retries() -> None:
    server = access_server()
    timers: dict[Hashable, float] = {}
    reports: list[Output] = []
    at, outputs = 0.0, server.start(0, 0.0)
    while at < 60.0:
        for output in outputs:
            match output:
                case SetTimer(key=key, at=due):
                    timers[key] = due
                case CancelTimer(key=key):
                    timers.pop(key, None)
                case _:
                    reports.append(output)
        key = min(timers, key=lambda each: timers[each])
        at = timers.pop(key)
        outputs = server.step([TimerFired(key)], at)
    failures = [report for report in reports if isinstance(report, BrokerUnregistered)]
    assert failures
    assert failures[0].status is None
    registers = [report.data for report in reports if isinstance(report, SendDatagram)]
    assert len({data.split(b"CSeq: ")[1].split(b"\r\n")[0] for data in registers}) > 1


def test_a_registered_broker_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[Output] = []
    monkeypatch.setattr(SimulatedServer, "_report", lambda self, output: reports.append(output))
    Town()
    assert BrokerRegistered() in reports
