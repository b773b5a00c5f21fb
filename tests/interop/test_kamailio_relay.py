"""Kamailio drives a media relay, rtpengine or ours: all data pass the relay (SPEC I-03 to I-06)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.ports import free_port
from tests.api.world import SUBJECT, numbers, publish, run, until
from tests.api_sip.parties import PASSWORDS
from tests.interop import kamailio as peer
from tests.interop import rtpengine as relay_peer
from tests.interop.broker_at import DOMAIN, USERS, Home, counting_data
from tests.interop.kamailio import Kamailio, kamailio
from tests.interop.own_phone import Phone, phones
from tests.interop.rtpengine import rtpengine
from tests.relay.process import relaying
from wanderbus.machine import Address
from wanderbus.mobility.messages import Refuse, SessionEstablished, SessionFailed, SessionOffered

pytestmark = [
    pytest.mark.skipif(peer.PROGRAM is None, reason=peer.MISSING),
]


SCENARIO = "publish, subscribe, moves, the broker restarted; every byte by the relay"
EVENTS = 100
EVENT_BYTES_MIN = 20
SLOW_S = 0.6
"""More than T1, after which Alice repeats her INVITE (RFC 3261 17.1.1.1), and less than Kamailio waits for."""
RTPENGINE_PORTS = "22000-22999"
OUR_PORTS = "23000-23999"


class Relayed(NamedTuple):
    """Kamailio with a relay that has these ports; the datagrams and bytes that have passed it, the datagrams that it
    did not take, and its calls now."""

    server: Kamailio
    ports: str
    passed: Callable[[], tuple[int, int]]
    refused: Callable[[], int]
    calls: Callable[[], int]


@contextlib.contextmanager
def by_rtpengine(*, for_all: bool = True) -> Iterator[Relayed]:
    with (
        rtpengine(ports=RTPENGINE_PORTS) as relay,
        kamailio(USERS, domain=DOMAIN, relays=[relay.ng], relay_for_all=for_all) as server,
    ):
        yield Relayed(server, RTPENGINE_PORTS, relay.passed, lambda: 0, lambda: len(relay.calls()))


@contextlib.contextmanager
def by_ours(users: Mapping[str, str] = USERS, domain: str = DOMAIN, *, for_all: bool = True) -> Iterator[Relayed]:
    with (
        relaying("--ports", OUR_PORTS) as (proxy, _),
        kamailio(users, domain=domain, relays=[proxy.place], relay_for_all=for_all) as server,
    ):

        def calls() -> int:
            return int(proxy.give({"command": "statistics"})["statistics"]["calls"])

        def passed() -> tuple[int, int]:
            figures = proxy.figures()
            return figures["datagrams"], figures["bytes"]

        yield Relayed(server, OUR_PORTS, passed, lambda: proxy.figures()["unknown_source"], calls)


def story_over(relayed: Relayed, directory: Path, data_transport: str) -> None:
    """Publish and take while both move and the broker restarts; every byte of data has to have passed the relay.

    Over TCP it is in the clear, so that the bytes that are counted are those that pass.
    """
    udp = data_transport == "udp"
    home = Home(directory, relayed.server, encryption=udp)

    async def story() -> None:
        with counting_data() as sent:
            async with home.broker():
                alice = await home.agent("alice", data_transport=data_transport).__aenter__()
                bob = await home.agent("bob", data_transport=data_transport).__aenter__()
                notifications = await bob.subscribe(SUBJECT).__aenter__()
                await publish(alice, *range(EVENTS))
                assert await numbers(notifications, EVENTS) == list(range(EVENTS))
                if udp:
                    await until(lambda: relayed.passed()[0] + relayed.refused() == sent.datagrams)
                    # The relay refuses a PING that arrives before the broker's answer, one for each call; it is sent
                    # again.
                    assert relayed.refused() <= 2
                else:
                    await until(lambda: relayed.passed()[1] == sent.bytes)
                assert relayed.passed()[1] > EVENTS * EVENT_BYTES_MIN
                await bob.rebind("127.0.0.7")
                await publish(alice, 100)
                await alice.rebind("127.0.0.8")
                await publish(alice, 101)
                assert await numbers(notifications, 2) == [100, 101]
            async with home.broker():
                await publish(alice, 102)
                assert await numbers(notifications, 1) == [102]
                await notifications.__aexit__(None, None, None)
                await bob.close()
                await alice.close()
                await until(lambda: relayed.calls() == 0)
        if udp:
            first, _, last = relayed.ports.partition("-")
            assert sent.ports <= set(range(int(first), int(last) + 1))

    run(story())


@pytest.mark.skipif(relay_peer.PROGRAM is None, reason=relay_peer.MISSING)
@pytest.mark.interop(peer="Kamailio and rtpengine", scenario=SCENARIO)
@pytest.mark.parametrize("transport", ["UDP"])
def test_events_by_rtpengine(tmp_path: Path, transport: str) -> None:
    with by_rtpengine() as relayed:
        story_over(relayed, tmp_path, transport.lower())


@pytest.mark.interop(peer="Kamailio and our relay", scenario=SCENARIO)
@pytest.mark.parametrize("transport", ["UDP", "TCP"])
def test_events_by_our_relay(tmp_path: Path, transport: str) -> None:
    with by_ours() as relayed:
        story_over(relayed, tmp_path, transport.lower())


@pytest.mark.interop(peer="Kamailio and our relay", scenario="nobody is behind NAT: no relay", transport="UDP")
def test_without_nat_no_relay(tmp_path: Path) -> None:
    """The relay is only for parties behind NAT, by default."""

    async def story() -> None:
        with by_ours(for_all=False) as relayed:
            home = Home(tmp_path, relayed.server)
            async with home.broker(), home.agent("alice") as alice:
                await publish(alice, 1)
                await alice.rebind("127.0.0.7")
                await publish(alice, 2)
                assert relayed.passed() == (0, 0)

    run(story())


@pytest.mark.interop(peer="Kamailio and our relay", scenario="the relay does not answer: 503", transport="UDP")
def test_without_its_relay_a_call_is_refused() -> None:
    """The proxy refuses the call rather than forward it without a path for its data; retransmissions do no harm."""

    async def story() -> None:
        with kamailio(PASSWORDS, relays=[("127.0.0.1", free_port())]) as server:
            alice, bob = (
                Phone(user, password, ("127.0.0.1", server.port), "UDP") for user, password in PASSWORDS.items()
            )
            async with phones(alice, bob, certificates=None):
                alice.call(bob)
                await until(lambda: alice.count(SessionFailed))
                assert alice.last(SessionFailed).status == 503
                assert not bob.count(SessionOffered)

    run(story())


class Slow(asyncio.DatagramProtocol):
    """Stands between a proxy and a relay, and takes its time with every command."""

    def __init__(self, relay: Address) -> None:
        self._relay = relay
        self._askers: dict[bytes, Address] = {}

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, source: Address) -> None:
        cookie = data.partition(b" ")[0]
        if source == self._relay:
            self._transport.sendto(data, self._askers[cookie])
        else:
            self._askers[cookie] = source
            asyncio.get_running_loop().call_later(SLOW_S, self._command, data)

    def _command(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.sendto(data, self._relay)


@pytest.mark.interop(
    peer="Kamailio and our relay", scenario="the relay is slow: the call is made once", transport="UDP"
)
def test_a_slow_relay_makes_no_second_call() -> None:
    """The INVITE that Alice retransmits has a used nonce count; it must not be challenged again."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        with relaying("--ports", OUR_PORTS) as (proxy, _):
            between, _ = await loop.create_datagram_endpoint(lambda: Slow(proxy.place), local_addr=("127.0.0.1", 0))
            place: Address = between.get_extra_info("sockname")
            # It waits for a relay as it starts, which this loop has to be.
            with contextlib.ExitStack() as stack:
                server = await asyncio.to_thread(stack.enter_context, kamailio(PASSWORDS, relays=[place]))
                alice, bob = (
                    Phone(user, password, ("127.0.0.1", server.port), "UDP") for user, password in PASSWORDS.items()
                )
                async with phones(alice, bob, certificates=None):
                    alice.call(bob)
                    await until(lambda: alice.count(SessionEstablished))
                    await asyncio.sleep(SLOW_S)
                    assert bob.count(SessionOffered) == 1
                    assert alice.sessions[0].local_cseq == 2
            between.close()

    run(story())


@pytest.mark.interop(peer="Kamailio and our relay", scenario="a call is refused: the relay forgets it", transport="UDP")
def test_the_relay_forgets_refused_calls() -> None:
    async def story() -> None:
        with by_ours(PASSWORDS, peer.DOMAIN) as relayed:
            alice, bob = (
                Phone(user, password, ("127.0.0.1", relayed.server.port), "UDP") for user, password in PASSWORDS.items()
            )
            bob.decision = None
            async with phones(alice, bob, certificates=None):
                alice.call(bob)
                await until(lambda: bob.count(SessionOffered))
                assert relayed.calls() == 1
                bob.give(Refuse(bob.sessions[0].id, 486))
                await until(lambda: alice.count(SessionFailed))
                await until(lambda: relayed.calls() == 0)

    run(story())
