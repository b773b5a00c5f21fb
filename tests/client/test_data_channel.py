"""The agent's data channel: accepted datagrams, trusted sources, and recovery (SPEC C-14, D-10, F-01, U-05)."""

from __future__ import annotations

from base64 import b64encode
from typing import Literal

import pytest

from tests.client.town import DATA_ADDRESS, Phone, Town, connected
from tests.datachannel.sides import changed
from wanderbus.client.machine.messages import ConnectRefused, Disconnect, Disconnected
from wanderbus.simulation.network import PathConditions


@pytest.fixture
def town() -> Town:
    return Town()


Over = Literal["UDP", "TCP"]

over_both = pytest.mark.parametrize("over", ["UDP", "TCP"])
"""Transports of the data channel: the handling of failures is the same for both (SPEC F-01)."""


@over_both
def test_f01_events_arrive_once_and_in_order_over_either_transport(town: Town, over: Over) -> None:
    alice = connected(town, data_transport=over)
    bob = connected(town, "bob", number=2, data_transport=over)
    for n in range(1, 51):
        bob.publish(n)
    town.run(2.0)
    assert alice.received == bob.received == list(range(1, 51))


def test_f01_an_agent_over_tcp_sends_no_event_by_datagram(town: Town) -> None:
    alice = connected(town, data_transport="TCP")
    start = town.world.now
    alice.publish(1)
    town.run(1.0)
    assert alice.received == [1]
    assert [s for s in town.since(start) if DATA_ADDRESS in (s.source, s.destination)] == []


def test_a08_in_plain_mode_too_no_event_bytes_are_on_sip_ports() -> None:
    town = Town(encryption=False)
    alice = connected(town, encryption=False)
    start = town.world.now
    alice.publish(1)
    town.run(1.0)
    carrying = [s for s in town.since(start) if b"Trade" in s.data]
    assert carrying
    assert {s.destination for s in carrying} <= {DATA_ADDRESS, (alice.ip, 40_000)}


@over_both
@pytest.mark.parametrize("who_noticed", ["agent", "both"])
def test_d10_the_probe_heals_within_its_pause_and_a_few_round_trips(who_noticed: str, over: Over) -> None:
    """Re-INVITEs at intervals would take longer: they are as good as off here."""
    town = Town(PathConditions(delay_min_s=0.02, delay_max_s=0.02))
    alice = connected(town, data_transport=over, heal_s=1e6, probe_s=1.0)
    bob = connected(town, "bob", number=2)
    town.network.cut(alice.ip)
    alice.publish(100)
    if who_noticed == "both":
        bob.publish(1)
    town.run(61.0)  # at 60 s a retry of SIP would heal it, too
    assert not alice.agent.connected
    assert town.access.broker.status(alice.uri) == ("DISCONNECTED" if who_noticed == "both" else "CONNECTED")
    mended_at = town.world.now
    town.network.mend(alice.ip)
    while not alice.agent.connected and town.world.now < mended_at + 30.0:
        town.run(0.01)
    # A TCP connection that is being opened tries again at its own pace, until a probe gives it up.
    patience_s = 0.0 if over == "UDP" else 1.0
    assert town.world.now - mended_at <= 1.0 + 5 * 0.04 + patience_s
    town.run(1.0)
    assert sorted(alice.received) == sorted(bob.received) == ([1, 100] if who_noticed == "both" else [100])


def test_d10_one_answer_to_a_probe_is_one_reinvite(town: Town) -> None:
    """The way is free for data alone, so the re-INVITEs go unanswered: probing must not multiply them."""
    phone = connected(town)
    town.network.cut(phone.ip)
    phone.publish(1)
    town.run(30.0)
    town.blocked.add((phone.ip, 5060))
    town.network.mend(phone.ip)
    start = town.world.now
    town.run(20.0)
    invites = [s.message for s in town.since(start) if s.method == "INVITE" and s.source[0] == phone.ip]
    assert 4 <= len({invite.cseq.number for invite in invites if invite}) <= 20


def test_d10_an_agent_that_leaves_sends_no_more_probes(town: Town) -> None:
    phone = connected(town)
    town.network.cut(phone.ip)
    phone.publish(1)
    town.run(30.0)
    phone.node.feed([Disconnect()])
    town.run(60.0)
    assert len(phone.all_of(Disconnected)) == 1
    assert "probe" not in phone.node.timers.keys


@over_both
@pytest.mark.parametrize("broker_encrypts", [True, False])
def test_u05_a_mismatch_of_encryption_is_a_refusal_with_advice(broker_encrypts: bool, over: Over) -> None:
    town = Town(encryption=broker_encrypts)
    phone = Phone(town, encryption=not broker_encrypts, data_transport=over).connect()
    town.run(20.0)
    encrypting, plain = ("broker", "agent") if broker_encrypts else ("agent", "broker")
    reason = f"the {encrypting} encrypts and the {plain} does not: give --no-encryption to both, or to neither"
    assert phone.all_of(ConnectRefused) == [ConnectRefused("session", 488, reason)]
    assert town.access.refused == {reason: 1}
    assert phone.statuses == []


@over_both
@pytest.mark.parametrize(
    "change",
    [
        {"wanderbus_mac": None},
        {"wanderbus_mac": "A" * 43 + "="},
        {"wanderbus_connection": "1f"},
        {"wanderbus_generation": "1"},
    ],
)
def test_u05_an_answer_that_was_changed_on_the_way_ends_the_session(
    town: Town, over: Over, change: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = town.access._signalling._channels
    whole = channels.describe
    monkeypatch.setattr(channels, "describe", lambda channel: changed(whole(channel), **change))
    phone = Phone(town, data_transport=over).connect()
    town.run(20.0)
    (refusal,) = phone.all_of(ConnectRefused)
    assert (refusal.stage, refusal.status) == ("session", 488)
    assert "signature" in refusal.reason or "signed" in refusal.reason
    assert phone.statuses == []
    assert town.access._sessions.by_id == {}


def test_u05_a_broker_that_was_restarted_with_less_is_refused_and_heals_when_it_is_as_before(town: Town) -> None:
    phone = connected(town)
    town.server.crash(lose_rows=False)
    town.server.encryption = False
    town.server.start()
    phone.publish(1)
    town.run(60.0)
    refusals = phone.all_of(ConnectRefused)
    assert refusals
    assert refusals[0].status == 488
    assert phone.statuses[-1] == "DISCONNECTED"
    assert phone.received == []
    assert len(refusals) < 15
    town.server.crash(lose_rows=False)
    town.server.encryption = True
    town.server.start()
    town.run(10.0)
    assert phone.statuses[-1] == "CONNECTED"
    assert phone.received == [1]


def test_u05_neither_password_nor_what_is_derived_from_it_is_in_the_signalling(town: Town) -> None:
    phone = connected(town)
    secret = phone.agent._channel.parties.secret
    assert secret is not None
    assert isinstance(phone.properties.password, str)
    for shown in (phone.properties.password, secret.hex(), b64encode(secret).decode()):
        assert not any(shown.encode() in s.data for s in town.sent)
