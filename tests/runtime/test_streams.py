"""TCP and TLS connections of a driver, on loopback: opened, shared, bounded, closed (RFC 3261 18)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from tests.certificates import Certificates, make_certificates
from wanderbus.errors import ConfigurationError
from wanderbus.machine import CloseStream, Input, Output, SendOnStream, StreamClosed, StreamReceived
from wanderbus.parameters.transports import DATA_STREAM_LIMITS, StreamLimits
from wanderbus.refusals import Limited
from wanderbus.runtime.net.certificate import own_certificate
from wanderbus.runtime.net.driver import Driver
from wanderbus.runtime.net.tls import client_tls, server_tls
from wanderbus.sip.message.targets import Target
from wanderbus.tcp import TcpTarget as DataTarget

pytestmark = pytest.mark.integration

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


class Machine:
    """Keeps its inputs, and answers every piece of a stream with the result of ``reply``."""

    def __init__(self, reply: Callable[[StreamReceived], bytes] = lambda item: b"") -> None:
        self.inputs: list[Input] = []
        self.reports: list[Output] = []
        self._reply = reply

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        outputs: list[Output] = []
        for item in inputs:
            self.inputs.append(item)
            if isinstance(item, StreamReceived) and (data := self._reply(item)):
                back = Target(item.transport, item.source)
                outputs.append(SendOnStream(item.socket, back, data, item.connection))
        return outputs

    @property
    def data(self) -> bytes:
        return b"".join(item.data for item in self.inputs if isinstance(item, StreamReceived))

    @property
    def closed(self) -> list[StreamClosed]:
        return [item for item in self.inputs if isinstance(item, StreamClosed)]

    @property
    def connections(self) -> set[int]:
        return {item.connection for item in self.inputs if isinstance(item, StreamReceived)}


@asynccontextmanager
async def driving(machine: Machine, listen: Any = None, **options: Any) -> AsyncIterator[tuple[Driver, Any]]:
    driver = Driver(machine, machine.reports.append)
    try:
        yield driver, driver.bind_streams("sip", listen or {}, **options)
    finally:
        driver.close()
        await asyncio.sleep(0)


async def until(reached: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not reached():
            await asyncio.sleep(0.005)


def echo(item: StreamReceived) -> bytes:
    return item.data.upper()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("kind", ["TCP", "TLS"])
def test_there_and_back_on_one_connection(kind: Any, host: str, certificates: Certificates) -> None:
    async def scenario() -> None:
        server, client = Machine(echo), Machine()
        tls = server_tls(certificates.certificate, certificates.key)
        async with (
            driving(server, {kind: (host, 0)}, server_tls=tls) as (_, bound),
            driving(client, client_tls=client_tls(certificates.authority), local_host=host) as (driver, _bound),
        ):
            target = Target(kind, bound[kind])
            driver.perform([SendOnStream("sip", target, b"one "), SendOnStream("sip", target, b"two ")])
            await until(lambda: client.data == b"ONE TWO ")
            driver.perform([SendOnStream("sip", target, b"three")])
            await until(lambda: client.data == b"ONE TWO THREE")
            (heard,) = [item for item in client.inputs if isinstance(item, StreamReceived)][:1]
            assert (heard.transport, heard.target, heard.source) == (kind, target, bound[kind])
            assert len(server.connections) == len(client.connections) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("server_name", [None, "localhost"])
def test_rfc5922_the_certificate_has_to_name_the_server(server_name: str | None, certificates: Certificates) -> None:
    async def scenario() -> None:
        server, client = Machine(echo), Machine()
        tls = server_tls(certificates.certificate, certificates.key)
        async with (
            driving(server, {"TLS": ("127.0.0.1", 0)}, server_tls=tls) as (_, bound),
            driving(client, client_tls=client_tls(certificates.authority)) as (driver, _bound),
        ):
            driver.perform([SendOnStream("sip", Target("TLS", bound["TLS"], "example.org"), b"x")])
            await until(lambda: client.closed)
            assert "mismatch" in client.closed[0].reason
            driver.perform([SendOnStream("sip", Target("TLS", bound["TLS"], server_name), b"x")])
            await until(lambda: client.data)
            assert server.data == b"x"

    asyncio.run(scenario())


def test_a_certificate_of_a_stranger_is_refused(certificates: Certificates) -> None:
    async def scenario() -> None:
        server, client = Machine(echo), Machine()
        tls = server_tls(certificates.certificate, certificates.key)
        for context in (client_tls(certificates.stranger), client_tls()):
            client.inputs.clear()
            async with (
                driving(server, {"TLS": ("127.0.0.1", 0)}, server_tls=tls) as (_, bound),
                driving(client, client_tls=context) as (driver, _bound),
            ):
                driver.perform([SendOnStream("sip", Target("TLS", bound["TLS"]), b"x")])
                await until(lambda: client.closed)
                assert "certificate verify failed" in client.closed[0].reason
                assert server.inputs == []

    asyncio.run(scenario())


def test_without_a_tls_context_tls_fails_and_cannot_be_listened_on() -> None:
    async def scenario() -> None:
        client = Machine()
        async with driving(client) as (driver, _):
            target = Target("TLS", ("127.0.0.1", free_port()))
            driver.perform([SendOnStream("sip", target, b"x"), SendOnStream("data", target, b"x")])
            await until(lambda: len(client.closed) == 2)
            assert [item.target for item in client.closed] == [target, target]
            with pytest.raises(OSError, match="TLS needs a certificate"):
                driver.bind_streams("sip", {"TLS": ("127.0.0.1", 0)})

    asyncio.run(scenario())


def test_a_refused_connection_is_reported_with_its_target() -> None:
    async def scenario() -> None:
        client = Machine()
        async with driving(client) as (driver, _):
            target = Target("TCP", ("127.0.0.1", free_port()))
            driver.perform([SendOnStream("sip", target, b"x")])
            await until(lambda: client.closed)
            (closed,) = client.closed
            assert (closed.socket, closed.target) == ("sip", target)

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["TCP", "TLS"])
@pytest.mark.parametrize("host", ["some.name.invalid", "localhost", "127.1"])
def test_nothing_is_looked_up_to_open_a_connection(kind: Any, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def asking(*question: Any, **options: Any) -> Any:
        asked.append(question)
        raise socket.gaierror(socket.EAI_NONAME, "looked up")

    monkeypatch.setattr(socket, "getaddrinfo", asking)

    async def scenario() -> None:
        client = Machine()
        async with driving(client, client_tls=client_tls()) as (driver, _):
            target = Target(kind, (host, free_port()))
            driver.perform([SendOnStream("sip", target, b"x")])
            await until(lambda: client.closed)
            (closed,) = client.closed
            assert (closed.target, closed.reason) == (target, f"{host} is not an IP address")
            assert asked == []

    asyncio.run(scenario())


def test_nobody_waits_long_for_a_connection_or_a_handshake() -> None:
    async def scenario() -> None:
        client = Machine()
        limits = StreamLimits(connect_s_max=0.05)
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            async with driving(client, client_tls=client_tls(), limits=limits) as (driver, _):
                driver.perform([SendOnStream("sip", Target("TLS", silent.getsockname()), b"x")])
                await until(lambda: client.closed)
                assert client.closed[0].reason == "no connection in time"

    asyncio.run(scenario())


def test_a_close_by_the_peer_is_reported_and_the_next_message_opens_a_connection() -> None:
    async def scenario() -> None:
        server, client = Machine(echo), Machine()
        async with (
            driving(server, {"TCP": ("127.0.0.1", 0)}) as (server_driver, bound),
            driving(client) as (driver, _),
        ):
            target = Target("TCP", bound["TCP"])
            driver.perform([SendOnStream("sip", target, b"one")])
            await until(lambda: client.data)
            server_driver.perform([CloseStream("sip", next(iter(server.connections))), CloseStream("sip", 999)])
            await until(lambda: client.closed and server.closed)
            assert client.closed[0].target == target
            assert server.closed[0].target is None
            driver.perform([SendOnStream("sip", target, b"two")])
            await until(lambda: client.data == b"ONETWO")
            assert len(client.connections) == 2

    asyncio.run(scenario())


def test_an_answer_to_a_closed_connection_opens_one_to_its_target() -> None:
    """RFC 3261 18.2.2: the Via has the address."""

    async def scenario() -> None:
        server, client = Machine(), Machine()
        async with (
            driving(server, {"TCP": ("127.0.0.1", 0)}) as (server_driver, _),
            driving(client, {"TCP": ("127.0.0.1", 0)}) as (_driver, bound),
        ):
            server_driver.perform([SendOnStream("sip", Target("TCP", bound["TCP"]), b"late", 4711)])
            await until(lambda: client.data == b"late")

    asyncio.run(scenario())


def test_idle_and_silent_connections_are_closed() -> None:
    async def scenario() -> None:
        server, client = Machine(echo), Machine()
        limits = StreamLimits(idle_s_max=0.3, silent_s_max=0.05)
        async with (
            driving(server, {"TCP": ("127.0.0.1", 0)}, limits=limits) as (_, bound),
            driving(client) as (driver, _bound),
        ):
            reader, writer = await asyncio.open_connection(*bound["TCP"])
            driver.perform([SendOnStream("sip", Target("TCP", bound["TCP"]), b"x")])
            async with asyncio.timeout(0.25):
                assert await reader.read() == b""
            writer.close()
            assert server.closed == []
            await until(lambda: server.closed and client.closed)
            assert server.closed[0].reason == "idle"

    asyncio.run(scenario())


def test_a_peer_that_does_not_read_loses_its_connection() -> None:
    async def scenario() -> None:
        server = Machine(lambda item: b"x" * 2**20)
        async with driving(server, {"TCP": ("127.0.0.1", 0)}, limits=StreamLimits(unsent_bytes_max=2**21)) as (
            _,
            bound,
        ):
            reader, writer = await asyncio.open_connection(*bound["TCP"], limit=1)
            with contextlib.suppress(OSError):
                for _ in range(100):
                    writer.write(b"more")
                    await writer.drain()
                    await asyncio.sleep(0.01)
                    if server.closed:
                        break
            assert server.closed
            assert "does not read" in server.closed[0].reason
            writer.transport.abort()
            assert reader is not None

    asyncio.run(scenario())


def test_data_that_wait_for_a_connection_are_bounded() -> None:
    async def scenario() -> None:
        client = Machine()
        async with driving(client, limits=StreamLimits(unsent_bytes_max=10)) as (driver, _):
            target = Target("TCP", ("127.0.0.1", free_port()))
            driver.perform([SendOnStream("sip", target, b"x" * 11)])
            await until(lambda: client.closed)
            assert "does not read" in client.closed[0].reason

    asyncio.run(scenario())


def test_one_host_gets_no_more_connections_than_its_share() -> None:
    async def scenario() -> None:
        server = Machine(echo)
        limits = StreamLimits(connections_per_host_max=2)
        async with driving(server, {"TCP": ("127.0.0.1", 0)}, limits=limits) as (_, bound):
            streams = [await asyncio.open_connection(*bound["TCP"]) for _ in range(3)]
            for _, writer in streams:
                writer.write(b"x")
            async with asyncio.timeout(PATIENCE_S):
                answers = [await reader.read(1) for reader, _ in streams[:2]]
                with contextlib.suppress(ConnectionResetError):
                    assert await streams[2][0].read(1) == b""
            assert answers == [b"X", b"X"]
            for _, writer in streams:
                writer.close()
            await until(lambda: len(server.closed) == 2)
            _, again = await asyncio.open_connection(*bound["TCP"])
            again.write(b"y")
            await until(lambda: server.data.endswith(b"y"))
            again.close()
        assert server.reports == [
            Limited("sip_connections.connections_per_host_max", "127.0.0.1", "connection refused (sip)")
        ]

    asyncio.run(scenario())


def test_binding_again_closes_connections_and_continues_numbers() -> None:
    async def scenario() -> None:
        server, client = Machine(echo), Machine()
        async with (
            driving(server, {"TCP": ("127.0.0.1", 0)}) as (_, bound),
            driving(client) as (driver, _bound),
        ):
            target = Target("TCP", bound["TCP"])
            driver.perform([SendOnStream("sip", target, b"one")])
            await until(lambda: client.data)
            driver.bind_streams("sip", {}, local_host="127.0.0.2")
            await until(lambda: client.closed and server.closed)
            driver.perform([SendOnStream("sip", target, b"two")])
            await until(lambda: client.data == b"ONETWO")
            sources = [item.source[0] for item in server.inputs if isinstance(item, StreamReceived)]
            assert sources == ["127.0.0.1", "127.0.0.2"]
            assert len(client.connections) == 2

    asyncio.run(scenario())


def test_a_port_in_use_leaves_what_was() -> None:
    async def scenario() -> None:
        server, client = Machine(echo), Machine()
        async with (
            driving(server, {"TCP": ("127.0.0.1", 0)}) as (_, bound),
            driving(client, {"TCP": ("127.0.0.1", 0)}) as (driver, _bound),
        ):
            with pytest.raises(OSError, match="in use"):
                driver.bind_streams("sip", {"TCP": bound["TCP"]})
            driver.perform([SendOnStream("sip", Target("TCP", bound["TCP"]), b"one")])
            await until(lambda: client.data == b"ONE")

    asyncio.run(scenario())


def test_garbage_instead_of_a_handshake_harms_nobody(certificates: Certificates) -> None:
    async def scenario() -> None:
        server = Machine(echo)
        tls = server_tls(certificates.certificate, certificates.key)
        async with driving(server, {"TLS": ("127.0.0.1", 0)}, server_tls=tls) as (_, bound):
            reader, writer = await asyncio.open_connection(*bound["TLS"])
            writer.write(b"OPTIONS sip:x SIP/2.0\r\n\r\n")
            async with asyncio.timeout(PATIENCE_S):
                with contextlib.suppress(ConnectionResetError):
                    await reader.read()
            writer.close()
            assert server.inputs == []

    asyncio.run(scenario())


def test_files_that_cannot_be_used_are_named(certificates: Certificates, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing\.pem"):
        server_tls(tmp_path / "missing.pem", certificates.key)
    with pytest.raises(ConfigurationError, match=r"authority\.pem"):
        server_tls(certificates.authority, certificates.key)
    with pytest.raises(ConfigurationError, match=r"missing\.pem"):
        client_tls(tmp_path / "missing.pem")
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(ConfigurationError, match=r"empty\.pem"):
        client_tls(tmp_path / "empty.pem")


def test_rfc8122_only_the_fingerprint_identifies_the_peer(tmp_path: Path) -> None:
    """Neither an authority nor a name plays a part, and no context for authorities is needed."""

    async def scenario() -> None:
        server, client = Machine(echo), Machine()
        own = own_certificate(tmp_path)
        async with (
            driving(server, {"TLS": ("127.0.0.1", 0)}, server_tls=server_tls(own.file)) as (_, bound),
            driving(client) as (driver, _bound),
        ):
            driver.perform([SendOnStream("sip", DataTarget("TLS", bound["TLS"], own.fingerprint), b"x")])
            await until(lambda: client.data == b"X")

    asyncio.run(scenario())


@pytest.mark.parametrize("fingerprint", [bytes(32), b""])
@pytest.mark.parametrize("kind", ["TLS", "TCP"])
def test_rfc8122_another_fingerprint_gets_not_a_byte(kind: Any, fingerprint: bytes, tmp_path: Path) -> None:
    async def scenario() -> None:
        server, client = Machine(echo), Machine()
        tls = server_tls(own_certificate(tmp_path).file)
        async with (
            driving(server, {kind: ("127.0.0.1", 0)}, server_tls=tls) as (_, bound),
            driving(client) as (driver, _bound),
        ):
            driver.perform([SendOnStream("sip", DataTarget(kind, bound[kind], fingerprint), b"x")])
            await until(lambda: client.closed)
            assert client.closed[0].reason == "the certificate does not match the announced fingerprint"
            await asyncio.sleep(0.05)
            assert server.inputs == client.inputs[1:] == []

    asyncio.run(scenario())


def test_data_for_a_closed_connection_open_no_other() -> None:
    async def scenario() -> None:
        server, client = Machine(), Machine()
        async with (
            driving(server, {"TCP": ("127.0.0.1", 0)}) as (_, bound),
            driving(client) as (driver, _bound),
        ):
            target = Target("TCP", bound["TCP"])
            driver.perform([SendOnStream("sip", target, b"late", 4711, reopen=False)])
            driver.perform([SendOnStream("sip", target, b"first")])
            await until(lambda: server.data)
            assert server.data == b"first"
            assert len(server.connections) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_data_channel_may_be_idle_for_ever_but_not_silent_at_first(new_loop: Any) -> None:
    async def scenario() -> None:
        server, client = Machine(echo), Machine()
        limits = msgspec.structs.replace(DATA_STREAM_LIMITS, silent_s_max=0.05)
        async with (
            driving(server, {"TCP": ("127.0.0.1", 0)}, limits=limits) as (_, bound),
            driving(client, limits=limits) as (driver, _bound),
        ):
            target = Target("TCP", bound["TCP"])
            driver.perform([SendOnStream("sip", target, b"x")])
            reader, writer = await asyncio.open_connection(*bound["TCP"])
            async with asyncio.timeout(PATIENCE_S):
                assert await reader.read() == b""
            writer.close()
            driver.perform([SendOnStream("sip", target, b"y")])
            await until(lambda: client.data == b"XY")
            assert len(client.connections) == 1

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())


def test_many_newcomers_at_once_leave_others_their_turn() -> None:
    """The start of a TLS handshake takes half a millisecond; no other connection should wait for dozens of them."""
    newcomers, a_turn_max = 60, 10

    async def scenario() -> None:
        async with driving(Machine(), {"TCP": ("127.0.0.1", 0)}) as (driver, bound):
            (streams,) = driver._streams.values()
            with contextlib.ExitStack() as stack:
                for _ in range(newcomers):
                    stack.enter_context(socket.create_connection(bound["TCP"]))
                counts = [0]
                async with asyncio.timeout(PATIENCE_S):
                    while counts[-1] < newcomers:
                        await asyncio.sleep(0)
                        counts.append(len(streams))
            assert max(after - before for before, after in pairwise(counts)) <= a_turn_max

    asyncio.run(scenario())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("kind", ["TCP", "TLS"])
def test_small_writes_do_not_wait_for_each_other(new_loop: Any, kind: Any, tmp_path: Path) -> None:
    """Nagle's algorithm is off at both ends, on either loop."""

    async def scenario() -> None:
        server, client = Machine(echo), Machine()
        own = own_certificate(tmp_path)
        async with (
            driving(server, {kind: ("127.0.0.1", 0)}, server_tls=server_tls(own.file)) as (server_driver, bound),
            driving(client) as (driver, _bound),
        ):
            fingerprint = own.fingerprint if kind == "TLS" else None
            driver.perform([SendOnStream("sip", DataTarget(kind, bound[kind], fingerprint), b"x")])
            await until(lambda: client.data)
            for each in (driver, server_driver):
                ((connection,),) = [streams._connections.values() for streams in each._streams.values()]
                assert connection.transport is not None
                opened = connection.transport.get_extra_info("socket")
                assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())


@pytest.mark.parametrize(("segment_bytes_max", "lazy"), [(None, False), (900, False), (None, True)])
def test_connections_to_sip_servers_have_short_segments(segment_bytes_max: int | None, lazy: bool) -> None:
    """In both directions, since the peer learns the size from the SYN; a socket may open connections lazily too."""

    async def check() -> set[int]:
        server = Machine(lambda item: b"y" * 3_000)
        client = Machine()
        limits = None if lazy or segment_bytes_max else DATA_STREAM_LIMITS
        async with driving(server, {"TCP": ("127.0.0.1", 0)}, limits=DATA_STREAM_LIMITS) as (at_server, bound):
            driver = Driver(client, client.reports.append)
            if lazy:
                driver.allow_streams("sip", local_host="127.0.0.1")
            else:
                driver.bind_streams("sip", {}, limits=limits)
            driver.perform([SendOnStream("sip", Target("TCP", bound["TCP"]), b"x" * 3_000)])
            await until(lambda: len(client.data) >= 3_000)
            sizes = set()
            for each in (driver, at_server):
                for connection in each._streams["sip"]._connections.values():
                    assert connection.transport is not None
                    opened = connection.transport.get_extra_info("socket")
                    sizes.add(opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))
            driver.close()
            return sizes

    sizes = uvloop.run(check())
    assert max(sizes) <= 900 if lazy or segment_bytes_max else min(sizes) > 900
