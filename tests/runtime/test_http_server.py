"""Bounds of the HTTP server: connections, heads and time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.api.world import run
from wanderbus.runtime.net import http_server
from wanderbus.runtime.net.http_server import HttpServer

pytestmark = pytest.mark.integration

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def server() -> AsyncIterator[HttpServer]:
    async def answer(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    serving = HttpServer(Starlette(routes=[Route("/", answer)]), ("127.0.0.1", 0))
    await serving.start()
    try:
        yield serving
    finally:
        await serving.close()


async def answer(streams: Streams, request: bytes = GET) -> bytes:
    """The status line for a request, or nothing if the connection is closed."""
    reader, writer = streams
    try:
        writer.write(request)
        await writer.drain()
        line = await reader.readline()
        if b" 200 " in line:
            await reader.readuntil(b"hello")
    except (ConnectionError, asyncio.IncompleteReadError):
        return b""
    return line


async def close(several: list[Streams]) -> None:
    for _, writer in several:
        writer.close()


def test_a_connection_serves_several_requests_and_a_strange_one_is_refused() -> None:
    async def story() -> None:
        async with server() as serving:
            streams = await asyncio.open_connection(*serving.address)
            assert [await answer(streams) for _ in range(3)] == [b"HTTP/1.1 200 OK\r\n"] * 3
            assert b" 400 " in await answer(streams, b"\x16\x03\x01 nonsense\r\n\r\n")
            await close([streams])

    run(story())


def test_further_connections_of_one_address_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "SOURCE_CONNECTIONS_MAX", 2)

    async def story() -> None:
        async with server() as serving:
            several = [await asyncio.open_connection(*serving.address) for _ in range(2)]
            assert [b" 200 " in await answer(each) for each in several] == [True, True]
            third = await asyncio.open_connection(*serving.address)
            assert await answer(third) == b""
            await close([several[0]])
            await several[0][1].wait_closed()
            await asyncio.sleep(0.05)
            fourth = await asyncio.open_connection(*serving.address)
            assert b" 200 " in await answer(fourth)
            await close([several[1], third, fourth])

    run(story())


@pytest.mark.parametrize("request_part", [b"", b"GET / HTTP/1.1\r\nX: "])
def test_a_connection_without_a_whole_request_is_closed(monkeypatch: pytest.MonkeyPatch, request_part: bytes) -> None:
    monkeypatch.setattr(http_server, "IDLE_S_MAX", 0.2)

    async def story() -> None:
        async with server() as serving:
            reader, writer = await asyncio.open_connection(*serving.address)
            writer.write(request_part)
            async with asyncio.timeout(5):
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
            writer.close()

    run(story())


def test_a_head_that_is_too_long_is_refused() -> None:
    async def story() -> None:
        async with server() as serving:
            streams = await asyncio.open_connection(*serving.address)
            long = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (http_server.HEAD_BYTES_MAX + 1)
            assert b" 400 " in await answer(streams, long) or await answer(streams, b"") == b""
            await close([streams])

    run(story())
