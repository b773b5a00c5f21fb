"""Any number of listeners, and eleven things to hear of (SPEC C-03, C-04)."""

from __future__ import annotations

import inspect

import pytest

from tests.api_sip.parties import BOB, Recorder, run, two, until
from wanderbus.api.sip_mobility import (
    RemoteMediaStatus,
    SDPMediaDescriptionData,
    SIPCommunicationStatus,
    SIPMobilityListener,
    SIPMobilityListenerManager,
    local_media,
    remote_media,
)

ELEVEN = {
    *("registered", "unregistered", "local_ip_changed"),
    *("session_created", "session_removed", "session_changed"),
    *("session_connected", "session_disconnected", "session_reconnected"),
    *("remote_media_connected", "remote_media_disconnected"),
}


class Raising(SIPMobilityListener):
    def registered(self, expires_s: float) -> None:
        raise RuntimeError("a fault of the application")


def test_c03_one_that_raises_does_not_block_the_other(caplog: pytest.LogCaptureFixture) -> None:
    manager = SIPMobilityListenerManager()
    before, after = Recorder(), Recorder()
    for listener in (before, Raising(), after):
        manager.add(listener)
    manager.notify(lambda listener: listener.registered(60.0))
    manager.notify(lambda listener: listener.local_ip_changed("127.0.0.2"))
    assert before.names == after.names == ["registered", "local_ip_changed"]
    assert "a fault of the application" in caplog.text


def test_c03_a_listener_added_twice_is_called_once_and_can_be_removed() -> None:
    manager = SIPMobilityListenerManager()
    listener, other = Recorder(), Recorder()
    for each in (listener, listener, other):
        manager.add(each)
    manager.notify(lambda each: each.unregistered("test"))
    manager.remove(listener)
    manager.remove(listener)
    manager.notify(lambda each: each.unregistered("test"))
    assert len(manager) == 1
    assert (listener.names, other.names) == (["unregistered"], ["unregistered", "unregistered"])


def test_c03_a_listener_may_remove_itself_in_a_callback() -> None:
    manager = SIPMobilityListenerManager()
    second = Recorder()

    class Leaving(SIPMobilityListener):
        def registered(self, expires_s: float) -> None:
            manager.remove(self)

    manager.add(Leaving())
    manager.add(second)
    manager.notify(lambda each: each.registered(1.0))
    assert second.names == ["registered"]
    assert len(manager) == 1


def test_c04_there_are_eleven_callbacks() -> None:
    callbacks = {name for name, _ in inspect.getmembers(SIPMobilityListener, inspect.isfunction)}
    assert callbacks == ELEVEN


@pytest.mark.integration
def test_c04_a_scripted_scenario_fires_all_eleven() -> None:
    async def scenario() -> None:
        async with two() as (alice, bob):
            second = Recorder()
            alice.mobility.add_listener(second)
            session = await alice.mobility.create_session(BOB)
            alice.mobility.set_media_status(session.id, RemoteMediaStatus.DISCONNECTED)
            await until(lambda: "remote_media_disconnected" in alice.callbacks.names)
            await alice.mobility.rebind("127.0.0.2")
            await until(
                lambda: "session_changed" in alice.callbacks.names and alice.callbacks.names.count("registered") == 2
            )
            await alice.mobility.terminate_session(session.id)
            await alice.mobility.unregister()
        moved = alice.callbacks.names.index("local_ip_changed")
        assert alice.callbacks.names[:moved] == [
            *("registered", "session_created", "session_connected", "remote_media_connected"),
            "remote_media_disconnected",
        ]
        after = [name for name in alice.callbacks.names[moved:] if name != "registered"]
        assert after == [
            *("local_ip_changed", "session_reconnected", "remote_media_connected", "session_changed"),
            *("session_disconnected", "remote_media_disconnected", "session_removed", "unregistered"),
        ]
        assert set(alice.callbacks.names) == ELEVEN
        assert second.names == alice.callbacks.names[1:]
        assert bob.callbacks.names == [
            *("registered", "session_created", "session_connected", "remote_media_connected"),
            *("session_reconnected", "session_changed"),
            *("session_disconnected", "remote_media_disconnected", "session_removed", "unregistered"),
        ]

    run(scenario())


@pytest.mark.integration
def test_c11_c14_a_reported_session_does_not_change() -> None:
    async def scenario() -> None:
        async with two() as (alice, bob):
            session = await alice.mobility.create_session(BOB)
            alice.mobility.set_media_status(session.id, RemoteMediaStatus.DISCONNECTED)
            await until(lambda: "remote_media_disconnected" in alice.callbacks.names)
            assert alice.callbacks.last("session_created").communication is SIPCommunicationStatus.INVITING
            assert bob.callbacks.last("session_created").communication is SIPCommunicationStatus.RINGING_HERE
            failed = alice.callbacks.last("remote_media_disconnected")
            assert failed.communication is SIPCommunicationStatus.CONNECTED
            assert failed.media_status is RemoteMediaStatus.DISCONNECTED
            assert session.owner_uri == "sip:alice@example.org"
            assert (session.remote_uri, session.sip_transport) == (BOB, "UDP")
            assert session.sip_address == alice.mobility.address
            assert bob.mobility.sessions[session.id].media_status is RemoteMediaStatus.CONNECTED

    run(scenario())


def test_c11_after_establishment_every_field_is_right() -> None:
    async def scenario() -> None:
        async with two(bob={"media": (SDPMediaDescriptionData(4700),)}) as (alice, bob):
            here = await alice.mobility.create_session(BOB)
            await until(lambda: "session_connected" in bob.callbacks.names)
            there = bob.mobility.sessions[here.id]
            for session, party, own, other in ((here, alice, 4000, 4700), (there, bob, 4700, 4000)):
                assert session.sip_address == party.mobility.address
                assert session.sip_transport == "UDP"
                assert session.created_here is (party is alice)
                assert [(m.address, m.port, m.protocol) for m in local_media(session)] == [("127.0.0.1", own, "UDP")]
                assert [(m.address, m.port, m.protocol) for m in remote_media(session)] == [("127.0.0.1", other, "UDP")]
                assert session.communication is SIPCommunicationStatus.CONNECTED
                assert session.media_status is RemoteMediaStatus.CONNECTED
            assert (here.owner_uri, here.remote_uri) == (there.remote_uri, there.owner_uri)

    run(scenario())
