"""baresip at our registrar, and its calls through our proxy: with another baresip, and with our user agent."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.api_sip.parties import BOB
from tests.certificates import Certificates, make_certificates
from tests.interop import baresip as peer
from tests.interop.baresip import Baresip, account, baresip
from tests.interop.phones import Phone, Transport, give_up, our_phone, phone_server, refuse, run, talk, wait
from tests.interop.server import Served

pytestmark = [
    pytest.mark.integration,
    pytest.mark.interop(peer="baresip"),
    pytest.mark.skipif(peer.PROGRAM is None, reason=peer.MISSING),
    pytest.mark.parametrize("transport", ["UDP", "TCP", "TLS"]),
]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


async def register(phone: Baresip, served: Served, transport: Transport) -> None:
    assert await phone.register(account(phone.user, served, transport)) == "REGISTER_OK 200 OK"


@pytest.mark.interop(scenario="registration and its removal")
def test_register_and_unregister(transport: Transport, certificates: Certificates) -> None:
    """RFC 3261 10, 22: with digest; the registrar has its binding, and removes it at the end."""

    async def scenario() -> None:
        async with phone_server(transport, certificates) as served:
            async with baresip("bob", certificates) as bob:
                await register(bob, served, transport)
                (contact,) = served.contacts(BOB)
                assert transport == "UDP" or f"transport={transport.lower()}" in contact
            await wait(lambda: not served.contacts(BOB))

    run(scenario())


@pytest.mark.interop(scenario="wrong password")
def test_wrong_password(transport: Transport, certificates: Certificates) -> None:
    """RFC 3261 22: refused, and no binding is stored."""

    async def scenario() -> None:
        async with phone_server(transport, certificates) as served, baresip("bob", certificates) as bob:
            refused = await bob.register(account("bob", served, transport, password="guess"))
            assert refused == "REGISTER_FAIL 403 Wrong User Or Password"
            assert served.contacts(BOB) == ()

    run(scenario())


async def with_ours(
    transport: Transport, certificates: Certificates, scenario: Callable[[Phone, Phone], Coroutine[Any, Any, None]]
) -> None:
    """Play ``scenario`` with our user agent as Alice and baresip as Bob."""
    async with (
        phone_server(transport, certificates) as served,
        our_phone("alice", served, transport) as alice,
        baresip("bob", certificates) as bob,
    ):
        await register(bob, served, transport)
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
    """RFC 3261 9, 21.4.24."""

    async def scenario(alice: Phone, bob: Phone) -> None:
        for caller, callee in ((alice, bob), (bob, alice)):
            await give_up(caller, callee)
            await refuse(caller, callee)

    run(with_ours(transport, certificates, scenario))


@pytest.mark.interop(scenario="calls baresip")
def test_baresip_calls_baresip(transport: Transport, certificates: Certificates) -> None:
    async def scenario() -> None:
        async with (
            phone_server(transport, certificates) as served,
            baresip("alice", certificates) as alice,
            baresip("bob", certificates) as bob,
        ):
            await register(alice, served, transport)
            await register(bob, served, transport)
            await talk(alice, bob, alice)
            await talk(bob, alice, alice)
            await give_up(alice, bob)
            await refuse(alice, bob)

    run(scenario())
