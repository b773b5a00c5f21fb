"""Agent and broker rest on the user agent under SIPMobility: the same sessions and callbacks (SPEC C-21, X41)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from tests.api_sip.parties import BOB, Recorder, run, two, until
from tests.client.town import Town, connected
from wanderbus.api.sip_mobility import (
    RemoteMediaStatus,
    SIPCommunicationStatus,
    SIPMobilityListenerManager,
    SIPSession,
    local_media,
    remote_media,
)
from wanderbus.api.sip_mobility.message_listener import SIPMessageListener
from wanderbus.api.sip_mobility.registration_manager import RegistrationManager
from wanderbus.api.sip_mobility.session_manager import SessionManager
from wanderbus.client.machine.messages import Disconnect
from wanderbus.machine import Address, Input, Output
from wanderbus.mobility.messages import AddressChanged
from wanderbus.mobility.user_agent import UserAgent
from wanderbus.simulation.server import BROKER_URI, DOMAIN
from wanderbus.sip.message.uri import canonical_uri

ALICE = f"sip:alice@{DOMAIN}"


class WatchedAgent:
    """The facade's interface to a user agent that the test drives in place of the helper."""

    def __init__(self, agent: UserAgent) -> None:
        self._agent = agent

    @property
    def sessions(self) -> Mapping[str, SIPSession]:
        return self._agent.sessions

    @property
    def contact(self) -> Address:
        return self._agent.contact

    def accept(self, session: str, media: object) -> None:
        """The owner answers offers, not the watcher."""


class Face:
    """The facade's modules on a user agent that an agent or a broker drives, with a listener that remembers."""

    def __init__(self, agent: UserAgent) -> None:
        self.callbacks = Recorder()
        listeners = SIPMobilityListenerManager()
        listeners.add(self.callbacks)
        watched: Any = WatchedAgent(agent)
        self.sessions = SessionManager(watched, listeners, lambda: None)  # type: ignore[arg-type, return-value]
        registration = RegistrationManager(watched, listeners, moved=lambda: None)
        self._messages = SIPMessageListener(self.sessions, registration)

    def watch(self, inputs: Sequence[Input], before: Address, outputs: Sequence[Output]) -> None:
        """Report one step as the facade's stack does, and a new address as its address monitor does."""
        for given in inputs:
            if isinstance(given, AddressChanged) and given.contact[0] != before[0]:
                self.callbacks.local_ip_changed(given.contact[0])
        for output in outputs:
            self._messages.report(output)


@pytest.fixture
def faces(monkeypatch: pytest.MonkeyPatch) -> dict[str, Face]:
    """A face of every user agent that is stepped, by its user."""
    made: dict[str, Face] = {}
    step = UserAgent.step

    def watched(agent: UserAgent, inputs: Iterable[Input], now: float) -> Sequence[Output]:
        face = made.setdefault(canonical_uri(agent._properties.uri), Face(agent))
        taken, before = list(inputs), agent.contact
        outputs = step(agent, taken, now)
        face.watch(taken, before, outputs)
        return outputs

    monkeypatch.setattr(UserAgent, "step", watched)
    return made


def travel() -> None:
    """An agent connects, loses touch, moves and leaves."""
    town = Town()
    phone = connected(town)
    phone.publish(1)
    town.run(1.0)
    former = phone.addresses()
    town.blocked.update(former)
    phone.publish(2)
    while phone.statuses[-1] == "CONNECTED":
        town.run(0.1)
    phone.move("10.1.0.9")
    town.run(5.0)
    assert phone.received == [1, 2]
    assert phone.statuses == ["CONNECTED", "DISCONNECTED", "CONNECTED"]
    phone.node.feed([Disconnect()])
    town.run(5.0)


def of_the_facade() -> tuple[list[str], list[str]]:
    """Return the callbacks that two programs get of SIPMobility on the same journey."""
    callbacks: list[list[str]] = []

    async def scenario() -> None:
        async with two() as (alice, bob):
            session = await alice.mobility.create_session(BOB)
            alice.mobility.set_media_status(session.id, RemoteMediaStatus.DISCONNECTED)
            await until(lambda: "remote_media_disconnected" in alice.callbacks.names)
            await alice.mobility.rebind("127.0.0.2")
            await until(
                lambda: "session_changed" in alice.callbacks.names and alice.callbacks.names.count("registered") == 2
            )
            await until(lambda: "session_changed" in bob.callbacks.names)
            # An agent that leaves gives its data channel up before it ends the session.
            alice.mobility.set_media_status(session.id, RemoteMediaStatus.DISCONNECTED)
            await alice.mobility.terminate_session(session.id)
            await alice.mobility.unregister()
            callbacks.extend([list(alice.callbacks.names), list(bob.callbacks.names)])

    run(scenario())
    return callbacks[0], callbacks[1]


def in_order(names: list[str]) -> list[str]:
    """Without ``registered``: whether REGISTER or re-INVITE is answered first is the network's affair."""
    return [name for name in names if name != "registered"]


def test_c21_the_facade_shows_the_sessions_of_agent_and_broker(faces: dict[str, Face]) -> None:
    town = Town()
    phone = connected(town)
    for ip in ("10.1.0.1", "10.1.0.9"):
        if ip != phone.ip:
            phone.move(ip)
            town.run(1.0)
        (here,) = faces[ALICE].sessions.sessions.values()
        (there,) = faces[BROKER_URI].sessions.sessions.values()
        assert here == phone.agent._user_agent.sessions[here.id]
        assert there == town.access._user_agent.sessions[here.id]
        assert (here.owner_uri, here.remote_uri) == (there.remote_uri, there.owner_uri) == (ALICE, BROKER_URI)
        assert local_media(here)[0].destination == remote_media(there)[0].destination == phone.addresses()[1]
        for session in (here, there):
            assert session.communication is SIPCommunicationStatus.CONNECTED
            assert session.media_status is RemoteMediaStatus.CONNECTED


@pytest.mark.integration
def test_c21_x41_agent_and_broker_have_the_callbacks_of_the_facade(faces: dict[str, Face]) -> None:
    travel()
    agent, broker = faces[ALICE].callbacks.names, faces[BROKER_URI].callbacks.names
    one, other = of_the_facade()
    assert in_order(agent) == in_order(one)
    assert agent.count("registered") == one.count("registered") == 2
    assert broker == other
