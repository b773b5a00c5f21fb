"""Broker and agents at Kamailio: events, moves, and restarts of either (SPEC C-20, D-08, X9)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.world import SUBJECT, numbers, publish, run
from tests.certificates import Certificates, make_certificates
from tests.interop import kamailio as peer
from tests.interop.broker_at import DOMAIN, USERS, Home
from tests.interop.kamailio import Kamailio, kamailio
from wanderbus.errors import AuthenticationError

pytestmark = [
    pytest.mark.interop(peer="Kamailio"),
    pytest.mark.skipif(peer.PROGRAM is None, reason=peer.MISSING),
]

AGAIN_S_MAX = 60.0
"""Beyond a third of the minute that a registration lasts, after which it is refreshed (SPEC D-03)."""

over_each = pytest.mark.parametrize(
    "transport",
    ["UDP", "TCP", pytest.param("TLS", marks=pytest.mark.skipif(not peer.HAS_TLS, reason=peer.TLS_MODULE))],
)
each_data = pytest.mark.parametrize("data_transport", ["udp", "tcp"])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def server(certificates: Certificates) -> Iterator[Kamailio]:
    with kamailio(
        USERS, domain=DOMAIN, algorithm="SHA-256", certificates=certificates if peer.HAS_TLS else None
    ) as started:
        yield started


@pytest.fixture
def home(tmp_path: Path, server: Kamailio, transport: str, certificates: Certificates) -> Home:
    return Home(tmp_path, server, transport, certificates)


@over_each
@each_data
@pytest.mark.interop(scenario="publish, subscribe, move, the broker restarted")
def test_events_over_moves_and_a_restart_of_the_broker(home: Home, data_transport: str) -> None:
    async def story() -> None:
        async with home.broker():
            alice = await home.agent("alice", data_transport=data_transport).__aenter__()
            bob = await home.agent("bob", data_transport=data_transport).__aenter__()
            notifications = await bob.subscribe(SUBJECT).__aenter__()
            await publish(alice, 1, 2)
            assert await numbers(notifications, 2) == [1, 2]
            await bob.rebind("127.0.0.7")
            await publish(alice, 3)
            await alice.rebind("127.0.0.8")
            await publish(alice, 4)
            assert await numbers(notifications, 2) == [3, 4]
        async with home.broker():
            await publish(alice, 5)
            assert await numbers(notifications, 1) == [5]
            await bob.rebind("127.0.0.9")
            await publish(alice, 6)
            assert await numbers(notifications, 1) == [6]
            await notifications.__aexit__(None, None, None)
            await bob.close()
            await alice.close()

    run(story())


@pytest.mark.interop(scenario="the broker alone checks callers", transport="UDP")
def test_the_broker_checks_its_callers(tmp_path: Path) -> None:
    """The broker always checks its callers. Kamailio need not; an agent without a password reaches only the broker."""

    async def story() -> None:
        with kamailio(USERS, domain=DOMAIN, challenge_calls=False) as server:
            home = Home(tmp_path, server)
            async with home.broker(), home.agent("alice") as alice:
                await publish(alice, 1)
                with pytest.raises(AuthenticationError):
                    await home.agent("bob", password="guess").__aenter__()

    run(story())


@over_each
@pytest.mark.interop(scenario="Kamailio restarted")
def test_events_over_a_restart_of_kamailio(tmp_path: Path, transport: str, certificates: Certificates) -> None:
    """Data goes on without it; bindings that it lost are registered again: at once over TCP, over UDP within 20 s."""
    options: Any = {"domain": DOMAIN, "certificates": certificates if peer.HAS_TLS else None}

    async def scenario() -> None:
        async with asyncio.timeout(AGAIN_S_MAX), contextlib.AsyncExitStack() as stack:
            enter = stack.enter_async_context
            first = contextlib.ExitStack()
            with first:
                before = first.enter_context(kamailio(USERS, **options))
                home = Home(tmp_path, before, transport, certificates)
                await enter(home.broker())
                alice, bob = await enter(home.agent("alice")), await enter(home.agent("bob"))
                notifications = await enter(bob.subscribe(SUBJECT))
            await publish(alice, 1)
            assert await numbers(notifications, 1) == [1]
            stack.enter_context(kamailio(USERS, port=before.port, tls_port=before.tls_port, **options))
            await bob.rebind("127.0.0.7")
            await publish(alice, 2)
            assert await numbers(notifications, 1) == [2]
            carol = await enter(home.agent("carol", connect_s_max=AGAIN_S_MAX))
            await publish(carol, 3)
            assert await numbers(notifications, 1) == [3]

    asyncio.run(scenario())
