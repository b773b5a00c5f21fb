"""One source opens only so many connections a second, and no source has others pay for it."""

from __future__ import annotations

import asyncio

import pytest

from tests.runtime.test_streams import Machine, driving, echo
from tests.runtime.test_unanswered_streams import ends, limited
from wanderbus.parameters.transports import StreamLimits
from wanderbus.runtime.net import connection_rate
from wanderbus.runtime.net.connection_rate import ConnectionRate


def test_a_burst_and_then_so_many_a_second_of_each_source() -> None:
    rate = ConnectionRate(10.0, 5.0)
    assert [rate.admits("192.0.2.1", 0.0) for _ in range(7)] == [True] * 5 + [False] * 2
    assert rate.admits("192.0.2.2", 0.0)
    assert 9 <= sum(rate.admits("192.0.2.1", at / 1_000) for at in range(1, 1_001)) <= 10
    assert [rate.admits("192.0.2.1", 100.0) for _ in range(6)] == [True] * 5 + [False]


def test_sources_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_rate, "SOURCES_MAX", 3)
    rate = ConnectionRate(1.0, 1.0)
    for number in range(10):
        assert rate.admits(f"192.0.2.{number}", 0.0)
    assert len(rate) == 3


@pytest.mark.integration
def test_connections_beyond_the_rate_are_closed_before_a_handshake() -> None:
    async def scenario() -> None:
        server = Machine(echo)
        limits = StreamLimits(connections_per_s=0.001, burst_connections=2)
        async with driving(server, {"TCP": ("127.0.0.1", 0)}, limits=limits) as (_, bound):
            connections = [await asyncio.open_connection(*bound["TCP"]) for _ in range(3)]
            assert await ends(connections[2])
            for reader, writer in connections[:2]:
                writer.write(b"x")
                assert await reader.readexactly(1) == b"X"
            for _, writer in connections:
                writer.close()
        assert [(each.limit, each.party) for each in limited(server)] == [
            ("sip_connections.connections_per_s", "127.0.0.1")
        ]

    asyncio.run(scenario())
