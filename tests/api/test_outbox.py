"""Publishing while the broker cannot be reached: wait, an error, or the device's own outbox (SPEC G-20, X25)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

import wanderbus
from tests.api.world import PASSWORDS, SUBJECT, World, crash, nothing_more, numbers, publish, run, take, until
from wanderbus import protocol
from wanderbus.client import agent as module
from wanderbus.client.machine import outbox as order
from wanderbus.client.outbox import _readable
from wanderbus.client.reports import OutboxSize
from wanderbus.errors import ConfigurationError, LimitExceeded, StorageError, Unreachable, WrongPassword
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.transports import RudpConfig
from wanderbus.runtime.files.outbox_file import OutboxFile
from wanderbus.subscription import QueuePolicy

HASTY = RudpConfig(initial_timeout_s=0.05, retries_max=2)


async def put(agent: wanderbus.Agent, *values: int) -> None:
    await asyncio.gather(*(agent.publish(SUBJECT, {"n": value}, outbox=True) for value in values))


def test_x25_the_outbox_takes_events_at_once_and_publishes_them_in_order(world: World) -> None:
    async def story() -> None:
        async with (
            world.server(),
            world.agent() as alice,
            world.agent("bob") as bob,
            bob.subscribe(SUBJECT) as notifications,
        ):
            assert alice.outbox == OutboxSize(0, 0)
            await put(alice, 0)
            await put(alice, *range(1, 700))
            assert await numbers(notifications, 700) == list(range(700))
            await until(lambda: alice.outbox.events == 0)
            assert alice.outbox.bytes == 0

    run(story())


def test_x25_events_stored_offline_are_published_after_reconnecting(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent("bob") as bob, bob.subscribe(SUBJECT, keep=True):
            alice = await world.agent().__aenter__()
        await put(alice, *range(600))
        assert alice.outbox.events == 600
        async with world.server(), world.agent("bob") as bob, bob.subscribe(SUBJECT, keep=True) as notifications:
            assert await numbers(notifications, 600) == list(range(600))
            await nothing_more(notifications)
            await alice.close()

    run(story())


def test_x25_the_next_agent_of_the_device_publishes_the_remaining_events(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLOSE_S_MAX", 0.1)

    async def story() -> None:
        async with world.server(), world.agent("bob") as bob, bob.subscribe(SUBJECT, keep=True):
            alice = await world.agent().__aenter__()
        await put(alice, 1, 2, 3)
        await alice.close()
        assert alice.outbox.events == 3
        async with world.server(), world.agent("bob") as bob, bob.subscribe(SUBJECT, keep=True) as notifications:
            async with world.agent() as alice:
                await put(alice, 4)
                assert await numbers(notifications, 4) == [1, 2, 3, 4]
                await until(lambda: alice.outbox.events == 0)
            async with world.agent() as alice:
                await put(alice, 5)
                assert await numbers(notifications, 1) == [5]

    run(story())


def test_x25_a_crash_at_any_moment_repeats_and_loses_nothing(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent("bob") as bob, bob.subscribe(SUBJECT) as notifications:
            for life in range(12):
                alice = await world.agent().__aenter__()
                await put(alice, *range(life * 20, life * 20 + 20))
                for _ in range(life):
                    await asyncio.sleep(0.0005)
                crash(alice)
                await asyncio.sleep(0)
            async with world.agent() as alice:
                assert await numbers(notifications, 240) == list(range(240))
                await nothing_more(notifications)
                await until(lambda: alice.outbox.events == 0)

    run(story())


PUBLISHER = """
import asyncio, sys, wanderbus
async def main(first):
    async with wanderbus.connect("sip:alice@localhost", password={password!r}, server={server!r},
                                 state_dir={state_dir!r}) as alice:
        for n in range(first, first + 100_000):
            await alice.publish({subject!r}, {{"n": n}}, outbox=True)
            print(n, flush=True)
asyncio.run(main(int(sys.argv[1])))
"""


@pytest.mark.integration
def test_x25_exactly_once_across_kill_9(world: World) -> None:
    """Durable events are published once and in order; of the others, at most the last one of each life is."""

    async def story() -> None:
        async with world.server(), world.agent("bob") as bob, bob.subscribe(SUBJECT) as notifications:
            program = PUBLISHER.format(
                password=PASSWORDS["alice"], server=world.address, state_dir=str(world.directory / "a"), subject=SUBJECT
            )
            said: list[int] = []
            for life in range(4):
                first = life * 1_000_000
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", program, str(first), stdout=asyncio.subprocess.PIPE
                )
                assert process.stdout is not None
                for _ in range(30 + 17 * life):
                    await process.stdout.readline()
                os.kill(process.pid, signal.SIGKILL)
                rest = await process.stdout.read()
                await process.wait()
                last = int(rest.split()[-1]) if rest.split() else first + 29 + 17 * life
                said += range(first, last + 1)
            async with world.agent(device="a") as alice:
                await until(lambda: alice.outbox.events == 0)
                await alice.publish(SUBJECT, {"n": -1})
                heard: list[int] = []
                while not heard or heard[-1] != -1:
                    heard.append((await anext(notifications)).event["n"])  # type: ignore[arg-type]
                heard.pop()
                assert heard == sorted(set(heard))
                assert set(said) <= set(heard)
                assert len(heard) - len(said) <= 4

    run(story())


def test_g20_bounds_are_named(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent(outbox_events_max=3, outbox_bytes_max=1_000) as alice:
            pass
        alice = world.agent(outbox_events_max=3, outbox_bytes_max=1_000)
        async with world.server():
            await alice.__aenter__()
        await put(alice, 1, 2)
        with pytest.raises(LimitExceeded, match="outbox_bytes_max is 1000") as caught:
            await alice.publish(SUBJECT, {"text": "x" * 1_000}, outbox=True)
        assert caught.value.limit == "outbox_bytes_max"
        await put(alice, 3)
        with pytest.raises(LimitExceeded, match="outbox_events_max is 3"):
            await put(alice, 4)
        async with world.server():
            await until(lambda: alice.outbox.events == 0)
            await put(alice, 5)
            await alice.close()

    run(story())


def test_x25_wait_false_is_an_error_at_once_while_disconnected(world: World) -> None:
    async def story() -> None:
        async with world.server():
            alice = await world.agent(keepalive_s=0.1, rudp=HASTY).__aenter__()
            assert await alice.publish(SUBJECT, {"n": 1}, wait=False) is not None
        await until(lambda: alice.status == "DISCONNECTED")
        with pytest.raises(Unreachable, match="cannot be reached now"):
            await alice.publish(SUBJECT, {"n": 2}, wait=False)
        await alice.publish(SUBJECT, {"n": 3}, wait=False, outbox=True)
        async with world.server(), world.agent("bob") as bob, bob.subscribe(SUBJECT) as notifications:
            assert await numbers(notifications, 1) == [3]
            await alice.close()

    run(story())


def test_an_offline_agent_stores_before_it_ever_met_the_server(world: World) -> None:
    async def story() -> None:
        async with world.server():
            pass  # which keeps its port
        async with world.agent(offline=True, connect_s_max=0.2) as alice:
            await alice.publish(SUBJECT, {"n": 1}, outbox=True)
            assert (alice.status, alice.outbox.events) == ("DISCONNECTED", 1)
            with pytest.raises(Unreachable, match="check that the server runs"):
                await alice.connected()
        async with world.agent(offline=True) as alice:
            await alice.publish(SUBJECT, {"n": 2}, outbox=True)
            async with world.server(), world.agent("bob") as bob, bob.subscribe(SUBJECT) as notifications:
                await alice.connected()
                assert await numbers(notifications, 2) == [1, 2]
                await until(lambda: alice.outbox.events == 0)

    run(story())


def test_an_offline_agent_learns_of_a_refusal(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent(offline=True, password="guess") as alice:
            await alice.publish(SUBJECT, {"n": 1}, outbox=True)
            with pytest.raises(WrongPassword):
                await alice.connected()
            assert alice.outbox.events == 1

    run(story())


def test_a_device_for_this_time_only_has_no_outbox(world: World) -> None:
    async def story() -> None:
        async with world.server(eci_port=0) as server, world.agent(), world.agent() as second:
            with pytest.raises(ConfigurationError, match="this agent has a temporary identity"):
                await second.publish(SUBJECT, {"n": 1}, outbox=True)
            assert server.eci_address is not None
            host, port = server.eci_address
            async with wanderbus.connect(f"eci://{host}:{port}") as baseline:
                with pytest.raises(ConfigurationError, match="original ECI has no outbox"):
                    await baseline.publish(SUBJECT, {"n": 1}, outbox=True)
                assert await baseline.publish(SUBJECT, {"n": 1}, wait=False) is not None

    run(story())


def test_a_damaged_outbox_is_reported_when_the_agent_opens(world: World) -> None:
    (world.directory / "alice").mkdir()
    (world.directory / "alice" / "outbox.db").write_bytes(b"\xff" * 10_000)

    async def story() -> None:
        async with world.server():
            with pytest.raises(StorageError, match="move it away"):
                await world.agent().__aenter__()
            async with world.agent(device="other") as alice:
                await put(alice, 1)

    run(story())


def test_an_outbox_with_an_event_that_cannot_be_read_is_refused_when_the_agent_opens(world: World) -> None:
    file = OutboxFile(world.directory / "outbox.db", "alice")
    file.write([protocol.encode_event(Event(SUBJECT, {"n": 1})), b"\xc1"], [])
    with pytest.raises(StorageError, match=r"event 2 of the outbox .* cannot be read .*; move the outbox away"):
        _readable(file)
    file.close()


def test_g20_a_permanently_refused_event_is_reported_and_skipped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "encoded", protocol.encode_event)

    async def story() -> None:
        async with world.server(), world.agent() as alice, alice.subscribe(SUBJECT) as notifications:
            refusals = alice.outbox_refusals()
            await alice.publish("", {"n": 1}, published_us=5, outbox=True)
            await put(alice, 2)
            assert await numbers(notifications, 1) == [2]
            refusal = await anext(refusals)
            assert refusal.event == Event("", {"n": 1}, 5)
            assert "subject" in refusal.reason
            await until(lambda: alice.outbox.events == 0)

    run(story())


def test_g20_u02_an_event_refused_for_space_is_retried_until_there_is_space(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full queue refuses the publish; the order is kept, and an event without the outbox gets the limit as its
    error.
    """
    monkeypatch.setattr(order, "RETRY_S_MIN", 0.02)
    config = BrokerConfig(refuse_when_full=(SUBJECT,), queue=QueuePolicy(notifications_max=3))

    async def story() -> None:
        async with world.server(broker=config), world.agent() as alice:
            async with world.agent("bob") as bob, bob.subscribe(SUBJECT, keep=True):
                pass
            refusals = alice.outbox_refusals()
            await put(alice, *range(10))
            await until(lambda: alice.outbox.events == 7)
            with pytest.raises(LimitExceeded) as caught:
                await publish(alice, 100)
            assert caught.value.limit == "queue.notifications_max"
            async with world.agent("bob") as bob, bob.subscribe(SUBJECT, keep=True) as notifications:
                read = [(await take(notifications, 1))[0].event["n"] for _ in range(10)]
                assert read == list(range(10))
            await until(lambda: alice.outbox.events == 0)
        assert [each async for each in refusals] == []

    run(story())


def test_an_outbox_that_nobody_uses_is_not_made(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice:
            await publish(alice, 1)
        assert not (Path(world.directory) / "alice" / "outbox.db").exists()

    run(story())
