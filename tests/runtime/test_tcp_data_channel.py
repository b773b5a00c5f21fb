"""The TCP data channel over real TLS connections on loopback, on both event loops (SPEC F-01, F-07)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from wanderbus.machine import Address, Output
from wanderbus.parameters.transports import DATA_STREAM_LIMITS
from wanderbus.runtime.net.certificate import own_certificate
from wanderbus.runtime.net.driver import Driver
from wanderbus.runtime.net.tls import server_tls
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.tcp import (
    CloseConnection,
    ConnectionFailed,
    ConnectionReset,
    Endpoint,
    MessageReceived,
    MovedHere,
    OpenConnection,
    Probe,
    ProbeAnswered,
    SendMessage,
    TcpConfig,
    TcpTarget,
)

pytestmark = pytest.mark.integration

PATIENCE_S = 30.0
SECRET = b"of this pair"


class End:
    """An endpoint with its driver, and its reports."""

    def __init__(self, config: TcpConfig, fingerprint: bytes = b"") -> None:
        self.endpoint = Endpoint(SystemRandom(), config, fingerprint=fingerprint)
        self.local_id = self.endpoint.allocate()
        self.received: list[bytes] = []
        self.reports: list[Output] = []
        self.driver = Driver(self.endpoint, self._report)

    def _report(self, output: Output) -> None:
        if isinstance(output, MessageReceived):
            self.received.append(output.payload)
        else:
            self.reports.append(output)

    def send(self, *payloads: bytes) -> None:
        self.driver.feed(*[SendMessage(self.local_id, payload) for payload in payloads])


class Town:
    """A server and an agent, connected over TLS."""

    def __init__(self, directory: Path, config: TcpConfig) -> None:
        self.own = own_certificate(directory)
        self.agent = End(config)
        self.server = End(config, self.own.fingerprint)
        self.address: Address = ("127.0.0.1", 0)

    def listen(self) -> None:
        tls = server_tls(self.own.file)
        bound = self.server.driver.bind_streams(
            "data-stream", {"TLS": self.address}, server_tls=tls, limits=DATA_STREAM_LIMITS
        )
        self.address = bound["TLS"]

    def open(self, fingerprint: bytes | None = None) -> None:
        target = TcpTarget("TLS", self.address, fingerprint or self.own.fingerprint)
        agent, server = self.agent, self.server
        server.driver.feed(OpenConnection(server.local_id, agent.local_id, 0, SECRET, None))
        agent.driver.feed(OpenConnection(agent.local_id, server.local_id, 0, SECRET, target))


@asynccontextmanager
async def town(directory: Path, **options: Any) -> AsyncIterator[Town]:
    made = Town(directory, TcpConfig(**options))
    try:
        made.listen()
        made.agent.driver.bind_streams("data-stream", {}, limits=DATA_STREAM_LIMITS)
        yield made
    finally:
        made.agent.driver.close()
        made.server.driver.close()
        await asyncio.sleep(0)


async def until(reached: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not reached():
            await asyncio.sleep(0.005)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    def run_on(scenario: Any) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(scenario)

    return run_on


def test_messages_both_ways(run: Callable[[Any], None], tmp_path: Path) -> None:
    async def scenario() -> None:
        async with town(tmp_path) as both:
            messages = [bytes([n % 256]) * (n * 7 % 3_000) for n in range(2_000)] + [bytes(65_536)] * 20
            both.agent.send(*messages)
            both.server.send(*messages)
            both.open()
            both.agent.send(b"end")
            both.server.send(b"end")
            await until(lambda: both.agent.received[-1:] == both.server.received[-1:] == [b"end"])
            # Data from before the opening of the connection is discarded.
            both.agent.send(*messages)
            both.server.send(*messages)
            await until(lambda: len(both.agent.received) == len(both.server.received) == 2_021)
            assert both.agent.received == both.server.received == [b"end", *messages]
            await until(lambda: both.agent.endpoint.all_confirmed(both.agent.local_id))
            assert both.agent.endpoint.rtt_s(both.agent.local_id) is not None
            assert both.agent.reports == both.server.reports == []

    run(scenario())


def test_a_moving_agent_loses_nothing(run: Callable[[Any], None], tmp_path: Path) -> None:
    async def scenario() -> None:
        async with town(tmp_path) as both:
            both.open()
            sent: list[bytes] = []
            for move in range(1, 6):
                arrived = len(both.agent.received), len(both.server.received)
                for _ in range(20):
                    sent += [b"%d" % len(sent), b"%d" % (len(sent) + 1) * 20_000]
                    both.agent.send(*sent[-2:])
                    both.server.send(*sent[-2:])
                await until(lambda: len(both.agent.received) > arrived[0] and len(both.server.received) > arrived[1])  # noqa: B023
                both.agent.driver.bind_streams(
                    "data-stream", {}, local_host=f"127.0.0.{move + 1}", limits=DATA_STREAM_LIMITS
                )
                both.agent.driver.feed(MovedHere(both.agent.local_id, move))
            await until(lambda: len(both.agent.received) == len(both.server.received) == len(sent))
            assert both.agent.received == both.server.received == sent
            assert both.agent.endpoint.counters.resumed >= 4
            assert both.agent.reports == both.server.reports == []

    run(scenario())


def test_f07_a_server_that_is_gone_is_noticed_and_its_return_too(run: Callable[[Any], None], tmp_path: Path) -> None:
    async def scenario() -> None:
        async with town(tmp_path, reconnect_min_s=0.05) as both:
            both.open()
            both.agent.send(b"one")
            await until(lambda: both.server.received)
            await until(lambda: both.agent.endpoint.all_confirmed(both.agent.local_id))
            both.server.driver.bind_streams("data-stream", {})
            await asyncio.sleep(0.02)
            both.agent.send(b"two")
            await until(lambda: both.agent.reports)
            (failed,) = both.agent.reports
            assert isinstance(failed, ConnectionFailed)
            assert "cannot be reached" in failed.reason
            both.listen()
            both.agent.driver.feed(Probe(both.agent.local_id))
            await until(lambda: len(both.agent.reports) == 2)
            assert both.agent.reports[1] == ProbeAnswered(both.agent.local_id)

    run(scenario())


def test_a_forgetful_server_resets(run: Callable[[Any], None], tmp_path: Path) -> None:
    async def scenario() -> None:
        async with town(tmp_path, reconnect_min_s=0.05) as both:
            both.open()
            both.agent.send(b"one")
            await until(lambda: both.server.received)
            both.server.driver.feed(CloseConnection(both.server.local_id))
            await until(lambda: both.agent.reports)
            assert both.agent.reports == [ConnectionReset(both.agent.local_id)]

    run(scenario())


def test_another_certificate_gets_no_hello(run: Callable[[Any], None], tmp_path: Path) -> None:
    async def scenario() -> None:
        async with town(tmp_path) as both:
            both.open(fingerprint=bytes(32))
            both.agent.send(b"for nobody else")
            await until(lambda: both.agent.reports)
            (failed,) = both.agent.reports
            assert isinstance(failed, ConnectionFailed)
            assert "certificate" in failed.reason
            assert both.server.endpoint.counters.accepted == 0

    run(scenario())
