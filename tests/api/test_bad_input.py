"""Bad input: one clear error each, and the rest goes on."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from datetime import datetime
from typing import Any

import pytest

import wanderbus
from tests.api.world import SUBJECT, World, files, numbers, publish, run
from wanderbus.client.agent_sockets import MobileEnd
from wanderbus.client.publishes import UNSETTLED_MAX
from wanderbus.errors import (
    Closed,
    ConfigurationError,
    EventError,
    LimitExceeded,
    NoResponse,
    Refused,
    StorageError,
    Unreachable,
    WanderbusError,
    WrongPassword,
)
from wanderbus.limits import EVENT_BYTES_MAX


async def refusal(agent: wanderbus.Agent) -> WanderbusError:
    """Return the error of opening ``agent``, after checking that it is one line."""
    with pytest.raises(WanderbusError) as caught:
        async with agent:
            pass
    assert "\n" not in str(caught.value)
    assert agent.status == "DISCONNECTED"
    with pytest.raises(Closed):
        await agent.publish(SUBJECT, {})
    return caught.value


def test_credentials_and_uris_that_do_not_fit(world: World) -> None:
    async def story() -> None:
        async with world.server():
            wrong = await refusal(world.agent(password="guess"))
            assert type(wrong) is WrongPassword
            assert "guess" not in str(wrong)
            assert type(await refusal(world.agent(password=None))) is WrongPassword
            unknown = await refusal(world.agent("carol", password="secret"))
            assert type(unknown) is WrongPassword  # the error does not reveal which users exist
            assert "sip:carol@localhost" in str(unknown)
            nobody = await refusal(world.agent(broker="sip:nobody@localhost"))
            assert type(nobody) is Unreachable
            assert "sip:nobody@localhost" in str(nobody)
            elsewhere = await refusal(world.agent(broker="sip:broker@elsewhere.example", connect_s_max=0.5))
            assert type(elsewhere) is NoResponse
            assert "another domain" in str(elsewhere)
            assert "--tls-certificate" in str(elsewhere)
            async with world.agent() as alice:
                await publish(alice, 1)

    run(story())


def test_a_session_that_the_broker_will_not_have_is_refused_at_the_door(world: World) -> None:
    """The connect fails at once, instead of a warning and an agent that waits for ever."""

    async def story() -> None:
        async with world.server():
            error = await refusal(world.agent(session="no such name!"))
            assert type(error) is Refused
            assert "letters, digits" in str(error)

    run(story())


def test_a_server_that_is_not_there_is_unreachable_in_time(world: World) -> None:
    async def story() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.1", 0))
            world.port = silent.getsockname()[1]
            begun = time.monotonic()
            error = await refusal(world.agent(connect_s_max=0.3))
            assert type(error) is NoResponse
            assert isinstance(error, TimeoutError)
            assert 0.25 < time.monotonic() - begun < 5
            assert f"127.0.0.1:{world.port} in 0.3 s" in str(error)

    run(story())


def test_opening_may_be_cancelled(world: World) -> None:
    async def story() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind(("127.0.0.1", 0))
            world.port = silent.getsockname()[1]
            opening = asyncio.create_task(world.agent().__aenter__())
            await asyncio.sleep(0.02)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            assert opening.cancelled()

    run(story())


def test_an_agent_is_opened_once(world: World) -> None:
    async def story() -> None:
        async with world.server():
            agent = world.agent()
            with pytest.raises(Closed, match="inside its async with block"):
                await agent.publish(SUBJECT, {})
            async with agent:
                with pytest.raises(Closed, match="opened before"):
                    await agent.__aenter__()
                await publish(agent, 1)
            with pytest.raises(Closed, match="opened before"):
                await agent.__aenter__()

    run(story())


@pytest.mark.parametrize(
    "settings",
    [
        {"uri": "alice"},
        {"uri": ""},
        {"uri": "sip:a b@localhost"},
        {"broker": "sip:@"},
        {"server": "127.0.0.1:0"},
        {"server": "no such host:5060"},
    ],
)
def test_malformed_input_is_refused_before_any_effect(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        wanderbus.connect(**({"uri": "sip:alice@localhost"} | settings))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("address", ["nonsense", "", "0.0.0.0", "203.0.113.9", "::", "::1%nowhere"])
def test_a_local_address_that_cannot_be_used_is_refused_and_the_old_one_stays(world: World, address: str) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice, alice.subscribe(SUBJECT) as notifications:
            with pytest.raises(ConfigurationError):
                await alice.rebind(address)
            end = alice._end
            assert isinstance(end, MobileEnd)
            assert end._monitor is not None, "it goes on following the route"
            await publish(alice, 1)
            assert await numbers(notifications, 1) == [1]
            if address:
                assert type(await refusal(world.agent("bob", local_address=address))) is ConfigurationError

    run(story())


def test_a_state_directory_that_cannot_be_used(world: World) -> None:
    async def story() -> None:
        (world.directory / "file").write_text("")
        async with world.server():
            assert type(await refusal(world.agent(state_dir=world.directory / "file"))) is StorageError
            (world.directory / "device").write_text("nonsense")
            assert type(await refusal(world.agent(state_dir=world.directory))) is StorageError

    run(story())


EVENTS: list[tuple[Any, Any]] = [
    ("", {}),
    ("x" * 300, {}),
    (SUBJECT, {"": 1}),
    (SUBJECT, {7: 1}),
    (SUBJECT, {"n": None}),
    (SUBJECT, {"n": {}}),
    (SUBJECT, {"n": (1, 2)}),
    (SUBJECT, {"n": [[1]]}),
    (SUBJECT, {"n": float("nan")}),
    (SUBJECT, {"n": 2**63}),
    (SUBJECT, {"n": datetime(2013, 1, 1)}),
    (SUBJECT, {"n": "\ud800"}),
    (SUBJECT, {str(n): n for n in range(300)}),
    (SUBJECT, {"n": [1] * 2_000}),
]


def test_events_that_cannot_be_published_are_refused_and_the_stream_goes_on(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice, alice.subscribe(SUBJECT) as notifications:
            for subject, attributes in EVENTS:
                with pytest.raises(EventError) as caught:
                    await alice.publish(subject, attributes)
                assert "\n" not in str(caught.value)
            for stamp in (1.5, "now", 2**63, 2**70):
                with pytest.raises(EventError, match="published_us"):
                    await alice.publish(SUBJECT, {"n": 1}, published_us=stamp)  # type: ignore[arg-type]
            with pytest.raises(LimitExceeded) as large:
                await alice.publish(SUBJECT, {"n": "x" * EVENT_BYTES_MAX})
            assert large.value.limit == "event_bytes_max"
            with pytest.raises(LimitExceeded):
                await alice.publish(SUBJECT, {"n": "x" * 10_000_000})
            await publish(alice, 1)
            assert await numbers(notifications, 1) == [1]
            assert alice._publishing._slots._value == UNSETTLED_MAX

    run(story())


def server_error(world: World, **options: Any) -> str:
    async def story() -> str:
        with pytest.raises(ConfigurationError) as caught:
            async with world.server(**options):
                pass
        return str(caught.value)

    line = run(story())
    assert "\n" not in line
    return line


def test_a_port_that_is_taken(world: World) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port} cannot be used: Address already in use" in server_error(world, port=port)
    world.port = 0

    async def story() -> None:
        async with world.server(), world.agent() as alice:
            await publish(alice, 1)

    run(story())


@pytest.mark.parametrize("host", ["localhost", "nonsense", "", "0.0.0.0", "::"])
def test_a_host_that_is_no_address_to_listen_on(world: World, host: str) -> None:
    assert "address" in server_error(world, host=host)


def test_a_host_that_is_elsewhere(world: World) -> None:
    assert "203.0.113.9:0 cannot be used" in server_error(world, host="203.0.113.9")


@pytest.mark.parametrize("domain", ["a b", "", "x@y"])
def test_a_domain_that_sip_cannot_name(world: World, domain: str) -> None:
    assert "domain" in server_error(world, domain=domain)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_does_not_exist(world: World, port: int) -> None:
    assert "cannot be used" in server_error(world, port=port)


def test_nothing_that_arrives_from_strangers_stops_the_server(world: World) -> None:
    """Bytes at random on every port that the server listens on."""
    import random

    noise = random.Random(7)

    async def story() -> None:
        async with world.server() as server, world.agent() as alice, alice.subscribe(SUBJECT) as notifications:
            identity = files(server).identity
            agents = [each.getsockname()[1] for each in alice._driving()._sockets.values()]
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                for port in (world.port, identity.ports["broker_port"], identity.ports["data_port"], *agents):
                    for _ in range(50):
                        stranger.sendto(noise.randbytes(noise.randrange(300)), ("127.0.0.1", port))
                    stranger.sendto(b"", ("127.0.0.1", port))
                    stranger.sendto(b"INVITE sip:alice@localhost SIP/2.0\r\n\r\n", ("127.0.0.1", port))
            await asyncio.sleep(0.05)
            await publish(alice, 1)
            assert await numbers(notifications, 1) == [1]

    run(story())


@pytest.mark.parametrize(
    ("options", "error", "complaint"),
    [
        ({"pasword": "x"}, TypeError, "unexpected keyword argument 'pasword'; did you mean 'password'?"),
        ({"zzzz": 1}, TypeError, "unexpected keyword argument 'zzzz'; 'wanderbus config sample agent' lists them"),
        ({"keep": "no"}, ConfigurationError, "keep: str given (expected bool)"),
        ({"connect_s_max": "3"}, ConfigurationError, "connect_s_max: str given (expected float)"),
        ({"connect_s_max": True}, ConfigurationError, "connect_s_max: bool given (expected float)"),
        ({"server": 5060}, ConfigurationError, "server: int given (expected str)"),
        (
            {"on_ended": "restart"},
            ConfigurationError,
            "on_ended: invalid value 'restart' (expected ignore, renew",
        ),
    ],
)
def test_arguments_that_do_not_fit(options: dict[str, Any], error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=re.escape(complaint)):
        wanderbus.connect("sip:alice@localhost", **options)
    assert wanderbus.connect("sip:alice@localhost", connect_s_max=3, keep=False).uri == "sip:alice@localhost"
