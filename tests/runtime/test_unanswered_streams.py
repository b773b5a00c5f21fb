"""Strangers who connect and send nothing valid hold a place only briefly, and none that others need."""

from __future__ import annotations

import asyncio

import pytest

from tests.runtime.test_streams import PATIENCE_S, Machine, driving, echo, until
from wanderbus.parameters.transports import StreamLimits
from wanderbus.refusals import Limited
from wanderbus.runtime.net import streams

pytestmark = pytest.mark.integration

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def pong(data: bytes) -> bytes:
    """Answer a ping as RFC 5626 wants it, and anything else with its capitals."""
    return b"\r\n" if not data.strip(b"\r\n") else data.upper()


def limited(server: Machine) -> list[Limited]:
    return [report for report in server.reports if isinstance(report, Limited)]


async def ends(connection: Connection) -> bool:
    """Return whether the other side has closed a connection, within some time."""
    reader, _ = connection
    try:
        async with asyncio.timeout(PATIENCE_S):
            while await reader.read(100):
                pass
    except ConnectionResetError:
        return True
    return True


@pytest.mark.parametrize("said", [b"", b"\r\n\r\n", b"REGISTER sip:"])
def test_a_connection_without_an_answer_is_closed_though_something_came(said: bytes) -> None:
    async def scenario() -> None:
        server = Machine(lambda item: pong(item.data) if item.data.endswith(b"\n") else b"")
        limits = StreamLimits(silent_s_max=0.2)
        async with driving(server, {"TCP": ("127.0.0.1", 0)}, limits=limits) as (_, bound):
            silent, known = [await asyncio.open_connection(*bound["TCP"]) for _ in range(2)]
            known[1].write(b"x\n")
            assert await known[0].readexactly(2) == b"X\n"
            silent[1].write(said)
            assert await ends(silent)
            known[1].write(b"y\n")
            assert await known[0].readexactly(2) == b"Y\n"
            for _, writer in (silent, known):
                writer.close()
        assert [each.limit for each in limited(server)] == ["sip_connections.silent_s_max"]

    asyncio.run(scenario())


@pytest.mark.parametrize("most", [3, 5])
def test_a_newcomer_has_the_place_of_who_was_not_answered_for_longest(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(streams, "connections_max", lambda wanted: most)

    async def scenario() -> None:
        server = Machine(echo)
        async with driving(server, {"TCP": ("127.0.0.1", 0)}) as (_, bound):

            async def connect(word: bytes = b"") -> Connection:
                connection = await asyncio.open_connection(*bound["TCP"])
                if word:
                    connection[1].write(word)
                    assert await connection[0].readexactly(len(word)) == word.upper()
                return connection

            known = await connect(b"known")
            silent = [await connect() for _ in range(most - 1)]
            newcomers = [await connect(b"new") for _ in range(most - 1)]
            assert all([await ends(each) for each in silent])
            refused = await connect()
            assert await ends(refused)  # everybody here was answered
            for reader, writer in (known, *newcomers):
                writer.write(b"still")
                assert await reader.readexactly(5) == b"STILL"
            for _, writer in (known, *silent, *newcomers, refused):
                writer.close()
            await until(lambda: len(server.closed) == most)

    asyncio.run(scenario())


def test_connections_of_one_network_share_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "network_of", lambda address: "one network")

    async def scenario() -> None:
        server = Machine(echo)
        limits = StreamLimits(connections_per_host_max=1)
        async with driving(server, {"TCP": ("127.0.0.1", 0)}, limits=limits) as (_, bound):
            first = await asyncio.open_connection(*bound["TCP"], local_addr=("127.0.0.2", 0))
            second = await asyncio.open_connection(*bound["TCP"], local_addr=("127.0.0.3", 0))
            assert await ends(second)
            first[1].write(b"x")
            assert await first[0].readexactly(1) == b"X"
            for _, writer in (first, second):
                writer.close()

    asyncio.run(scenario())
