"""Admission to TLS handshakes: places, waiting and eviction."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.runtime.test_streams import PATIENCE_S, Machine, driving, echo, until
from tests.runtime.test_unanswered_streams import Connection, ends, limited
from wanderbus.parameters.transports import StreamLimits
from wanderbus.refusals import Limited
from wanderbus.runtime.net.certificate import own_certificate
from wanderbus.runtime.net.handshakes import SLOW_S, Handshakes
from wanderbus.runtime.net.tls import server_tls

HELLO_BEGUN = bytes.fromhex("160301010001")


def test_one_too_many_waits_until_another_has_ended() -> None:
    handshakes = Handshakes(2)
    assert [handshakes.ask(number, "crowd", 0.0) for number in range(4)] == [None] * 4
    assert [handshakes.has_begun(number) for number in range(4)] == [True, True, False, False]
    assert handshakes.leave(1, 0.1) == [2]
    assert handshakes.leave(3, 0.1) == []  # it has waited long enough
    assert handshakes.leave(0, 0.1) == []
    assert len(handshakes) == 1


def test_the_oldest_of_the_source_with_the_most_gives_way_to_a_newcomer() -> None:
    handshakes = Handshakes(5)
    for number, source in enumerate(["honest", "few", "many", "many", "many", "many"]):
        assert handshakes.ask(number, source, 0.0) is None
    assert handshakes.ask(6, "newcomer", 0.1) == 2
    assert handshakes.leave(2, 0.1) == [6]  # before the sixth, which has waited for longer
    assert not handshakes.has_begun(5)
    # Both of the others have two now, which is no more than a newcomer's second would be.
    assert handshakes.ask(7, "newcomer", 0.1) is None
    assert not handshakes.has_begun(7)


def test_nobody_of_a_crowd_gives_way_to_another_before_it_was_slow() -> None:
    handshakes = Handshakes(3)
    assert [handshakes.ask(number, f"host {number}", 0.0) for number in range(3)] == [None] * 3
    assert handshakes.ask(3, "host 3", SLOW_S - 0.1) is None
    assert handshakes.ask(4, "host 4", SLOW_S) == 0
    assert handshakes.leave(0, SLOW_S) == [3]


@pytest.mark.integration
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_newcomer_shakes_hands_beside_half_open_handshakes(new_loop: Any, tmp_path: Path) -> None:
    most = 4
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def scenario() -> None:
        server = Machine(echo)
        tls = server_tls(own_certificate(tmp_path).file)
        limits = StreamLimits(handshakes_max=most)
        async with driving(server, {"TLS": ("127.0.0.1", 0)}, server_tls=tls, limits=limits) as (driver, bound):
            (streams,) = driver._streams.values()

            async def begin() -> Connection:
                connection = await asyncio.open_connection(*bound["TLS"], local_addr=("127.0.0.9", 0))
                connection[1].write(HELLO_BEGUN)
                return connection

            half_open = [await begin() for _ in range(2 * most)]
            await until(lambda: len(streams) == 2 * most)
            assert len(streams._handshakes) == most
            for _ in range(2):
                reader, writer = await asyncio.open_connection(*bound["TLS"], ssl=context)
                writer.write(b"here")
                assert await reader.readexactly(4) == b"HERE"
                writer.close()
            assert await ends(half_open[0])
            for _, each in half_open:
                each.close()
            await until(lambda: len(streams) == 0)
            assert len(streams._handshakes) == 0
        party, reason = "127.0.0.9", "slow handshake ended to admit another (sip)"
        assert Limited("sip_connections.handshakes_max", party, reason) in limited(server)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())


@pytest.mark.integration
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_that_is_open_has_no_place(new_loop: Any, tmp_path: Path) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def scenario() -> None:
        server = Machine(echo)
        tls = server_tls(own_certificate(tmp_path).file)
        limits = StreamLimits(handshakes_max=1)
        async with driving(server, {"TLS": ("127.0.0.1", 0)}, server_tls=tls, limits=limits) as (_, bound):
            opened = []
            for _ in range(3):
                async with asyncio.timeout(PATIENCE_S):
                    opened.append(await asyncio.open_connection(*bound["TLS"], ssl=context))
            for reader, writer in opened:
                writer.write(b"here")
                assert await reader.readexactly(4) == b"HERE"
            for _, writer in opened:
                writer.close()
        assert limited(server) == []

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())


@pytest.mark.integration
def test_a_connection_whose_turn_does_not_come_is_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = Machine(echo)
        tls = server_tls(own_certificate(tmp_path).file)
        limits = StreamLimits(handshakes_max=1, handshake_s_max=0.2)
        async with driving(server, {"TLS": ("127.0.0.1", 0)}, server_tls=tls, limits=limits) as (driver, bound):
            (streams,) = driver._streams.values()
            both = [await asyncio.open_connection(*bound["TLS"]) for _ in range(2)]
            assert all([await ends(each) for each in both])
            await until(lambda: len(streams) == 0)
            assert len(streams._handshakes) == 0
            for _, writer in both:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    asyncio.run(scenario())
