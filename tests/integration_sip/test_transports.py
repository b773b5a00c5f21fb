"""REGISTER, INVITE, re-INVITE and BYE between two user agents through our server, on real sockets (RFC 3261 18)."""

from __future__ import annotations

import asyncio
import itertools

import msgspec
import pytest

from tests.certificates import Certificates, make_certificates
from tests.integration_sip.loopback import Phone, call_of_two, hang_up, until, update
from wanderbus.mobility.messages import CreateSession, Registered, RegistrationFailed, SessionEstablished
from wanderbus.sip.message.targets import Transport

pytestmark = pytest.mark.integration

HOSTS = ("127.0.0.1", "::1")
TRANSPORTS: tuple[Transport, ...] = ("UDP", "TCP", "TLS")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_call_over_one_transport(transport: Transport, host: str, certificates: Certificates) -> None:
    """RFC 3261 18, 26.2.2, 19.1.1 (IPv6): every message of both sides goes over it, the re-INVITE directly (D-09)."""

    async def scenario() -> None:
        async with call_of_two((transport, transport), host, certificates) as (server, alice, bob):
            before = len(server.wire.sent)
            await update(alice, bob, 40_001)
            await update(bob, alice, 40_002)
            assert len(server.wire.sent) == before
            await hang_up(bob, alice)
            for wire in (server.wire, alice.wire, bob.wire):
                assert {over for _, over in wire.sent} == {transport}
            remote = alice.wire.sent
            assert {"REGISTER", "INVITE", "ACK", "200 BYE"} <= {what for what, _ in remote}

    asyncio.run(scenario())


def test_nothing_is_retransmitted_over_a_stream(certificates: Certificates) -> None:
    """RFC 3261 17.1.1.2: one INVITE, one answer, one ACK; the second REGISTER answers the challenge."""

    async def scenario() -> None:
        async with call_of_two(("TCP", "TCP"), "127.0.0.1", certificates) as (_, alice, bob):
            await asyncio.sleep(0.7)
            assert [what for what, _ in alice.wire.sent] == ["REGISTER", "REGISTER", "INVITE", "ACK"]
            assert [what for what, _ in bob.wire.sent].count("200 INVITE") == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(("hers", "his"), list(itertools.permutations(TRANSPORTS, 2)))
def test_a_call_between_transports(hers: Transport, his: Transport, certificates: Certificates) -> None:
    """The proxy joins them; a TLS client neither sends nor receives in the clear (RFC 3261 26.2)."""

    async def scenario() -> None:
        async with call_of_two((hers, his), "127.0.0.1", certificates) as (_, alice, bob):
            await update(alice, bob, 40_001)
            await update(bob, alice, 40_002)
            await hang_up(alice, bob)
            for phone in (alice, bob):
                if phone.transport == "TLS":
                    assert {over for _, over in phone.wire.sent} == {"TLS"}

    asyncio.run(scenario())


@pytest.mark.parametrize("transport", ["TCP", "TLS"])
def test_phones_that_nobody_can_connect_to_are_reached_by_their_own_connection(
    transport: Transport, certificates: Certificates
) -> None:
    """RFC 5626: no listener and no certificate on the devices; the server sends on the connection of the REGISTER."""

    async def scenario() -> None:
        async with call_of_two((transport, transport), "127.0.0.1", certificates, listen=False) as (_, alice, bob):
            await update(alice, bob, 40_001)
            await update(bob, alice, 40_002)

    asyncio.run(scenario())


def test_a_large_invite_goes_over_tcp_to_who_takes_it(certificates: Certificates) -> None:
    """RFC 3261 18.1.1: over 1,300 bytes the proxy switches, and falls back where TCP is refused."""

    async def scenario() -> None:
        async with call_of_two(("TCP", "UDP"), "127.0.0.1", certificates) as (server, alice, bob):
            server.wire.sent.clear()
            bob.driver.bind_streams("sip", {"TCP": bob.agent.contact})
            alice.media = msgspec.structs.replace(alice.media, attributes=(("x-filling", "y" * 1_300),))
            await call_again(alice, "second")
            assert server.wire.transports_of("INVITE") == {"TCP"}
            bob.driver.bind_streams("sip", {})
            await call_again(alice, "third")
            assert server.wire.transports_of("INVITE") == {"TCP", "UDP"}

    asyncio.run(scenario())


def test_a_lost_connection_is_reported_and_registered_again(certificates: Certificates) -> None:
    """RFC 5626 4.5: the device comes back by itself, so that it can be reached."""

    async def scenario() -> None:
        async with call_of_two(("TCP", "TCP"), "127.0.0.1", certificates, listen=False) as (server, alice, bob):
            registered = bob.count(Registered)
            server.driver.bind_streams("sip", {"TCP": ("127.0.0.1", 0)})
            await until(lambda: bob.count(RegistrationFailed))
            server.driver.bind_streams("sip", {"TCP": server.address}, local_host="127.0.0.1")
            await until(lambda: bob.count(Registered) > registered)
            await update(alice, bob, 40_003)

    asyncio.run(scenario())


async def call_again(phone: Phone, id: str) -> None:
    before = phone.count(SessionEstablished)
    phone.give(CreateSession(id, "sip:bob@example.org", phone.media))
    await until(lambda: phone.count(SessionEstablished) > before)
