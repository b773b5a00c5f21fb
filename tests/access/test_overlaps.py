"""Overlaps: a new agreement on the data channel while messages of the previous one are in flight (DESIGN 6.3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.client.town import Sent, Town, connected
from wanderbus import protocol
from wanderbus.access.device_signalling import RENEW_AFTER_S
from wanderbus.access.parts import USER_AGENT
from wanderbus.machine import Output
from wanderbus.mobility.messages import UpdateSession
from wanderbus.simulation.server import SERVER_IP
from wanderbus.sip.message.message import Response


@pytest.fixture
def town() -> Town:
    return Town()


def restart(town: Town) -> None:
    town.server.crash(lose_rows=False)
    town.run(0.1)
    town.server.start()


def connection_ids(sent: Sent) -> list[str]:
    """The ids of connections that the SDP in a message names."""
    lines = sent.data.decode(errors="replace").splitlines()
    return [line.partition(":")[2] for line in lines if line.startswith("a=wanderbus-connection:")]


def invites(town: Town, ip: str, at: float) -> list[Sent]:
    return [sent for sent in town.since(at) if sent.method == "INVITE" and sent.source[0] == ip]


def test_design_6_3_a_server_that_was_renewing_when_the_agent_came_itself_offers_nothing_stale(town: Town) -> None:
    """The agent's re-INVITE arrives from a new address and overtakes the renewal, whose connection is abandoned."""
    alice = connected(town)
    town.blocked.add((alice.ip, 5060))
    restart(town)
    at = town.world.now
    town.run(0.35)
    (renewal,) = {identity for invite in invites(town, SERVER_IP, at) for identity in connection_ids(invite)}
    at = town.world.now
    alice.move("10.1.8.8")
    town.run(30.0)
    stale = [sent for sent in town.since(at) if sent.source == (SERVER_IP, 5070) and renewal in connection_ids(sent)]
    assert stale == []
    alice.publish(1)
    town.run(0.5)
    assert alice.received == [1]
    assert alice.statuses[-1] == "CONNECTED"


def test_design_6_3_an_agent_whose_update_met_a_renewal_offers_nothing_stale(town: Town) -> None:
    """Both are refused by glare; the server's is retried first, and its answer contains the agent's new description."""
    alice = connected(town)
    restart(town)
    town.run(RENEW_AFTER_S - 0.018)
    at = town.world.now
    alice.publish(1)
    town.run(0.1)
    (offered,) = {identity for invite in invites(town, alice.ip, at) for identity in connection_ids(invite)}
    glares = [sent for sent in town.since(at) if isinstance(sent.message, Response) and sent.message.status == 491]
    assert len(glares) == 2
    at = town.world.now
    town.run(30.0)
    assert [sent for sent in town.since(at) if offered in connection_ids(sent)] == []
    assert alice.statuses[-1] == "CONNECTED"
    assert alice.received == [1]


@pytest.mark.parametrize("over", ["UDP", "TCP"])
def test_data_held_back_for_one_pair_of_ids_are_not_sent_on_the_next(
    town: Town, monkeypatch: pytest.MonkeyPatch, over: str
) -> None:
    """Our id is the same in both: it was offered twice, and the agent had lost the first pair in the meantime."""
    alice, bob = connected(town, data_transport=over), connected(town, "bob", number=2)
    session = town.access._sessions.by_device[alice.uri, alice.properties.device]
    local_id, remote = session.channel.local, session.channel.remote
    said: list[object] = []
    receive = alice.agent._conversation.receive

    def noted(payload: bytes) -> list[Output]:
        said.append(protocol.decode_from_broker(payload))
        return receive(payload)

    monkeypatch.setattr(alice.agent._conversation, "receive", noted)
    synced: list[Callable[[], None]] = []
    append = town.server.disk.append
    monkeypatch.setattr(town.server.disk, "append", lambda *given, **how: synced.append(partial(append, *given, **how)))
    for n in (1, 2, 3):
        bob.publish(n)
    town.run(0.1)
    alice.agent._channel.lost()
    node = town.server._access
    assert node is not None
    town.access._parts.give(
        USER_AGENT, [UpdateSession(session.id, town.access._signalling._channels.describe(session.channel))]
    )
    node.feed([])
    town.run(0.1)
    assert session.channel.local == local_id
    assert session.channel.remote not in (None, remote)
    assert said == []
    monkeypatch.setattr(town.server.disk, "append", append)
    for sync in synced:
        sync()
    town.run(1.0)
    stream = [type(message) for message in said if not isinstance(message, protocol.Done)]
    assert stream == [protocol.Attachment, *[protocol.Notify] * 3]
    assert alice.received == [1, 2, 3]
    assert alice.statuses == ["CONNECTED", "CONNECTED"]
