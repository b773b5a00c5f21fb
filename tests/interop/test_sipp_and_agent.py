"""SIPp as callee, as caller and as registrar of our user agent (RFC 3261 10, 13 to 15, 22).

SIPp of Debian is built without TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AbstractAsyncContextManager

import pytest

from tests.api_sip.parties import BOB, DOMAIN, PASSWORDS, Recorder, properties, until
from tests.interop import lossy, sipp
from tests.interop.lossy import losing
from tests.interop.server import serving
from tests.interop.sipp import Play, play, playing
from tests.interop.test_sipp_and_server import LOSS, PATIENT
from wanderbus.api.sip_mobility import SIPMobility
from wanderbus.errors import WrongPassword
from wanderbus.sip.proxy.default_routing import OnPathRouting

pytestmark = [
    pytest.mark.integration,
    pytest.mark.interop(peer="SIPp"),
    pytest.mark.skipif(sipp.PROGRAM is None, reason=sipp.MISSING),
]

SERVED = ["session_created", "session_connected", "session_disconnected", "session_removed"]
TRANSPORTS = ("UDP", "TCP")
RUN_S_MAX = 40.0
LOSSY_RUN_S_MAX = 120.0
"""Time for a session to end when its ACK and BYE are lost: 64*T1 until either side gives up, and once more."""


def phone(user: str, server: int, transport: str, **options: object) -> SIPMobility:
    """The user's, for the server at that port."""
    return SIPMobility(properties(user, f"127.0.0.1:{server}", transport=transport, **options))


def serving_callee() -> AbstractAsyncContextManager[int]:
    """Our server on the path of every dialog: SIPp answers to where its call came from, not to where a request did."""
    return serving(PASSWORDS, routing=OnPathRouting())


async def register_callee(callee: Play, server: int, transport: str) -> None:
    """Register ``callee`` as Bob's contact."""
    bob = {"bob": PASSWORDS["bob"]}
    await asyncio.to_thread(play, "register", server, transport=transport, users=bob, contact_port=callee.port)


@pytest.mark.interop(scenario="calls our user agent, re-INVITE, BYE")
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("way", ["direct", "proxied"])
def test_call_with_reinvite_and_bye(way: str, transport: str) -> None:
    """The re-INVITE moves the caller's media, and the listener is notified (SPEC C-19); BYE ends the session."""

    async def scenario() -> None:
        async with asyncio.timeout(RUN_S_MAX), serving(PASSWORDS) as server, phone("bob", server, transport) as bob:
            told = Recorder()
            bob.add_listener(told)
            await bob.register()
            port = server if way == "proxied" else bob.address[1]
            callee = f"sip:bob@{DOMAIN if way == 'proxied' else f'127.0.0.1:{port}'}"
            await asyncio.to_thread(play, "call", port, transport=transport, callee=callee)
            await until(lambda: "session_removed" in told.names)
            assert [name for name in told.names if name in SERVED] == SERVED
            media = [each.remote_media.port for each in told.sessions if each is not None and each.remote_media]
            assert media[0] == 7001
            assert media[-1] == 7003

    asyncio.run(scenario())


@pytest.mark.interop(scenario="cancels its call to our user agent")
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_cancel_before_the_user_decides(transport: str) -> None:
    """RFC 3261 9.2: the phone rings, the caller gives up, INVITE is answered 487."""

    async def scenario() -> None:
        async with asyncio.timeout(RUN_S_MAX), serving(PASSWORDS) as server, phone("bob", server, transport) as bob:
            told = Recorder()
            bob.add_listener(told)
            bob.set_offer_handler(lambda session: asyncio.sleep(RUN_S_MAX))
            await bob.register()
            await asyncio.to_thread(play, "cancel", server, transport=transport)
            await until(lambda: "session_removed" in told.names)
            assert "session_connected" not in told.names

    asyncio.run(scenario())


@pytest.mark.interop(scenario="is called by our user agent, re-INVITE, BYE")
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_our_call_with_reinvite_and_bye(transport: str) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(RUN_S_MAX), serving_callee() as server, phone("alice", server, transport) as alice:
            with playing("answer", server, transport=transport) as bob:
                await register_callee(bob, server, transport)
                session = await alice.create_session(BOB)
                assert session.remote_media is not None
                assert session.remote_media.port == 7002
                await alice.update_session(session.id)
                await alice.terminate_session(session.id)
                await asyncio.to_thread(bob.wait)

    asyncio.run(scenario())


@pytest.mark.interop(scenario="our user agent cancels its call")
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_our_cancel(transport: str) -> None:
    """RFC 3261 9.1: after 180 the caller gives up; SIPp receives CANCEL, and ACK for its 487."""

    async def scenario() -> None:
        async with asyncio.timeout(RUN_S_MAX), serving_callee() as server, phone("alice", server, transport) as alice:
            with playing("cancelled", server, transport=transport) as bob:
                await register_callee(bob, server, transport)
                calling = asyncio.create_task(alice.create_session(BOB))
                await until(lambda: any("RINGING" in each.communication.name for each in alice.sessions.values()))
                calling.cancel()
                await until(lambda: not alice.sessions)
                await asyncio.to_thread(bob.wait)

    asyncio.run(scenario())


@pytest.mark.interop(scenario="our user agent registers, right and wrong password")
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_our_registration(transport: str) -> None:
    """RFC 3261 22, RFC 2617: SIPp checks the digest itself."""

    async def scenario() -> None:
        async with asyncio.timeout(RUN_S_MAX):
            with playing("registrar", transport=transport) as registrar:
                bob = phone("bob", registrar.port, transport)
                await bob.initialise()
                assert 0 < await bob.register() <= 60
                await asyncio.to_thread(registrar.wait)
            with playing("registrar", transport=transport) as registrar:
                wrong = phone("bob", registrar.port, transport, password="guess")
                await wrong.initialise()
                with pytest.raises(WrongPassword):
                    await wrong.register()
                await asyncio.to_thread(registrar.wait)
            for each in (bob, wrong):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.1):  # the registrar has ended, so the unregistration gets no response
                        await each.terminate()

    asyncio.run(scenario())


@pytest.mark.interop(scenario="our user agent's call is challenged")
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_our_call_is_challenged(transport: str) -> None:
    """RFC 3261 22.2: 401, ACK, and INVITE again with the digest, which SIPp checks."""

    async def scenario() -> None:
        async with asyncio.timeout(RUN_S_MAX):
            with playing("challenged_answer", transport=transport) as bob:
                async with phone("alice", bob.port, transport) as alice:
                    session = await alice.create_session(BOB)
                    await alice.terminate_session(session.id)
                    await asyncio.to_thread(bob.wait)

    asyncio.run(scenario())


@pytest.mark.interop(scenario="calls our user agent under loss")
@pytest.mark.skipif(not lossy.POSSIBLE, reason=lossy.MISSING)
@pytest.mark.parametrize("transport", ["UDP"])
def test_calls_to_us_where_the_network_loses(transport: str) -> None:
    """RFC 3261 13.3.1.4, 17: our user agent sends its 200 again until ACK comes; every call comes about and ends."""

    async def scenario() -> None:
        async with (
            asyncio.timeout(LOSSY_RUN_S_MAX),
            serving(PASSWORDS) as server,
            phone("bob", server, transport) as bob,
        ):
            told = Recorder()
            bob.add_listener(told)
            await bob.register()
            await asyncio.to_thread(play, "patient_call", server, calls=40, options=PATIENT, limit_s=45.0)
            await until(lambda: not bob.sessions)
            assert told.names.count("session_created") == 40

    with losing(LOSS) as lost:
        asyncio.run(scenario())
        assert lost() > 10


@pytest.mark.interop(scenario="is called by our user agent under loss")
@pytest.mark.skipif(not lossy.POSSIBLE, reason=lossy.MISSING)
@pytest.mark.parametrize("transport", ["UDP"])
def test_calls_by_us_where_the_network_loses(transport: str) -> None:
    """The same the other way: INVITE and BYE are ours to send again, and ACK whenever a 200 comes again."""

    async def scenario() -> None:
        async with (
            asyncio.timeout(LOSSY_RUN_S_MAX),
            serving_callee() as server,
            phone("alice", server, transport) as alice,
        ):
            with playing("patient_answer", server, calls=40, options=PATIENT, limit_s=60.0) as bob:
                await register_callee(bob, server, transport)
                for _ in range(4):
                    sessions = await asyncio.gather(*(alice.create_session(BOB) for _ in range(10)))
                    await asyncio.gather(*(alice.terminate_session(session.id) for session in sessions))

    with losing(LOSS) as lost:
        asyncio.run(scenario())
        assert lost() > 10
