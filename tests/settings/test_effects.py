"""The main settings take effect in real servers and agents that are configured only by files (SPEC Q-02, F-10)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest

import wanderbus
from tests.api.world import numbers, publish, run, service
from wanderbus.errors import ConfigurationError, Refused, Unreachable, WanderbusError, WrongPassword
from wanderbus.machine import Address
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.sip.authentication.digest import DigestClient
from wanderbus.sip.message.message import Request, Response, encode_message, parse_message

pytestmark = pytest.mark.integration

BROKER = """
domain = "localhost"
data_dir = "data"
port = 0
{more}
[users]
alice = "secret"
"""


def server(directory: Path, more: str = "", tables: str = "") -> wanderbus.Server:
    file = directory / "broker.toml"
    file.touch(0o600)
    file.write_text(BROKER.format(more=more) + tables)
    return wanderbus.Server.from_file(file)


def agent(directory: Path, server: wanderbus.Server, more: str = "", *, name: str = "agent") -> wanderbus.Agent:
    file = directory / f"{name}.toml"
    file.touch(0o600)
    host, port = server.address
    file.write_text(f'uri = "alice@localhost"\nserver = "{host}:{port}"\nstate_dir = "{name}"\n{more}')
    return wanderbus.connect(config=file)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def test_the_broker_is_at_the_ports_that_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sip, data, stream = free_ports(3)
    more = f"broker_port = {sip}\ndata_port = {data}\nstream_port = {stream}"

    async def story() -> None:
        async with server(tmp_path):
            pass  # the first start stores its choice, and settings take precedence over it
        async with server(tmp_path, more):
            for kind, port in ((socket.SOCK_DGRAM, sip), (socket.SOCK_DGRAM, data), (socket.SOCK_STREAM, stream)):
                with socket.socket(socket.AF_INET, kind) as other, pytest.raises(OSError, match="in use"):
                    other.bind(("127.0.0.1", port))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(("127.0.0.1", data))
            with pytest.raises(ConfigurationError, match="look at broker_port, data_port, stream_port"):
                async with server(tmp_path, more):
                    pass
        assert not caplog.records, "no others are taken"

    run(story())


def test_a_taken_previous_port_does_not_use_a_configured_port(tmp_path: Path) -> None:
    (sip,) = free_ports(1)
    more = f"broker_port = {sip}"

    async def story() -> None:
        async with server(tmp_path, more):
            pass
        kept = json.loads((tmp_path / "data" / "server.json").read_text())["ports"]["data_port"]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(("127.0.0.1", kept))
            async with server(tmp_path, more):
                found = json.loads((tmp_path / "data" / "server.json").read_text())["ports"]
        assert (found["broker_port"], found["data_port"] != kept) == (sip, True)

    run(story())


@pytest.mark.parametrize(("more", "algorithms"), [("", "SHA-256 MD5"), ('digest_algorithms = ["MD5"]', "MD5")])
def test_the_digests_that_are_named_are_offered(tmp_path: Path, more: str, algorithms: str) -> None:
    async def story() -> None:
        async with (
            server(tmp_path, f'{more}\nsip_trace = "trace"') as broker,
            agent(tmp_path, broker, 'password = "secret"'),
        ):
            pass

    run(story())
    offered = re.findall(r"WWW-Authenticate:.*algorithm=([\w-]+)", (tmp_path / "trace").read_text())
    assert list(dict.fromkeys(offered)) == algorithms.split()


@pytest.mark.parametrize("algorithm", ["SHA-256", "MD5"])
def test_registrar_and_broker_take_the_digests_that_are_named_alone(tmp_path: Path, algorithm: str) -> None:
    """Both challenge with it; the REGISTER and the INVITE of the agent prove by it."""

    async def story() -> None:
        more = f'digest_algorithms = ["{algorithm}"]\nsip_trace = "trace"'
        async with server(tmp_path, more) as broker, agent(tmp_path, broker, 'password = "secret"'):
            pass

    run(story())
    trace = (tmp_path / "trace").read_text()
    challenged = [line for line in trace.splitlines() if "SIP/2.0 401" in line]
    assert {method for line in challenged for method in re.findall(r"(?i)CSeq: ?\d+ (\w+)", line)} == {
        "REGISTER",
        "INVITE",
    }
    assert set(re.findall(r"algorithm=([\w-]+)", trace)) == {algorithm}


def test_an_agent_answers_no_challenge_of_another_digest(tmp_path: Path) -> None:
    async def story() -> None:
        more = 'digest_algorithms = ["MD5"]\nsip_trace = "trace"'
        async with server(tmp_path, more) as broker:
            settings = 'password = "secret"\ndigest_algorithms = ["SHA-256"]\nconnect_s_max = 3'
            with pytest.raises(WrongPassword):
                await agent(tmp_path, broker, settings).__aenter__()

    run(story())
    assert "alice" not in "".join(re.findall(r"Authorization:.*", (tmp_path / "trace").read_text()))


@pytest.mark.parametrize(("more", "stays"), [("", False), ("stay_on_path = true", True)])
def test_the_proxy_stays_on_the_path_if_configured(tmp_path: Path, more: str, stays: bool) -> None:
    async def story() -> None:
        async with (
            server(tmp_path, f'{more}\nsip_trace = "trace"') as broker,
            agent(tmp_path, broker, 'password = "secret"'),
        ):
            pass

    run(story())
    assert ("Record-Route:" in (tmp_path / "trace").read_text()) is stays


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_events_flow_as_the_files_say(tmp_path: Path, transport: str) -> None:
    more = f'password_file = "word"\nencryption = false\ndata_transport = "{transport}"\n'
    (tmp_path / "word").write_text("secret\n")

    async def story() -> None:
        async with (
            server(tmp_path, 'encryption = false\nsip_trace = "trace"') as broker,
            agent(tmp_path, broker, f"{more}[rudp]\nretries_max = 3") as alice,
            alice.subscribe("Departure") as notifications,
        ):
            await publish(alice, 1, 2)
            assert await numbers(notifications, 2) == [1, 2]

    run(story())
    assert "alice@localhost" in (tmp_path / "trace").read_text()
    assert (tmp_path / "agent" / "device").exists()
    assert (tmp_path / "data" / "log").is_dir()


def test_passwords(tmp_path: Path) -> None:
    async def story() -> None:
        async with server(tmp_path) as broker:
            with pytest.raises(WrongPassword):
                await agent(tmp_path, broker, 'password = "wrong"').__aenter__()

    run(story())


def test_bounds_of_the_broker(tmp_path: Path) -> None:
    async def story() -> None:
        async with server(tmp_path, tables="[broker]\nsessions_max = 1") as broker:
            one = agent(tmp_path, broker, 'password = "secret"')
            other = agent(tmp_path, broker, 'password = "secret"\nsession = "other"', name="other")
            async with one:
                with pytest.raises(Refused, match="sessions"):
                    await other.__aenter__()

    run(story())


def test_bounds_of_the_original_eci(tmp_path: Path) -> None:
    async def story() -> None:
        async with server(tmp_path, "eci_port = 0", "[eci]\nidentities_max = 1") as broker:
            assert broker.eci_address is not None
            place = "eci://{}:{}".format(*broker.eci_address)
            async with wanderbus.connect(place):
                with pytest.raises(WanderbusError):
                    await wanderbus.connect(place, connect_s_max=1.0).__aenter__()

    run(story())


def test_parameters_of_the_transports(tmp_path: Path) -> None:
    """Both ends use the parameters of their files; tests/rudp and tests/tcp show the effect of each parameter."""
    tables = "[rudp]\nretries_max = {0}\n[tcp_channels]\nhello_s_max = {0}"

    async def story() -> None:
        async with (
            server(tmp_path, tables=tables.format(3)) as broker,
            agent(tmp_path, broker, f'password = "secret"\nkeepalive_s = 7\n{tables.format(4)}') as alice,
        ):
            machines: list[tuple[Any, int]] = [
                (service(broker).machine, 3),
                (alice._driver and alice._driver.machine, 4),
            ]
            for machine, number in machines:
                transports = machine._transports
                assert transports.udp.endpoint._config.retries_max == number
                assert transports.tcp.endpoint._config.hello_s_max == number
            assert transports.udp.endpoint._config.keepalive_s == transports.tcp.endpoint._config.keepalive_s == 7

    run(story())


@pytest.mark.parametrize("table", ["rudp", "tcp_channels"])
def test_a_server_with_too_small_messages_is_refused(tmp_path: Path, table: str) -> None:
    """Any user would end it by asking for a listing that is longer."""
    with pytest.raises(WanderbusError, match=rf"{table}\.message_bytes_max must be at least 65536"):
        server(tmp_path, tables=f"[{table}]\nmessage_bytes_max = 65_535")


@pytest.mark.parametrize("tcp", ["true", "false"])
def test_sip_over_tcp(tmp_path: Path, tcp: str) -> None:
    async def story() -> None:
        async with server(tmp_path, f"tcp = {tcp}") as broker:
            with socket.socket() as client:
                client.settimeout(1.0)
                assert (client.connect_ex(broker.address) == 0) == (tcp == "true")

    run(story())


def test_flood_limits(tmp_path: Path) -> None:
    """A client without a token is not served: the broker registers within its burst, the agent after it cannot."""

    async def story() -> None:
        tables = "[flood]\nrequests_per_s = 0.01\nburst_requests = 3"
        async with server(tmp_path, tables=tables) as broker:
            with pytest.raises(WanderbusError):
                await agent(tmp_path, broker, 'password = "secret"\nconnect_s_max = 1').__aenter__()

    run(story())


LIMITED = "sip:alice@localhost is limited by logins.free_failures: "


def test_login_limits_of_the_registrar(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One wrong password from an address, and the right one has to wait too."""

    async def story() -> None:
        async with server(tmp_path, tables="[logins]\nfree_failures = 1\npause_s = 60") as broker:
            with pytest.raises(WrongPassword):
                await agent(tmp_path, broker, 'password = "guess"').__aenter__()
            with pytest.raises(Unreachable, match="500 Too Many Failed Logins"):
                await agent(tmp_path, broker, 'password = "secret"\nconnect_s_max = 1').__aenter__()

    run(story())
    line = f"{LIMITED}login of sip:alice@localhost from 127.0.0.1 refused: "
    assert line + "Wrong User Or Password" in caplog.messages
    assert "refused: Too Many Failed Logins, 4 times so far" in caplog.text
    assert "guess" not in caplog.text


def test_login_limits_of_the_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The broker limits its callers itself, also those who bypass the proxy."""

    async def story() -> None:
        async with server(tmp_path, tables="[logins]\nfree_failures = 1\npause_s = 60") as broker:
            assert await asyncio.to_thread(calls, broker.broker_address, "guess") == 403
            assert await asyncio.to_thread(calls, broker.broker_address, "secret") == 500

    run(story())
    assert caplog.messages[0] == f"{LIMITED}login of sip:alice@localhost from 127.0.0.1 refused: Wrong User Or Password"


def test_guesses_through_the_proxy_delay_no_other_user(tmp_path: Path) -> None:
    tables = 'bob = "secret"\n[logins]\nsource_failures = 1\nsource_recovery_s = 1000'

    async def story() -> None:
        async with server(tmp_path, tables=tables) as broker:
            assert await asyncio.to_thread(calls, broker.address, "guess", "127.0.0.66") == 403
            assert await asyncio.to_thread(calls, broker.address, "again", "127.0.0.66", "bob") == 500
            assert await asyncio.to_thread(calls, broker.address, "other", "127.0.0.2", "bob") == 403

    run(story())


def calls(address: Address, password: str, host: str = "127.0.0.1", user: str = "alice") -> int:
    """Call the broker as ``user``, and answer its challenge; return the status that comes."""
    client, status = DigestClient(user, password, SystemRandom()), 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
        caller.bind((host, 0))
        caller.settimeout(5.0)
        place = f"{host}:{caller.getsockname()[1]}"
        for number in (1, 2):
            headers = {
                "Via": f"SIP/2.0/UDP {place};rport;branch=z9hG4bK{password}{number}",
                "Max-Forwards": "70",
                "From": f"<sip:{user}@localhost>;tag=a",
                "To": "<sip:broker@localhost>",
                "Call-ID": f"{password}-{number}",
                "CSeq": f"{number} INVITE",
                "Contact": f"<sip:{user}@{place}>",
                "Subject": "as long as the challenge, which the proxy does not pass on otherwise " * 5,
            }
            request = Request("INVITE", "sip:broker@localhost", tuple(headers.items()))
            caller.sendto(encode_message(client.authorize(request)), address)
            answer = None
            while not isinstance(answer, Response) or answer.cseq.number != number or answer.status < 200:
                answer = parse_message(caller.recv(65_535))
            status = answer.status
            if status == 401:
                assert client.learn(answer)
    return status


def test_opening_gives_up_after_the_configured_time(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('uri = "alice@localhost"\nserver = "127.0.0.1:9"\nconnect_s_max = 0.3\nstate_dir = "state"')

    async def story() -> None:
        before = time.monotonic()
        with pytest.raises(Unreachable, match=r"in 0\.3 s"):
            await wanderbus.connect(config=file).__aenter__()
        assert time.monotonic() - before >= 0.3
        await asyncio.sleep(0)

    run(story())
