"""linphone at our registrar, and its calls through our proxy: with our user agent, and with baresip."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.api_sip.parties import BOB
from tests.certificates import Certificates, make_certificates
from tests.interop import baresip as other
from tests.interop import linphone as peer
from tests.interop.baresip import account, baresip
from tests.interop.linphone import linphone
from tests.interop.phones import Phone, Transport, give_up, our_phone, phone_server, refuse, run, talk, wait
from wanderbus.sip.authentication.digest import ALGORITHMS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.interop(peer="linphone"),
    pytest.mark.skipif(peer.PROGRAM is None, reason=peer.MISSING),
    pytest.mark.parametrize("transport", ["UDP", "TCP", "TLS"]),
]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.interop(scenario="registration and its removal")
def test_register_and_unregister(transport: Transport, certificates: Certificates) -> None:
    """RFC 3261 10, 22: linphone chooses the digest it supports among all that are offered (RFC 8760 2.4)."""

    async def scenario() -> None:
        async with phone_server(transport, certificates, algorithms=ALGORITHMS) as served:
            async with linphone("bob", served, transport, certificates) as bob:
                await wait(bob.registered)
                (contact,) = served.contacts(BOB)
                assert f"transport={transport.lower()}" in contact
            await wait(lambda: not served.contacts(BOB))

    run(scenario())


@pytest.mark.interop(scenario="wrong password")
def test_wrong_password(transport: Transport, certificates: Certificates) -> None:
    """RFC 3261 22: refused, and no binding is stored."""

    async def scenario() -> None:
        async with (
            phone_server(transport, certificates) as served,
            linphone("bob", served, transport, certificates, password="guess") as bob,
        ):
            await wait(bob.refused)
            assert served.contacts(BOB) == ()

    run(scenario())


async def with_ours(
    transport: Transport, certificates: Certificates, scenario: Callable[[Phone, Phone], Coroutine[Any, Any, None]]
) -> None:
    """Play ``scenario`` with our user agent as Alice and linphone as Bob."""
    async with (
        phone_server(transport, certificates) as served,
        our_phone("alice", served, transport) as alice,
        linphone("bob", served, transport, certificates) as bob,
    ):
        await wait(bob.registered)
        await scenario(alice, bob)


@pytest.mark.interop(scenario="calls our user agent")
def test_it_calls_our_user_agent(transport: Transport, certificates: Certificates) -> None:
    """RFC 3261 13 to 15; hung up on either side; the second call is like the first."""

    async def scenario(alice: Phone, bob: Phone) -> None:
        await talk(bob, alice, bob)
        await talk(bob, alice, alice)

    run(with_ours(transport, certificates, scenario))


@pytest.mark.interop(scenario="is called by our user agent")
def test_our_user_agent_calls_it(transport: Transport, certificates: Certificates) -> None:
    async def scenario(alice: Phone, bob: Phone) -> None:
        await talk(alice, bob, alice)
        await talk(alice, bob, bob)

    run(with_ours(transport, certificates, scenario))


@pytest.mark.interop(scenario="CANCEL and refusal, both ways")
def test_cancel_and_refusal(transport: Transport, certificates: Certificates) -> None:
    """RFC 3261 9, 21.4.24, 21.6.2."""

    async def scenario(alice: Phone, bob: Phone) -> None:
        for caller, callee in ((alice, bob), (bob, alice)):
            await give_up(caller, callee)
            await refuse(caller, callee)

    run(with_ours(transport, certificates, scenario))


@pytest.mark.interop(scenario="calls baresip, and the other way")
@pytest.mark.skipif(other.PROGRAM is None, reason=other.MISSING)
def test_linphone_and_baresip(transport: Transport, certificates: Certificates) -> None:
    """Two makes of phones that only share the proxy."""

    async def scenario() -> None:
        async with (
            phone_server(transport, certificates) as served,
            linphone("alice", served, transport, certificates) as alice,
            baresip("bob", certificates) as bob,
        ):
            await wait(alice.registered)
            assert await bob.register(account("bob", served, transport)) == "REGISTER_OK 200 OK"
            await talk(alice, bob, alice)
            await talk(bob, alice, alice)
            await talk(alice, bob, bob)
            await give_up(alice, bob)
            await refuse(alice, bob)

    run(scenario())
