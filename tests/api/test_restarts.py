"""Servers that stop and start, agents that leave, crash and come back (SPEC D-10, G-01; DESIGN 5.1, 5.5, 6.3)."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
from typing import Any

import pytest

import wanderbus
from tests.api.world import (
    SUBJECT,
    World,
    crash,
    everything_is_there,
    files,
    fill,
    nothing_more,
    numbers,
    publish,
    run,
    settled,
    stored,
    take,
    until,
)
from wanderbus.client import publishes as publishing
from wanderbus.errors import Closed, StateCorrupt, StorageError, Unreachable
from wanderbus.runtime.files import server_files
from wanderbus.runtime.log import event_log
from wanderbus.server import broker_role, storage


def test_agents_heal_over_a_restart_and_publishes_meanwhile_complete(world: World) -> None:
    async def story() -> None:
        async with world.server():
            alice, bob = await world.agent("alice").__aenter__(), await world.agent("bob").__aenter__()
            notifications = await alice.subscribe(SUBJECT).__aenter__()
            await publish(bob, 1, 2)
            assert await numbers(notifications, 2) == [1, 2]
        meanwhile = [asyncio.create_task(bob.publish(SUBJECT, {"n": value})) for value in range(3, 9)]
        await asyncio.sleep(0.1)
        assert not any(each.done() for each in meanwhile)
        async with world.server():
            await asyncio.gather(*meanwhile)
            await publish(bob, 9)
            assert await numbers(notifications, 7) == [3, 4, 5, 6, 7, 8, 9]
            await notifications.__aexit__(None, None, None)
            assert await alice.subscriptions() == ()
            await bob.close()
            await alice.close()

    run(story())


def test_a_server_whose_ports_were_taken_meanwhile_is_found_again(world: World) -> None:
    """The broker's own ports are of the ephemeral range: anybody may have them after a while."""

    async def story() -> None:
        async with world.server() as server:
            alice = await world.agent().__aenter__()
            notifications = await alice.subscribe(SUBJECT).__aenter__()
            before = files(server).identity
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as squatter:
            squatter.bind(("127.0.0.1", before.ports["data_port"]))
            async with world.server() as server:
                assert files(server).identity.server == before.server
                assert files(server).identity.ports["data_port"] != before.ports["data_port"]
                await publish(alice, 1)
                assert await numbers(notifications, 1) == [1]
                await notifications.__aexit__(None, None, None)
                await alice.close()

    run(story())


def test_a_kept_subscription_gathers_what_its_agent_missed(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent("bob") as bob:
            async with world.agent("alice") as alice, alice.subscribe(SUBJECT, keep=True) as notifications:
                await publish(bob, 1)
                assert await numbers(notifications, 1) == [1]
            missed = list(range(2, 302))
            await publish(bob, *missed)
            async with world.agent("alice") as alice, alice.subscribe(SUBJECT, keep=True) as notifications:
                await publish(bob, 302)
                assert await numbers(notifications, 301) == [*missed, 302]

    run(story())


def test_connecting_with_keep_false_discards_what_was_kept(world: World) -> None:
    """SPEC G-09."""

    async def story() -> None:
        async with world.server(), world.agent("bob") as bob:
            async with world.agent("alice") as alice, alice.subscribe(SUBJECT, keep=True):
                pass
            await publish(bob, 1)
            async with world.agent("alice", keep=False) as alice:
                assert await alice.subscriptions() == ()
                async with alice.subscribe(SUBJECT) as notifications:
                    await publish(bob, 2)
                    assert await numbers(notifications, 1) == [2]

    run(story())


async def crash_after(
    world: World, server: wanderbus.Server, bob: wanderbus.Agent, results: list[Any]
) -> wanderbus.Position:
    """Let alice commit five of ten, the fifth unacknowledged, and crash; return the position she committed."""
    agent = world.agent("alice")
    alice = await agent.__aenter__()
    notifications = await alice.subscribe(SUBJECT, keep=True).__aenter__()
    await publish(bob, *range(1, 11))
    for _ in range(5):
        notification = await anext(notifications)
        results.append(notification.event["n"])
    await until(lambda: notifications._inbox.waiting == 5)
    await until(lambda: settled(server) == 4)
    crash(agent)
    return notification.position


def test_a_crash_with_resume_is_exactly_once(world: World) -> None:
    """DESIGN 5.5: the application commits its result together with the position and resumes from there."""
    results: list[Any] = []

    async def story() -> None:
        async with world.server() as server, world.agent("bob") as bob:
            position = await crash_after(world, server, bob, results)
            await publish(bob, 11)
            async with (
                world.agent("alice", resume=position) as alice,
                alice.subscribe(SUBJECT, keep=True) as notifications,
            ):
                results.extend(await numbers(notifications, 6))
                await nothing_more(notifications)

    run(story())
    assert results == list(range(1, 12))


def test_after_a_crash_without_resume_notifications_are_redelivered(world: World) -> None:
    results: list[Any] = []

    async def story() -> None:
        async with world.server() as server, world.agent("bob") as bob:
            await crash_after(world, server, bob, results)
            async with world.agent("alice") as alice, alice.subscribe(SUBJECT, keep=True) as notifications:
                await publish(bob, 11)
                again = await take(notifications, 7)
                assert [each.event["n"] for each in again] == [5, 6, 7, 8, 9, 10, 11]
                assert [each.redelivered for each in again] == [True] * 6 + [False]
                await nothing_more(notifications)

    run(story())


def test_a_crash_and_a_restart_of_the_server_with_resume_is_exactly_once(world: World) -> None:
    results: list[Any] = []

    async def story() -> None:
        async with world.server() as server, world.agent("bob") as bob:
            position = await crash_after(world, server, bob, results)
        async with (
            world.server(),
            world.agent("alice", resume=position) as alice,
            alice.subscribe(SUBJECT, keep=True) as notifications,
        ):
            results.extend(await numbers(notifications, 5))
            await nothing_more(notifications)

    run(story())
    assert results == list(range(1, 11))


def test_closing_an_agent_while_the_server_is_away_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from wanderbus.client import agent as module

    monkeypatch.setattr(module, "CLOSE_S_MAX", 0.2)

    async def story() -> None:
        async with world.server():
            alice = await world.agent().__aenter__()
        publishing = asyncio.create_task(alice.publish(SUBJECT, {"n": 1}))
        await asyncio.sleep(0.01)
        await alice.close()
        with pytest.raises(Closed, match="was closed"):
            await publishing
        await alice.close()

    run(story())


def test_a_close_that_is_cancelled_lets_everything_go(world: World) -> None:
    async def story() -> None:
        async with world.server():
            alice = await world.agent().__aenter__()
        closing = asyncio.create_task(alice.close())
        await asyncio.sleep(0.01)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        with pytest.raises(Closed):
            await alice.publish(SUBJECT, {})
        assert alice._driver is None

    run(story())


def test_publishes_that_were_cancelled_do_not_stand_in_the_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events on their way stay on their way, and no more than the bound are: the order of the rest is kept."""
    monkeypatch.setattr(publishing, "UNSETTLED_MAX", 4)

    async def story() -> None:
        async with world.server():
            alice = await world.agent().__aenter__()
            notifications = await alice.subscribe(SUBJECT).__aenter__()
        begun = [asyncio.create_task(alice.publish(SUBJECT, {"n": value})) for value in range(8)]
        await asyncio.sleep(0.01)
        for each in begun:
            each.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        assert len(alice._publishing._open) == 4
        after = [asyncio.create_task(alice.publish(SUBJECT, {"n": value})) for value in range(10, 20)]
        await asyncio.sleep(0.01)
        assert len(alice._publishing._open) == 4
        async with world.server():
            await asyncio.gather(*after)
            assert await numbers(notifications, 14) == [0, 1, 2, 3, *range(10, 20)]
            await notifications.__aexit__(None, None, None)
            assert (len(alice._publishing._open), alice._publishing._slots._value) == (0, 4)
            await alice.close()

    run(story())


def test_closing_wakes_whoever_waits_to_publish(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from wanderbus.client import agent as module

    monkeypatch.setattr(publishing, "UNSETTLED_MAX", 2)
    monkeypatch.setattr(module, "CLOSE_S_MAX", 0.1)

    async def story() -> None:
        async with world.server():
            alice = await world.agent().__aenter__()
        begun = [asyncio.create_task(alice.publish(SUBJECT, {"n": value})) for value in range(9)]
        await asyncio.sleep(0.01)
        await alice.close()
        ends = await asyncio.gather(*begun, return_exceptions=True)
        assert {type(end) for end in ends} == {Closed}

    run(story())


def test_a_failed_disk_stops_acknowledgements(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def story() -> None:
        async with world.server() as server, world.agent() as alice:
            (kept,) = await publish(alice, 1)
            running = asyncio.create_task(server.run())
            with monkeypatch.context() as patch:
                patch.setattr(os, "fdatasync", fail)
                lost = asyncio.create_task(alice.publish(SUBJECT, {"n": 2}))
                with pytest.raises(
                    StorageError, match=r"writing to .* failed, nothing more is acknowledged: .*No space"
                ):
                    await running
            await asyncio.sleep(0.1)
            assert not lost.done()
            lost.cancel()
            await asyncio.gather(lost, return_exceptions=True)
            assert kept.number >= 0

    run(story())


def test_a_server_waits_longer_for_the_registrar_in_its_own_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is late when many devices return at once; the time for another SIP server does not end the start."""

    async def story() -> None:
        monkeypatch.setattr(broker_role, "START_S_MAX", 0.0)
        async with world.server():
            pass
        monkeypatch.setattr(broker_role, "LOCAL_START_S_MAX", 0.0)
        with pytest.raises(Unreachable, match="does not answer the broker"):
            async with world.server():
                pass

    run(story())


def test_a_disk_that_stays_full_at_the_start_is_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, entries: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def story() -> None:
        monkeypatch.setattr(event_log.EventLog, "append", fail)
        monkeypatch.setattr(storage, "START_S_MAX", 0.5)
        with pytest.raises(StorageError, match="free some space and start again: No space left on device"):
            async with world.server():
                pass

    run(story())


def test_a_state_file_may_be_moved_away(world: World) -> None:
    async def story() -> None:
        await fill(world)
        log_before = {path: path.read_bytes() for path in stored(world, "log").glob("*.seg")}
        for path in stored(world, "").glob("state.db*"):
            shutil.move(path, world.directory)
        await everything_is_there(world)
        assert all(path.read_bytes().startswith(before) for path, before in log_before.items())

    run(story())


def test_a_damaged_segment_is_refused_and_left_as_it_is(world: World) -> None:
    async def story() -> None:
        await fill(world)
        (segment,) = stored(world, "log").glob("*.seg")
        whole = segment.read_bytes()
        damaged = bytearray(whole)
        damaged[len(whole) // 2] ^= 0xFF
        segment.write_bytes(damaged)
        for _ in range(2):
            with pytest.raises(StorageError, match=rf"{segment.name} is damaged at byte \d+") as caught:
                async with world.server():
                    pass
            assert "\n" not in str(caught.value)
        assert segment.read_bytes() == damaged
        segment.write_bytes(whole)
        await everything_is_there(world)

    run(story())


def test_a_torn_tail_is_put_aside(world: World) -> None:
    """SPEC T-01."""

    async def story() -> None:
        await fill(world)
        (segment,) = stored(world, "log").glob("*.seg")
        with segment.open("ab") as file:
            file.write(b"\x40\x00\x00\x00half a record")
        await everything_is_there(world)
        assert segment.with_name(f"{segment.name}.torn").read_bytes() == b"\x40\x00\x00\x00half a record"

    run(story())


def test_a_data_directory_serves_one_server(world: World) -> None:
    async def story() -> None:
        async with world.server(), world.agent() as alice:
            with pytest.raises(StorageError, match="in use by another process"):
                async with world.server(port=0):
                    pass
            await publish(alice, 1)

    run(story())


def test_a_start_that_fails_leaves_nothing_behind(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one in the same process finds the data directory free."""

    def damaged(opened: server_files.ServerFiles, make: object) -> None:
        raise StateCorrupt("damaged")

    async def story() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(server_files.ServerFiles, "load_states", damaged)
            with pytest.raises(StateCorrupt):
                await world.server().__aenter__()
        async with world.server(), world.agent() as alice:
            await publish(alice, 1)

    run(story())
