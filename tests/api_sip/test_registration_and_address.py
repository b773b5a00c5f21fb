"""Registration with its refusals, and the address monitor (SPEC C-06, D-02, D-04, D-05)."""

from __future__ import annotations

import asyncio

import pytest

from tests.api_sip.parties import BOB, DOMAIN, PASSWORDS, Recorder, properties, registered, run, two, until
from wanderbus.api.sip_mobility import SIPHelper, SIPMobility, SIPServers, remote_media
from wanderbus.errors import (
    Closed,
    ConfigurationError,
    LocalProtocolError,
    SessionRefused,
    Unreachable,
    WrongPassword,
)
from wanderbus.runtime.net import addresses

pytestmark = pytest.mark.integration


def test_registering_grants_a_time_and_leaving_removes_the_binding() -> None:
    async def scenario() -> None:
        async with two() as (alice, bob):
            assert await alice.mobility.register() == pytest.approx(60, abs=1)
            assert alice.callbacks.names == ["registered"], "the same binding is reported once"
            assert alice.mobility.registration_manager.registered
            await bob.mobility.unregister()
            assert bob.callbacks.names == ["registered", "unregistered"]
            with pytest.raises(SessionRefused, match="480"):
                await alice.mobility.create_session(BOB)
            await bob.mobility.register()
            await alice.mobility.create_session(BOB)

    run(scenario())


def test_d04_sessions_outlive_the_registration() -> None:
    async def scenario() -> None:
        async with two() as (alice, bob):
            session = await alice.mobility.create_session(BOB)
            await bob.mobility.unregister()
            assert (await alice.mobility.update_session(session.id)).id == session.id

    run(scenario())


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("carol", "any")])
def test_c20_refused_users(user: str, password: str) -> None:
    async def scenario() -> None:
        async with (
            SIPServers(DOMAIN, PASSWORDS, port=0) as servers,
            SIPMobility(properties(user, servers.place, password=password)) as mobility,
        ):
            with pytest.raises(WrongPassword):
                await mobility.register()
            assert not mobility.registration_manager.registered

    run(scenario())


def test_a_registrar_that_does_not_answer_is_waited_for_only_so_long() -> None:
    async def scenario() -> None:
        async with SIPServers(DOMAIN, PASSWORDS, port=0) as gone:
            place = gone.place
        async with SIPMobility(properties("alice", place, wait_s_max=0.2)) as mobility:
            begun = asyncio.get_running_loop().time()
            with pytest.raises(Unreachable, match="could not be registered"):
                await mobility.register()
            assert 0.2 <= asyncio.get_running_loop().time() - begun < 4
            # The BYE gets no response either; the test does not wait for it.
            await mobility.helper.close(0.01)

    run(scenario())


def test_after_terminating_nothing_works_and_it_may_begin_again() -> None:
    async def scenario() -> None:
        async with SIPServers(DOMAIN, PASSWORDS, port=0) as servers:
            mobility = SIPMobility(properties("alice", servers.place))
            noted = Recorder()
            mobility.add_listener(noted)
            for _ in range(2):
                async with mobility:
                    await mobility.register()
                with pytest.raises(Closed):
                    await mobility.register()
            assert noted.names == ["registered", "unregistered"] * 2

    run(scenario())


def test_d05_a_change_of_the_route_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    here = ["127.0.0.1"]
    monkeypatch.setattr(addresses, "address_towards", lambda server: here[0])

    async def scenario() -> None:
        async with (
            SIPServers(DOMAIN, PASSWORDS, port=0) as servers,
            registered("bob", servers) as bob,
            registered("alice", servers, poll_s=0.02) as still,
        ):
            assert still.mobility.address[0] == "127.0.0.1"
            async with SIPMobility(properties("alice", servers.place, local_address=None, poll_s=0.02)) as mobility:
                noted = Recorder()
                mobility.add_listener(noted)
                await mobility.register()
                session = await mobility.create_session(BOB)
                here[0] = "127.0.0.5"
                await until(lambda: "session_changed" in bob.callbacks.names)
                await until(lambda: noted.names.count("registered") == 2)
                assert remote_media(bob.mobility.sessions[session.id])[0].address == "127.0.0.5"
                assert noted.names.count("local_ip_changed") == 1
            assert "local_ip_changed" not in still.callbacks.names, "a given address is kept"

    run(scenario())


def test_c06_a_user_is_registered_followed_moved_and_unregistered(monkeypatch: pytest.MonkeyPatch) -> None:
    here = ["127.0.0.1"]
    monkeypatch.setattr(addresses, "address_towards", lambda server: here[0])

    async def scenario() -> None:
        async with (
            SIPServers(DOMAIN, PASSWORDS, port=0) as servers,
            SIPMobility(properties("alice", servers.place, local_address=None, poll_s=0.02)) as mobility,
        ):
            noted, manager = Recorder(), mobility.registration_manager
            mobility.add_listener(noted)
            assert not manager.registered
            assert await mobility.register() == pytest.approx(60, abs=1)
            for here[0] in ("127.0.0.5", "127.0.0.6"):
                await until(lambda: mobility.address[0] == here[0] and manager.registered)
            assert noted.names == ["registered", *["local_ip_changed", "registered"] * 2]
            await mobility.rebind("127.0.0.7")
            assert not manager.registered, "the binding is for the former address"
            await until(lambda: manager.registered)
            here[0] = "127.0.0.8"
            await asyncio.sleep(0.1)
            assert mobility.address[0] == "127.0.0.7", "the route is followed no more"
            await mobility.unregister()
            assert not manager.registered
            assert noted.names[-1] == "unregistered"

    run(scenario())


def test_d10_a_device_back_at_the_same_address_updates_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    here: list[str | None] = ["127.0.0.1"]
    monkeypatch.setattr(addresses, "address_towards", lambda server: here[0])

    async def scenario() -> None:
        async with (
            SIPServers(DOMAIN, PASSWORDS, port=0) as servers,
            registered("bob", servers) as bob,
            SIPMobility(properties("alice", servers.place, poll_s=0.02)) as mobility,
        ):
            noted = Recorder()
            mobility.add_listener(noted)
            monitored = properties("alice", servers.place, local_address=None, poll_s=0.02)
            mobility.registration_manager.watch(monitored, servers.address)
            await mobility.register()
            session = await mobility.create_session(BOB)
            here[0] = None
            await asyncio.sleep(0.05)
            here[0] = "127.0.0.1"
            await until(lambda: "session_reconnected" in noted.names and "session_reconnected" in bob.callbacks.names)
            assert list(bob.mobility.sessions) == [session.id]
            assert "local_ip_changed" not in noted.names

    run(scenario())


def test_c11_the_same_over_tcp() -> None:
    async def scenario() -> None:
        async with two({"transport": "TCP"}, {"transport": "TCP"}) as (alice, bob):
            session = await alice.mobility.create_session(BOB)
            await alice.mobility.rebind("127.0.0.7")
            await until(lambda: "session_changed" in bob.callbacks.names)
            assert remote_media(bob.mobility.sessions[session.id])[0].address == "127.0.0.7"
            answer = await alice.mobility.helper.request("OPTIONS", BOB, body=b"x" * 2_000)
            assert answer.status == 200
            await bob.mobility.terminate_session(session.id)
            await until(lambda: not alice.mobility.sessions)

    run(scenario())


def test_initialising_twice_is_refused() -> None:
    async def scenario() -> None:
        async with (
            SIPServers(DOMAIN, PASSWORDS, port=0) as servers,
            SIPMobility(properties("alice", servers.place)) as mobility,
        ):
            with pytest.raises(LocalProtocolError, match="already"):
                await mobility.initialise()
            await mobility.register()

    run(scenario())


def test_an_address_that_is_not_ours_changes_nothing() -> None:
    async def scenario() -> None:
        async with two() as (alice, _):
            before = alice.mobility.address
            for address in ("192.0.2.1", "0.0.0.0", "home"):
                with pytest.raises(ConfigurationError):
                    await alice.mobility.rebind(address)
            assert alice.mobility.address == before
            assert alice.callbacks.names == ["registered"]
            await alice.mobility.create_session(BOB)

    run(scenario())


def test_a_fixed_port_is_kept_across_moves() -> None:
    async def scenario() -> None:
        async with two() as (alice, bob):
            port = alice.mobility.address[1]
            await alice.mobility.terminate()
            async with SIPMobility(
                properties("alice", bob.mobility.properties_manager.values.server, sip_port=port)
            ) as again:
                assert again.address == ("127.0.0.1", port)
                await again.register()
                await again.rebind("127.0.0.6")
                assert again.address == ("127.0.0.6", port)
                await again.rebind("127.0.0.6")
                assert again.address == ("127.0.0.6", port)

    run(scenario())


def test_c09_the_helper_serves_without_the_facade() -> None:
    async def scenario() -> None:
        async with SIPServers(DOMAIN, PASSWORDS, port=0) as servers, registered("bob", servers):
            helper = SIPHelper()
            helper.open(SIPHelper.properties(f"alice@{DOMAIN}", servers.place, password="secret"))
            answer = await helper.request("OPTIONS", BOB)
            assert (answer.status, answer.from_.uri.user) == (200, "alice")
            assert "INVITE" in (answer.header("Allow") or "")
            waiting = asyncio.create_task(helper.request("OPTIONS", BOB, destination=("127.0.0.9", 9)))
            await asyncio.sleep(0)
            await helper.close()
            with pytest.raises(Closed):
                await waiting
            with pytest.raises(Closed):
                helper.register()

    run(scenario())
