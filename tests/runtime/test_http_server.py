"""Bounds of the HTTP server: connections, heads and time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.api.world import run
from wanderbus.parameters.transports import PageLimits
from wanderbus.refusals import Limited
from wanderbus.runtime.net import http_server
from wanderbus.runtime.net.http_server import HttpServer

pytestmark = pytest.mark.integration

NOTED: list[Limited] = []

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


@asynccontextmanager
async def server(
    respond: Callable[[Request], Awaitable[PlainTextResponse]] = hello, **limits: Any
) -> AsyncIterator[HttpServer]:
    pages = Starlette(routes=[Route("/", respond)])
    serving = HttpServer(pages, ("127.0.0.1", 0), None, PageLimits(**limits), NOTED.append)
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


def test_further_connections_of_one_address_are_closed_and_counted() -> None:
    async def story() -> None:
        NOTED.clear()
        async with server(connections_per_host_max=2) as serving:
            several = [await asyncio.open_connection(*serving.address) for _ in range(2)]
            assert [b" 200 " in await answer(each) for each in several] == [True, True]
            third = await asyncio.open_connection(*serving.address)
            assert await answer(third) == b""
            assert [each.limit for each in NOTED] == ["http_connections.connections_per_host_max"]
            await close([several[0]])
            await several[0][1].wait_closed()
            await asyncio.sleep(0.05)
            fourth = await asyncio.open_connection(*serving.address)
            assert b" 200 " in await answer(fourth)
            await close([several[1], third, fourth])

    run(story())


@pytest.mark.parametrize("request_part", [b"", b"GET / HTTP/1.1\r\nX: "])
@pytest.mark.parametrize("is_answered", [False, True])
def test_a_connection_without_a_whole_request_is_closed(request_part: bytes, is_answered: bool) -> None:
    async def story() -> None:
        async with server(silent_s_max=0.2, idle_s_max=0.2) as serving:
            reader, writer = await asyncio.open_connection(*serving.address)
            if is_answered:
                assert b" 200 " in await answer((reader, writer))
            writer.write(request_part)
            async with asyncio.timeout(5):
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
            writer.close()

    run(story())


def test_a_head_that_is_too_long_is_refused() -> None:
    async def story() -> None:
        async with server() as serving:
            reader, _ = streams = await asyncio.open_connection(*serving.address)
            long = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (http_server.HEAD_BYTES_MAX + 1)
            assert b" 400 " in await answer(streams, long)
            assert b"hello" not in await reader.read()
            await close([streams])

    run(story())


def test_requests_ahead_of_their_answers_are_bounded() -> None:
    async def story() -> None:
        begun = asyncio.Event()

        async def never(request: Request) -> PlainTextResponse:
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError

        async with server(never) as serving:
            reader, writer = await asyncio.open_connection(*serving.address)
            writer.write(GET + GET)
            await begun.wait()
            writer.write(GET * (2 * http_server.AHEAD_BYTES_MAX // len(GET)))
            async with asyncio.timeout(5):
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            writer.close()

    run(story())


def test_an_answer_arrives_as_a_whole_before_a_connection_ends() -> None:
    async def long(request: Request) -> PlainTextResponse:
        return PlainTextResponse("x" * 9_000_000)

    async def story() -> None:
        async with server(long, unsent_bytes_max=2**24) as serving:
            with socket.socket() as raw:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                raw.setblocking(False)
                await asyncio.get_running_loop().sock_connect(raw, serving.address)
                reader, writer = await asyncio.open_connection(sock=raw, limit=4_096)
                writer.write(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
                await asyncio.sleep(0.1)  # the server has sent what it could, and wants to close
                assert len((await reader.read()).partition(b"\r\n\r\n")[2]) == 9_000_000
                writer.close()

    run(story())
