"""An application's hooks for the times without the broker (SPEC G-24)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import wanderbus
from tests.api.world import SUBJECT, World, numbers, run, until
from wanderbus import Disconnection
from wanderbus.client.disconnection_hooks import CHANGES_MAX, DisconnectionHooks, WhileAway
from wanderbus.client.reports import OutboxSize
from wanderbus.errors import ConfigurationError, Unreachable
from wanderbus.parameters.transports import RudpConfig

HASTY = RudpConfig(initial_timeout_s=0.05, retries_max=2)
NOTHING = OutboxSize()


def away_and_back(hooks: DisconnectionHooks, reason: str, at_us: int = 1) -> None:
    hooks.disconnected(reason, at_us, 0, NOTHING)
    hooks.connected(0, NOTHING)


def test_g24_an_application_handles_a_disconnection_its_own_way(world: World) -> None:
    """It refuses events without an outbox while away, keeps the rest, and reports how long it was away."""
    seen: list[Disconnection] = []
    back = asyncio.Event()

    async def on_disconnected(change: Disconnection) -> WhileAway:
        seen.append(change)
        return "error"

    async def on_reconnected(change: Disconnection) -> None:
        seen.append(change)
        back.set()

    async def story() -> None:
        hooks: dict[str, Any] = {"on_disconnected": on_disconnected, "on_reconnected": on_reconnected}
        async with world.server():
            alice = await world.agent(keepalive_s=0.1, rudp=HASTY, **hooks).__aenter__()
            assert await alice.publish(SUBJECT, {"n": 1}) is not None
            assert seen == []
        await until(lambda: alice._hooks.while_away == "error")
        with pytest.raises(Unreachable, match="cannot be reached now"):
            await alice.publish(SUBJECT, {"n": 2})
        await alice.publish(SUBJECT, {"n": 3}, outbox=True)
        async with world.server(), world.agent("bob") as bob, bob.subscribe(SUBJECT) as notifications:
            assert await numbers(notifications, 1) == [3]
            await back.wait()
            assert await alice.publish(SUBJECT, {"n": 4}) is not None
            assert await numbers(notifications, 1) == [4]
            await alice.close()

    run(story())
    went, came = seen
    assert (went.reason, went.since_us) == (came.reason, came.since_us)
    assert "the broker" in went.reason
    assert went.lasted_s is None
    assert came.lasted_s is not None
    assert 0 < came.lasted_s < 20


def test_g24_hooks_are_called_in_order_one_at_a_time_and_hold_up_nobody() -> None:
    seen: list[str] = []
    release = asyncio.Event()

    async def on_disconnected(change: Disconnection) -> None:
        seen.append(f"{change.reason} begins")
        await release.wait()
        seen.append(f"{change.reason} seen")

    async def on_reconnected(change: Disconnection) -> None:
        seen.append(f"{change.reason} over")

    async def story() -> None:
        hooks = DisconnectionHooks(on_disconnected, on_reconnected)
        hooks.connected(0, NOTHING)
        away_and_back(hooks, "first")
        hooks.connected(0, NOTHING)
        away_and_back(hooks, "second")
        await until(lambda: seen)
        assert seen == ["first begins"]
        release.set()
        await until(lambda: "second over" in seen)

    run(story())
    assert seen == [f"{time} {what}" for time in ("first", "second") for what in ("begins", "seen", "over")]


@pytest.mark.parametrize("raising", [True, False], ids=["raises", "returns what it may not"])
def test_g24_a_hook_that_fails_is_counted_and_the_next_is_called(
    raising: bool, caplog: pytest.LogCaptureFixture
) -> None:
    back: list[Disconnection] = []

    async def on_disconnected(_change: Disconnection) -> Any:
        if raising:
            raise ZeroDivisionError("a fault of the application")
        return "panic"

    async def on_reconnected(change: Disconnection) -> None:
        back.append(change)

    async def story() -> None:
        hooks = DisconnectionHooks(on_disconnected, on_reconnected)
        hooks.disconnected("once", 1, 0, NOTHING)
        await until(lambda: hooks.failures)
        assert hooks.while_away == "wait"
        hooks.connected(0, NOTHING)
        await until(lambda: back)
        assert hooks.failures == 1

    run(story())
    assert ("a fault of the application" if raising else "returned 'panic'") in caplog.text


def test_g24_a_decision_that_comes_too_late_holds_no_longer() -> None:
    release = asyncio.Event()

    async def on_disconnected(_change: Disconnection) -> WhileAway:
        await release.wait()
        return "error"

    async def story() -> None:
        hooks = DisconnectionHooks(on_disconnected)
        away_and_back(hooks, "brief")
        release.set()
        assert hooks._running is not None
        await hooks._running
        assert hooks.while_away == "wait"
        hooks.disconnected("long", 2, 0, NOTHING)
        await until(lambda: hooks.while_away == "error")
        hooks.connected(0, NOTHING)
        assert hooks.while_away == "wait"

    run(story())


def test_g24_a_hook_that_never_returns_costs_bounded_memory_and_ends_with_the_agent() -> None:
    async def on_disconnected(_change: Disconnection) -> None:
        await asyncio.Event().wait()

    async def story() -> None:
        hooks = DisconnectionHooks(on_disconnected)
        for at_us in range(3 * CHANGES_MAX):
            away_and_back(hooks, "again", at_us)
            await asyncio.sleep(0)
        assert len(hooks._changes) == CHANGES_MAX
        hooks.close()
        await until(lambda: hooks._running is not None and hooks._running.cancelled())

    run(story())


def test_g24_a_hook_receives_the_waiting_requests() -> None:
    seen: list[tuple[int, OutboxSize]] = []

    async def note(change: Disconnection) -> None:
        seen.append((change.publishes, change.outbox))

    async def story() -> None:
        hooks = DisconnectionHooks(note, note)
        hooks.disconnected("r", 1, 7, OutboxSize(2, 100))
        hooks.connected(0, OutboxSize(3, 150))
        await until(lambda: len(seen) == 2)

    run(story())
    assert seen == [(7, OutboxSize(2, 100)), (0, OutboxSize(3, 150))]


def test_g24_leaving_is_no_disconnection(world: World) -> None:
    seen: list[Disconnection] = []

    async def note(change: Disconnection) -> None:
        seen.append(change)

    async def story() -> None:
        async with world.server():
            alice = await world.agent(on_disconnected=note, on_reconnected=note).__aenter__()
            changes = alice.changes()
            await alice.close()
            assert [change.status async for change in changes] == ["DISCONNECTED"]
            await asyncio.sleep(0)

    run(story())
    assert seen == []


def test_the_original_eci_has_no_hooks() -> None:
    async def hook(_change: Disconnection) -> None:
        pass

    with pytest.raises(ConfigurationError, match="does not detect disconnections; leave out on_disconnected"):
        wanderbus.connect("eci://127.0.0.1:1", on_reconnected=hook)
