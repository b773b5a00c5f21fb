"""Local media in offers, and their changes in living sessions (SPEC C-16, C-18, C-19, D-08)."""

from __future__ import annotations

import asyncio
import socket

import msgspec
import pytest

from tests.api_sip.parties import BOB, Party, run, two, until
from wanderbus.api.sip_mobility import (
    RemoteMediaStatus,
    SDPMediaDescriptionData,
    SIPCommunicationStatus,
    SIPMobilityListener,
    local_media,
    remote_media,
)
from wanderbus.errors import LocalProtocolError

pytestmark = pytest.mark.integration

TEXT = SDPMediaDescriptionData(4000)
FILES = SDPMediaDescriptionData(4001, "TCP", formats=("files",))
VOICE = SDPMediaDescriptionData(4002, "RTP/AVP", media="audio", formats=("0", "8"), attributes=(("ptime", "20"),))
ALL = (TEXT, FILES, VOICE)


def ports(party: Party, session: str) -> list[int]:
    """Ports that ``party`` would send data of ``session`` to."""
    return [line.port for line in remote_media(party.mobility.sessions[session])]


def test_c16_an_offer_of_three_media_is_parsed_by_the_peer() -> None:
    async def scenario() -> None:
        async with two({"media": ALL}, {"media": (VOICE, TEXT, FILES)}) as (alice, bob):
            session = await alice.mobility.create_session(BOB)
            offered = remote_media(bob.mobility.sessions[session.id])
            assert {(line.media, line.protocol, line.port, line.formats) for line in offered} == {
                (line.media, line.protocol, line.port, line.formats) for line in ALL
            }
            assert {line.address for line in offered} == {"127.0.0.1"}
            (voice,) = (line for line in offered if line.media == "audio")
            assert voice.attributes == (("ptime", "20"),)
            assert {line.port for line in remote_media(session)} == {4000, 4001, 4002}
            assert {line.port for line in local_media(session)} == {4000, 4001, 4002}

    run(scenario())


def test_c16_only_what_both_have_is_agreed() -> None:
    async def scenario() -> None:
        async with two({"media": ALL}, {"media": (FILES,)}) as (alice, bob):
            session = await alice.mobility.create_session(BOB)
            assert [line.protocol for line in remote_media(session) if line.port] == ["TCP"]
            assert [line.protocol for line in remote_media(bob.mobility.sessions[session.id]) if line.port] == ["TCP"]

    run(scenario())


def test_c01_media_need_not_be_a_data_channel_of_this_package() -> None:
    async def scenario() -> None:
        async with two({"media": (VOICE,)}, {"media": (VOICE,)}) as (alice, _):
            session = await alice.mobility.create_session(BOB)
            assert [(line.media, line.formats) for line in remote_media(session)] == [("audio", ("0", "8"))]

    run(scenario())


@pytest.mark.parametrize("mover", [0, 1], ids=["caller", "callee"])
def test_c18_c19_a_changed_port_updates_the_peer_in_the_same_session(mover: int) -> None:
    async def scenario() -> None:
        async with two() as parties:
            alice, bob = parties
            session = await alice.mobility.create_session(BOB)
            changing, other = parties[mover], parties[1 - mover]
            await changing.mobility.change_media_description(TEXT, SDPMediaDescriptionData(5000))
            assert ports(other, session.id) == [5000]
            assert other.callbacks.names.count("session_changed") == 1
            assert list(alice.mobility.sessions) == list(bob.mobility.sessions) == [session.id]
            versions = [party.mobility.sessions[session.id].description_version for party in (changing, other)]
            assert versions[0] > versions[1]

    run(scenario())


def test_c18_added_and_removed_media_reach_the_peer() -> None:
    async def scenario() -> None:
        async with two({}, {"media": ALL}) as (alice, bob):
            session = await alice.mobility.create_session(BOB)
            await alice.mobility.add_media_description(VOICE)
            assert set(ports(bob, session.id)) == {4000, 4002}
            await alice.mobility.remove_media_description(TEXT)
            assert [port for port in ports(bob, session.id) if port] == [4002]
            with pytest.raises(LocalProtocolError, match="at least one"):
                alice.mobility.remove_media_description(VOICE)

    run(scenario())


def test_c18_the_peers_next_data_use_the_new_port() -> None:
    async def scenario() -> None:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as before,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as after,
        ):
            for each in (before, after):
                each.bind(("127.0.0.1", 0))
                each.setblocking(False)
            first = SDPMediaDescriptionData(before.getsockname()[1])
            async with two({"media": (first,)}) as (alice, bob):
                session = await alice.mobility.create_session(BOB)
                await until(lambda: session.id in bob.mobility.sessions)
                moved = SDPMediaDescriptionData(after.getsockname()[1])
                await alice.mobility.change_media_description(first, moved)
                (line,) = remote_media(bob.mobility.sessions[session.id])
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                    sender.sendto(b"data", (line.address, line.port))
                assert await asyncio.get_running_loop().sock_recv(after, 100) == b"data"
                with pytest.raises(BlockingIOError):
                    before.recv(100)

    run(scenario())


def test_c19_an_update_by_either_side_is_the_same_session() -> None:
    async def scenario() -> None:
        async with two() as (alice, bob):
            session = await alice.mobility.create_session(BOB)
            bob.mobility.set_media_status(session.id, RemoteMediaStatus.DISCONNECTED)
            for party in (alice, bob, alice):
                updated = await party.mobility.update_session(session.id)
                assert updated.id == session.id
                assert updated.communication is SIPCommunicationStatus.CONNECTED
            assert len(alice.mobility.sessions) == len(bob.mobility.sessions) == 1
            assert bob.callbacks.names.count("session_created") == 1
            assert bob.callbacks.names.count("session_reconnected") == 3
            assert "session_changed" not in alice.callbacks.names + bob.callbacks.names, "nothing changed"
            assert bob.mobility.sessions[session.id].media_status is RemoteMediaStatus.CONNECTED

    run(scenario())


def test_updating_a_session_that_is_not_there_is_refused() -> None:
    async def scenario() -> None:
        async with two() as (alice, _):
            with pytest.raises(LocalProtocolError, match="no established session"):
                await alice.mobility.update_session("nothing")
            with pytest.raises(LocalProtocolError, match="no session"):
                alice.mobility.set_media_status("nothing", RemoteMediaStatus.CONNECTED)
            await alice.mobility.terminate_session("nothing")

    run(scenario())


def test_d08_a_move_updates_every_session_and_media_follow_the_device() -> None:
    async def scenario() -> None:
        async with two({"media": (TEXT, FILES)}, {"media": (TEXT, FILES)}) as (alice, bob):
            session = await alice.mobility.create_session(BOB)
            await alice.mobility.rebind("127.0.0.3")
            await until(lambda: "session_changed" in bob.callbacks.names)
            changed = bob.callbacks.last("session_changed")
            assert [line.destination for line in remote_media(changed)] == [("127.0.0.3", 4000), ("127.0.0.3", 4001)]
            assert changed.id == session.id
            assert alice.mobility.address[0] == "127.0.0.3"

    run(scenario())


def test_d08_a_listener_may_set_its_new_port_in_the_callback_for_the_new_address() -> None:
    class Relistening(SIPMobilityListener):
        def __init__(self, party: Party) -> None:
            self.party = party

        def local_ip_changed(self, address: str) -> None:
            self.party.mobility.change_media_description(TEXT, SDPMediaDescriptionData(6000))

    async def scenario() -> None:
        async with two() as (alice, bob):
            session = await alice.mobility.create_session(BOB)
            alice.mobility.add_listener(Relistening(alice))
            await alice.mobility.rebind("127.0.0.4")
            await until(lambda: "session_changed" in bob.callbacks.names)
            await asyncio.sleep(0.05)
            assert remote_media(bob.mobility.sessions[session.id])[0].destination == ("127.0.0.4", 6000)
            assert bob.callbacks.names.count("session_changed") == 1, "one re-INVITE says both"

    run(scenario())


@pytest.mark.integration
def test_hold_is_reported_to_the_application_and_ends_with_the_next_offer() -> None:
    """RFC 3264 8.4."""

    async def scenario() -> None:
        async with two() as (alice, bob):
            session = await alice.mobility.create_session(BOB)
            (media,) = alice.mobility.media_descriptions()
            on_hold = msgspec.structs.replace(media, attributes=(("sendonly", None),))
            await alice.mobility.change_media_description(media, on_hold)
            await until(lambda: "session_changed" in bob.callbacks.names)
            assert bob.callbacks.last("session_changed").held
            assert bob.mobility.sessions[session.id].direction == "recvonly"
            assert alice.mobility.sessions[session.id].direction == "sendonly"
            await alice.mobility.change_media_description(on_hold, media)
            await until(lambda: not bob.mobility.sessions[session.id].held)
            assert bob.callbacks.names.count("session_changed") == 2

    run(scenario())
