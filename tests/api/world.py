"""A server and agents on loopback, in one loop that must be empty at the end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import wanderbus
from wanderbus.client.merged import Merged
from wanderbus.client.notifications import Notifications
from wanderbus.errors import Closed
from wanderbus.event import Value
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.server.broker_role import BrokerRole

Returned = TypeVar("Returned")

PASSWORDS = {"alice": "secret", "bob": "hunter2"}
SUBJECT = "Departure"
STORY_S_MAX = 90.0


def run(story: Coroutine[Any, Any, Returned]) -> Returned:
    """Run a story; fail if it leaves tasks behind or an exception that was never retrieved."""
    faults: list[dict[str, Any]] = []
    gc.freeze()  # objects of earlier tests are no garbage of this one, and there may be millions of them

    async def watched() -> Returned:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        async with asyncio.timeout(STORY_S_MAX):
            result = await story
        gc.collect()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left
        return result

    try:
        result = asyncio.run(watched())
        gc.collect()
    finally:
        gc.unfreeze()
    assert faults == []
    return result


def service(server: wanderbus.Server) -> BrokerRole:
    """The broker of a server that was started."""
    assert server._broker is not None
    return server._broker


async def filters_settled(server: wanderbus.Server, filters: int) -> None:
    """Wait until so many filters of foreign domains, all together, count for the events of a server."""

    def counts() -> bool:
        rows = service(server).machine.federation_rows()
        return sum(each["filters"] for each in rows) == filters and all(
            each["is_settled"] for each in rows if each["filters"]
        )

    while not counts():
        await asyncio.sleep(0.01)


def files(server: wanderbus.Server) -> ServerFiles:
    """The data directory of a server that was started."""
    assert server._host is not None
    assert server._host.storage is not None
    return server._host.storage.files


class World:
    """Directory for the files of a test's servers and agents; a server that is started again keeps its port."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @asynccontextmanager
    async def server(self, **options: Any) -> AsyncIterator[wanderbus.Server]:
        settings: dict[str, Any] = {
            "domain": "localhost",
            "data_dir": self.directory / "data",
            "users": PASSWORDS,
            "port": self.port,
        }
        async with wanderbus.Server(**(settings | options)) as server:
            self.port = server.address[1]
            yield server

    def agent(self, name: str = "alice", *, device: str | None = None, **options: Any) -> wanderbus.Agent:
        settings: dict[str, Any] = {
            "password": PASSWORDS.get(name),
            "server": self.address,
            "state_dir": self.directory / (device or name),
        }
        return wanderbus.connect(f"sip:{name}@localhost", **(settings | options))


async def take(notifications: Notifications[Any], count: int) -> list[wanderbus.Notification]:
    """Take the next ``count`` and acknowledge them."""
    taken = [await anext(notifications) for _ in range(count)]
    notifications.ack()
    return taken


async def numbers(notifications: Notifications[Any], count: int) -> list[Value]:
    """Read the next ``count`` notifications and return their attribute n."""
    return [each.event["n"] for each in await take(notifications, count)]


async def publish(agent: wanderbus.Agent, *values: int) -> list[wanderbus.EventId]:
    return list(await asyncio.gather(*(agent.publish(SUBJECT, {"n": value}) for value in values)))


async def nothing_more(notifications: Notifications[Any] | Merged[Any], wait_s: float = 0.1) -> None:
    try:
        async with asyncio.timeout(wait_s):
            unwanted = await anext(notifications)
    except TimeoutError:
        return
    raise AssertionError(f"nothing should have come, this did: {unwanted}")


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def until_true(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():
        await asyncio.sleep(0.005)


def settled(server: wanderbus.Server) -> int:
    """Highest number that any device has taken of any subscription, according to the broker."""
    state = service(server).broker.state
    rows = [row for table in (state.subscriptions, state.tombstones) for row in table.values()]
    return max((number for row in rows for number in (row.settled, *(row.cursors or {}).values())), default=0)


def stored(world: World, name: str) -> Path:
    return world.directory / "data" / name


async def fill(world: World) -> None:
    """Leave a log and a state with a kept subscription and three notifications waiting in it."""
    async with world.server(), world.agent("bob") as bob:
        async with world.agent("alice") as alice, alice.subscribe(SUBJECT, keep=True):
            pass
        await publish(bob, 1, 2, 3)


async def everything_is_there(world: World) -> None:
    async with world.server(), world.agent("alice") as alice, alice.subscribe(SUBJECT, keep=True) as notifications:
        assert await numbers(notifications, 3) == [1, 2, 3]


def crash(agent: wanderbus.Agent) -> None:
    """End an agent as ``kill -9`` does: its sockets and its lock are released, and no message is sent."""
    agent._shut(Closed("crashed"))
