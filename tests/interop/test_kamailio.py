"""Our user agents at Kamailio: digest, calls by way of it, moves, CANCEL, over UDP and TCP (SPEC D-02, D-08)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.api_sip.parties import BOB, PASSWORDS, Party, properties, until
from tests.api_sip.parties import Recorder as Told
from tests.interop import kamailio as peer
from tests.interop.kamailio import Kamailio, kamailio
from wanderbus.api.sip_mobility import SIPMobility, remote_media
from wanderbus.errors import SessionRefused, UnknownUser, WrongPassword
from wanderbus.machine import Address

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(peer.PROGRAM is None, reason=peer.MISSING),
]

TRANSPORTS = ("UDP", "TCP")
ALGORITHMS = ("MD5", "SHA-256")
RUN_S_MAX = 12.0


@pytest.fixture(scope="module", params=ALGORITHMS)
def server(request: pytest.FixtureRequest) -> Iterator[Kamailio]:
    """Challenges REGISTER and INVITE, and stays on the path of every dialog."""
    with kamailio(PASSWORDS, algorithm=request.param) as started:
        yield started


def medium(party: Party, session: str) -> Address:
    """Where ``party`` sends data of ``session`` to."""
    return remote_media(party.mobility.sessions[session])[0].destination


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(RUN_S_MAX):
            await scenario()

    asyncio.run(bounded())


@contextlib.asynccontextmanager
async def phone(user: str, server: Kamailio, transport: str, **options: Any) -> AsyncIterator[Party]:
    async with SIPMobility(properties(user, server.place, transport=transport, **options)) as mobility:
        told = Told()
        mobility.add_listener(told)
        await mobility.register()
        yield Party(mobility, told)


async def move(mover: Party, other: Party, session: str, address: str) -> None:
    """``mover`` goes to another address; return when ``other`` and the registrar know."""
    await mover.mobility.rebind(address)
    await until(lambda: medium(other, session) == (address, 4000))
    await until(lambda: mover.mobility.registration_manager.registered)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_register_and_unregister(server: Kamailio, transport: str) -> None:
    """RFC 3261 10, 22; RFC 7616 with MD5 and SHA-256."""

    async def scenario() -> None:
        async with phone("alice", server, transport) as alice:
            assert alice.mobility.registration_manager.registered
            await alice.mobility.unregister()
            assert alice.told.names == ["registered", "unregistered"]

    run(scenario)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_wrong_password(server: Kamailio, transport: str) -> None:
    async def scenario() -> None:
        with pytest.raises(WrongPassword):
            async with phone("alice", server, transport, password="guess"):
                pass

    run(scenario)


def test_unknown_user(server: Kamailio) -> None:
    async def scenario() -> None:
        with pytest.raises(UnknownUser):
            async with phone("mallory", server, "UDP", password="guess"):
                pass

    run(scenario)


@pytest.mark.parametrize(("hers", "his"), [("UDP", "UDP"), ("TCP", "TCP"), ("UDP", "TCP"), ("TCP", "UDP")])
def test_call_move_and_bye(server: Kamailio, hers: str, his: str) -> None:
    """RFC 3261 12 to 15: INVITE challenged with 407; after a move REGISTER, then re-INVITE by way of Record-Route."""

    async def scenario() -> None:
        async with phone("alice", server, hers) as alice, phone("bob", server, his) as bob:
            session = await alice.mobility.create_session(BOB)
            await until(lambda: "session_connected" in bob.told.names)
            await move(alice, bob, session.id, "127.0.0.7")
            await move(bob, alice, session.id, "127.0.0.8")
            await bob.mobility.terminate_session(session.id)
            await until(lambda: not alice.mobility.sessions)
            again = await alice.mobility.create_session(BOB)
            await alice.mobility.terminate_session(again.id)
            await until(lambda: not bob.mobility.sessions)

    run(scenario)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_cancel(server: Kamailio, transport: str) -> None:
    """RFC 3261 9: Alice gives up while Bob's phone rings."""

    async def scenario() -> None:
        async with phone("alice", server, transport) as alice, phone("bob", server, transport) as bob:
            undecided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            bob.mobility.set_offer_handler(lambda session: undecided)
            calling = asyncio.create_task(alice.mobility.create_session(BOB))
            await until(lambda: "session_created" in bob.told.names)
            calling.cancel()
            await until(lambda: not (alice.mobility.sessions or bob.mobility.sessions))
            assert "session_connected" not in [*alice.told.names, *bob.told.names]

    run(scenario)


def test_refusal_comes_back(server: Kamailio) -> None:
    async def scenario() -> None:
        async with phone("alice", server, "UDP") as alice, phone("bob", server, "UDP") as bob:
            bob.mobility.set_offer_handler(lambda session: 486)
            with pytest.raises(SessionRefused, match="486"):
                await alice.mobility.create_session(BOB)

    run(scenario)
