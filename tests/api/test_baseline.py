"""One test application in both modes, and the differences (SPEC A-09, A-10, EVALUATIONS E1, E2)."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import wanderbus
from tests.api.world import SUBJECT, World, crash, nothing_more, numbers, publish, run, service, take
from wanderbus.errors import ConfigurationError, LimitExceeded, Refused, Unreachable
from wanderbus.parameters.eci import BaselineConfig
from wanderbus.subscription import Frequency

MODES = ("eci", "sip")


def agent_of(world: World, server: wanderbus.Server, mode: str, name: str, **options: Any) -> wanderbus.Agent:
    """The one place where the modes differ: the configuration."""
    if mode == "sip":
        return world.agent(name, **options)
    assert server.eci_address is not None
    host, port = server.eci_address
    return wanderbus.connect(f"eci://{host}:{port}", **options)


async def application(alice: wanderbus.Agent, bob: wanderbus.Agent) -> list[Any]:
    """Publish, filter, restrict, query, renew and unsubscribe; return all observations."""
    seen: list[Any] = [alice.status, bob.status]
    async with (
        alice.subscribe(SUBJECT, "(n < 3)") as low,
        alice.subscribe(SUBJECT, restrictions=[Frequency(3600.0)]) as calm,
        bob.subscribe(SUBJECT, "(n == 2)", keep=True) as to_bob,
    ):
        identities = await publish(bob, 1, 2, 3)
        first = await take(low, 2)
        seen += [each.event["n"] for each in first]
        seen += [each.id == identity for each, identity in zip(first, identities, strict=False)]
        seen += [first[0].subscriptions == tuple(sorted((low.subscription.id, calm.subscription.id)))]
        seen += await numbers(calm, 1)
        seen += await numbers(to_bob, 1)
        await nothing_more(calm)
        await alice.restrict(calm.subscription.id, ())
        await publish(alice, 4)
        seen += await numbers(calm, 1)
        seen += sorted(each.expression for each in await alice.subscriptions())
        renewed = await bob.renew(to_bob.subscription.id, 60.0)
        seen += [renewed.expires_us is not None]
        await alice.unsubscribe(low.subscription.id)
        await publish(bob, 0)
        await nothing_more(low)
        seen += await numbers(calm, 1)
        with pytest.raises(Refused):
            await bob.renew("nonsense", 1.0)
    seen += [len(await alice.subscriptions()), len(await bob.subscriptions())]
    return seen


@pytest.mark.parametrize("mode", MODES)
def test_a09_the_same_application_in_both_modes(world: World, mode: str) -> None:
    async def story() -> None:
        async with (
            world.server(eci_port=0) as server,
            agent_of(world, server, mode, "alice") as alice,
            agent_of(world, server, mode, "bob") as bob,
        ):
            seen = await application(alice, bob)
            assert seen == [
                *("CONNECTED", "CONNECTED", 1, 2, True, True, True, 1, 2, 4, "", "(n < 3)", True, 0),
                *(0, 1),
            ]
        assert (alice.status, bob.status) == ("DISCONNECTED", "DISCONNECTED")

    run(story())


@pytest.mark.parametrize("mode", MODES)
def test_a_burst_keeps_its_order(world: World, mode: str) -> None:
    async def story() -> list[Any]:
        async with (
            world.server(eci_port=0) as server,
            agent_of(world, server, mode, "alice") as alice,
            agent_of(world, server, mode, "bob") as bob,
            alice.subscribe(SUBJECT) as notifications,
        ):
            reading = asyncio.create_task(numbers(notifications, 300))
            await publish(bob, *range(300))
            return await reading

    assert run(story()) == list(range(300))


def test_the_user_is_the_address(world: World) -> None:
    async def story() -> None:
        async with world.server(eci_port=0) as server:
            alice = agent_of(world, server, "eci", "alice", local_address="127.0.0.5")
            async with alice:
                assert alice.uri.startswith("eci:127.0.0.5:")
                async with alice.subscribe(SUBJECT) as notifications:
                    assert notifications.subscription.owner == alice.uri

    run(story())


@pytest.mark.parametrize(("mode", "heard"), [("eci", [1]), ("sip", [1, 2])])
def test_a10_mobility_is_what_the_other_mode_adds(world: World, mode: str, heard: list[int]) -> None:
    """EVALUATIONS E2: the same move in both modes; the stream continues, or ends silently."""

    async def story() -> None:
        async with (
            world.server(eci_port=0) as server,
            agent_of(world, server, mode, "alice", local_address="127.0.0.1") as alice,
            agent_of(world, server, mode, "bob") as bob,
        ):
            notifications = await alice.subscribe(SUBJECT, keep=True).__aenter__()
            await publish(bob, 1)
            await alice.rebind("127.0.0.2")
            await publish(bob, 2)
            assert await numbers(notifications, len(heard)) == heard
            await nothing_more(notifications)
            assert alice.status == "CONNECTED"

    run(story())


def test_a_moved_agent_gets_no_response_and_the_error_names_missing_retries(world: World) -> None:
    async def story() -> None:
        async with (
            world.server(eci_port=0) as server,
            agent_of(world, server, "eci", "alice", local_address="127.0.0.1") as alice,
        ):
            before = alice.uri
            await alice.rebind("127.0.0.2")
            assert alice.uri != before
            with pytest.raises(Unreachable, match="does not retransmit"):
                await alice.publish(SUBJECT, {"n": 3})
            with pytest.raises(Unreachable, match="does not retransmit"):
                await alice.subscriptions()
            assert alice.status == "CONNECTED"

    run(story())


def test_a_crashed_agent_comes_back_as_somebody_else(world: World) -> None:
    async def story() -> None:
        async with world.server(eci_port=0) as server:
            alice = await agent_of(world, server, "eci", "alice").__aenter__()
            await alice.subscribe(SUBJECT, keep=True).__aenter__()
            before = alice.uri
            crash(alice)
            async with agent_of(world, server, "eci", "alice") as again:
                assert again.uri != before
                assert not await again.subscriptions()

    run(story())


def test_the_server_forgets_an_agent_that_closes(world: World) -> None:
    async def story() -> None:
        async with world.server(eci_port=0) as server:
            async with agent_of(world, server, "eci", "alice") as alice:
                async with alice.subscribe(SUBJECT, keep=True):
                    pass
                assert len(await alice.subscriptions()) == 1
            assert len(service(server).broker.state.subscriptions) == 0

    run(story())


def test_a_missing_server_is_reported_within_one_timeout(world: World) -> None:
    async def story() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
            deaf.bind(("127.0.0.1", 0))
            place = "eci://{}:{}".format(*deaf.getsockname())
            with pytest.raises(Unreachable, match=f"{place}: no response within 2 s"):
                await wanderbus.connect(place).__aenter__()
            with pytest.raises(Unreachable, match="cannot reach the broker"):
                await wanderbus.connect(place, connect_s_max=0.05).__aenter__()

    run(story())


def test_a_request_above_one_datagram_is_refused(world: World) -> None:
    async def story() -> None:
        async with world.server(eci_port=0) as server, agent_of(world, server, "eci", "alice") as alice:
            for length, limit in ((65_500, "udp_payload_bytes_max"), (70_000, "message_bytes_max")):
                with pytest.raises(LimitExceeded) as caught:
                    await alice.subscribe("x" * length).__aenter__()
                assert caught.value.limit == limit

    run(story())


def test_a_full_server_names_the_limit(world: World) -> None:
    async def story() -> None:
        async with (
            world.server(eci_port=0, eci=BaselineConfig(identities_max=1)) as server,
            agent_of(world, server, "eci", "alice"),
        ):
            with pytest.raises(Refused, match="identities_max is 1"):
                await agent_of(world, server, "eci", "bob").__aenter__()

    run(story())


def test_the_mode_is_off_and_on_loopback_by_default(world: World) -> None:
    async def story() -> None:
        async with world.server() as server:
            assert server.eci_address is None
        async with world.server(host="127.0.0.4", port=0, eci_port=0) as server:
            assert server.eci_address is not None
            assert server.eci_address[0] == "127.0.0.1"
        async with world.server(port=0, eci_port=0, eci_host="127.0.0.5") as server:
            assert server.eci_address is not None
            assert server.eci_address[0] == "127.0.0.5"

    run(story())


@pytest.mark.parametrize("options", [{"eci_host": "0.0.0.0"}, {"eci_host": "nonsense"}, {"eci_port": 70_000}])
def test_a_place_that_cannot_be_served_is_refused(world: World, options: dict[str, Any]) -> None:
    async def story() -> None:
        with pytest.raises(ConfigurationError):
            async with world.server(**({"eci_port": 0} | options)):
                raise AssertionError("it started")

    run(story())


def test_a_port_in_use_is_reported_with_its_option(world: World) -> None:
    async def story() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(("127.0.0.1", 0))
            with pytest.raises(ConfigurationError, match="--eci-port"):
                async with world.server(eci_port=other.getsockname()[1]):
                    raise AssertionError("it started")

    run(story())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("password", "secret"),
        ("transport", "tls"),
        ("ca_file", "ca.pem"),
        ("broker", "sip:broker@localhost"),
        ("session", "other"),
        ("resume", wanderbus.Position(1, 1)),
        ("data_transport", "tcp"),
    ],
)
def test_settings_that_the_mode_cannot_honour_are_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"no {name}"):
        wanderbus.connect("eci://127.0.0.1:5070", **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("uri", ["eci://", "eci://127.0.0.1", "eci://127.0.0.1:0", "eci://127.0.0.1:x", "eci:x"])
def test_a_place_that_cannot_be_read_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError):
        wanderbus.connect(uri)


@pytest.mark.integration
def test_the_shell_takes_the_mode_from_its_configuration(world: World, tmp_path: Path) -> None:
    """SPEC A-10: one variable, and the same two commands."""

    def wb(place: str, *words: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "WANDERBUS_USER": place}
        command = [sys.executable, "-m", "wanderbus", *words]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path)

    async def story() -> None:
        async with world.server(eci_port=0) as server:
            assert server.eci_address is not None
            place = "eci://{}:{}".format(*server.eci_address)
            with wb(place, "sub", SUBJECT, "n > 1", "--count", "1") as subscriber:
                while not service(server).broker.state.subscriptions:
                    await asyncio.sleep(0.01)
                for value in (1, 2):
                    with wb(place, "pub", SUBJECT, f"n={value}") as publisher:
                        assert await asyncio.to_thread(publisher.wait) == 0
                printed, _ = await asyncio.to_thread(subscriber.communicate)
            assert printed == f"1 {SUBJECT} n=2\n"

    run(story())
