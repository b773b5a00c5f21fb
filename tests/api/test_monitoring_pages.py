"""Pages for monitoring of real servers (SPEC U-08)."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from typing import Any

import pytest

import wanderbus
from tests.api.world import SUBJECT, World, publish, run
from wanderbus.errors import ConfigurationError
from wanderbus.server.proxy_server import ProxyServer

pytestmark = pytest.mark.integration


async def fetched(server: Any, path: str) -> tuple[int, str]:
    """Status and body of a page."""

    def fetch() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{server.http_url}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(fetch)


def test_u08_a_busy_server_is_ready_and_counts(world: World) -> None:
    async def story() -> None:
        async with (
            world.server(http="127.0.0.1:0") as server,
            world.agent("bob") as bob,
            world.agent() as alice,
            alice.subscribe(SUBJECT),
        ):
            await publish(bob, 1, 2)
            assert await fetched(server, "/healthz") == (200, '{"status":"ok","reasons":[]}')
            assert (await fetched(server, "/readyz"))[0] == 200
            status, page = await fetched(server, "/metrics")
            assert status == 200
            assert "wanderbus_events_accepted_total 2.0\n" in page
            assert f'wanderbus_build_info{{version="{wanderbus.__version__}"}} 1.0\n' in page
        assert server.http_url is None

    run(story())


def test_u08_a_proxy_alone_has_pages(world: World) -> None:
    async def story() -> None:
        proxy = ProxyServer(
            domain="localhost", data_dir=world.directory / "proxy", users={"broker": "b"}, port=0, http="127.0.0.1:0"
        )
        async with proxy:
            assert "wanderbus_sip_users 0.0\n" in (await fetched(proxy, "/metrics"))[1]

    run(story())


def test_u08_a_port_in_use_is_an_error_that_names_it(world: World) -> None:
    async def story() -> None:
        async with world.server(http="127.0.0.1:0") as server:
            assert server.http_url is not None
            place = server.http_url.removeprefix("http://")
            other = wanderbus.Server(
                domain="localhost", data_dir=world.directory / "other", users={"a": "b"}, port=0, http=place
            )
            with pytest.raises(ConfigurationError, match=f"http: {place} cannot be used"):
                async with other:
                    pass
            assert not (world.directory / "other").exists()

    run(story())


def test_u08_a_start_that_fails_leaves_no_pages(world: World) -> None:
    async def story() -> None:
        async with world.server(http="127.0.0.1:0") as server:
            other = wanderbus.Server(
                domain="localhost", data_dir=world.directory / "data", users={"a": "b"}, port=0, http="127.0.0.1:0"
            )
            with pytest.raises(wanderbus.errors.WanderbusError):
                async with other:
                    pass
            assert other.http_url is None
            assert (await fetched(server, "/healthz"))[0] == 200

    run(story())
