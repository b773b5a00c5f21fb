"""Our user agents at Kamailio: digest, calls by way of it, moves, CANCEL, over UDP, TCP, TLS (SPEC C-11, D-02)."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.api_sip import parties
from tests.certificates import Certificates, make_certificates
from tests.interop import kamailio as peer
from tests.interop.kamailio import Kamailio, kamailio
from tests.interop.own_phone import Phone, phones, until
from wanderbus.api.sip_mobility import SIPMobility
from wanderbus.errors import UnknownUser, WrongPassword
from wanderbus.mobility.messages import (
    Registered,
    RegistrationFailed,
    SessionEstablished,
    SessionFailed,
    SessionOffered,
    TerminateSession,
)
from wanderbus.sip.message.targets import Transport

pytestmark = [
    pytest.mark.interop(peer="Kamailio"),
    pytest.mark.skipif(peer.PROGRAM is None, reason=peer.MISSING),
]

USERS = parties.PASSWORDS | {"twin": parties.PASSWORDS["bob"], "odd": "a\"b\\c$fU #!x'é MY"}
ALGORITHMS = ("MD5", "SHA-256")
RUN_S_MAX = 12.0
over_each = pytest.mark.parametrize(
    "transport",
    ["UDP", "TCP", pytest.param("TLS", marks=pytest.mark.skipif(not peer.HAS_TLS, reason=peer.TLS_MODULE))],
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=ALGORITHMS)
def server(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Kamailio]:
    """Challenges REGISTER and INVITE."""
    with kamailio(USERS, algorithm=request.param, certificates=certificates if peer.HAS_TLS else None) as started:
        yield started


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(RUN_S_MAX):
            await scenario()

    asyncio.run(bounded())


def phone(user: str, server: Kamailio, transport: Transport, *, password: str | None = None) -> Phone:
    return Phone(user, password or USERS[user], ("127.0.0.1", server.port_for(transport)), transport)


@over_each
@pytest.mark.interop(scenario="registration")
@pytest.mark.parametrize("user", ["alice", "odd"])
def test_register_and_unregister(server: Kamailio, transport: Transport, user: str, certificates: Certificates) -> None:
    """RFC 3261 10, 22; RFC 7616 with MD5 and SHA-256; any characters in a password."""

    async def scenario() -> None:
        alice = phone(user, server, transport)
        async with phones(alice, certificates=certificates):
            assert alice.last(Registered).expires_s == 60
        assert not alice.count(RegistrationFailed)

    run(scenario)


@pytest.mark.interop(scenario="registration", transport="UDP")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_register_where_no_password_is_stored(algorithm: str) -> None:
    """RFC 7616 3.4.2: the digest of user, realm and password is enough to check a response."""

    async def scenario() -> None:
        made = hashlib.new(algorithm.replace("-", ""), f"alice:{peer.DOMAIN}:{USERS['alice']}".encode())
        with kamailio({"alice": made.hexdigest()}, algorithm=algorithm, ha1=True) as server:
            async with phones(phone("alice", server, "UDP"), certificates=None):
                pass

    run(scenario)


@over_each
@pytest.mark.interop(scenario="wrong password")
def test_wrong_password(server: Kamailio, transport: Transport, certificates: Certificates) -> None:
    assert refusal(phone("alice", server, transport, password="guess"), certificates) == 401


@over_each
@pytest.mark.interop(scenario="unknown user")
def test_unknown_user(server: Kamailio, transport: Transport, certificates: Certificates) -> None:
    assert refusal(phone("mallory", server, transport, password="guess"), certificates) == 404


def refusal(stranger: Phone, certificates: Certificates) -> int | None:
    """Return the status that a phone is refused with which cannot register."""

    async def scenario() -> None:
        stranger.start(certificates)
        try:
            await until(lambda: stranger.count(RegistrationFailed))
        finally:
            stranger.close()
            await asyncio.sleep(0)

    run(scenario)
    assert not stranger.count(Registered)
    return stranger.last(RegistrationFailed).status


@pytest.mark.interop(scenario="somebody else's name", transport="UDP")
def test_nobody_registers_or_calls_as_somebody_else(server: Kamailio) -> None:
    """Calls would go to him, or come in another's name; that both have one password makes no difference."""

    async def scenario() -> None:
        alice, place = phone("alice", server, "UDP"), ("127.0.0.1", server.port)
        async with phones(alice, certificates=None):
            thief = Phone("twin", USERS["bob"], place, "UDP", username="bob")
            thief.start(None)
            try:
                await until(lambda: thief.count(RegistrationFailed))
                assert thief.last(RegistrationFailed).status == 403
                thief.call(alice)
                await until(lambda: thief.count(SessionFailed))
                assert thief.last(SessionFailed).status == 403
                assert not alice.count(SessionOffered)
            finally:
                thief.close()
                await asyncio.sleep(0)

    run(scenario)


@pytest.mark.interop(scenario="what the application is told of a refused registration")
@pytest.mark.parametrize("transport", ["UDP", "TCP"])
@pytest.mark.parametrize(("user", "error"), [("alice", WrongPassword), ("mallory", UnknownUser)])
def test_the_application_receives_the_refusal(
    server: Kamailio, transport: str, user: str, error: type[Exception]
) -> None:
    async def scenario() -> None:
        properties = parties.properties(user, server.place, transport=transport, password="guess")
        async with SIPMobility(properties) as mobility:
            with pytest.raises(error):
                await mobility.register()

    run(scenario)


@over_each
@pytest.mark.interop(scenario="call, move and BYE")
def test_call_move_and_bye(server: Kamailio, transport: Transport, certificates: Certificates) -> None:
    call_and_move(phone("alice", server, transport), phone("bob", server, transport), certificates)


@pytest.mark.interop(scenario="call, move and BYE between transports", transport="each with each")
@pytest.mark.skipif(not peer.HAS_TLS, reason=peer.TLS_MODULE)
@pytest.mark.parametrize(("hers", "his"), list(itertools.permutations(("UDP", "TCP", "TLS"), 2)))
def test_call_between_transports(server: Kamailio, hers: Transport, his: Transport, certificates: Certificates) -> None:
    call_and_move(phone("alice", server, hers), phone("bob", server, his), certificates)


def call_and_move(alice: Phone, bob: Phone, certificates: Certificates) -> None:
    """RFC 3261 12 to 15: INVITE challenged with 407; after each move REGISTER and re-INVITE, and calls as before."""

    async def scenario() -> None:
        async with phones(alice, bob, certificates=certificates):
            alice.call(bob)
            await until(lambda: alice.count(SessionEstablished) and bob.count(SessionEstablished))
            await alice.move("127.0.0.7", bob)
            await bob.move("127.0.0.8", alice)
            for ender, caller in ((bob, alice), (alice, bob)):
                ender.give(TerminateSession("call"))
                await until(lambda: not (alice.sessions or bob.sessions))
                caller.call(alice if caller is bob else bob)
                await until(lambda: len(alice.sessions) == len(bob.sessions) == 1)

    run(scenario)


@over_each
@pytest.mark.interop(scenario="CANCEL")
def test_cancel(server: Kamailio, transport: Transport, certificates: Certificates) -> None:
    """RFC 3261 9: Alice gives up while Bob's phone rings."""

    async def scenario() -> None:
        alice, bob = phone("alice", server, transport), phone("bob", server, transport)
        bob.decision = None
        async with phones(alice, bob, certificates=certificates):
            alice.call(bob)
            await until(lambda: bob.count(SessionOffered))
            alice.give(TerminateSession("call"))
            await until(lambda: not (alice.sessions or bob.sessions))
            assert not alice.count(SessionEstablished)
            assert not bob.count(SessionEstablished)

    run(scenario)


@over_each
@pytest.mark.interop(scenario="refusal of a call")
def test_refusal_comes_back(server: Kamailio, transport: Transport, certificates: Certificates) -> None:
    async def scenario() -> None:
        alice, bob = phone("alice", server, transport), phone("bob", server, transport)
        bob.decision = 486
        async with phones(alice, bob, certificates=certificates):
            alice.call(bob)
            await until(lambda: alice.count(SessionFailed))
            assert alice.last(SessionFailed).status == 486

    run(scenario)
