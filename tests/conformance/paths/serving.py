"""Servers and domains in this process that get a case: the subscriptions, then the events."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.api.event_domain import AWAY, READERS, USERS, Domain
from tests.api.world import World as ServerWorld
from tests.api.world import files, until
from tests.conformance.conditions import Engine, OwnEngine
from tests.conformance.paths.questions import Case
from tests.conformance.paths.queues import list_sessions, peek_all, subscribe_and_leave
from tests.conformance.paths.restricting import OPERATORS
from tests.conformance.paths.tracing import trace_all
from tests.conformance.paths.worlds import WAYS, World, ask_channels, ask_live, ask_past
from wanderbus import Server
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.runtime.files.domain_file import data_directory
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.server import storage

SEGMENT_BYTES = 2_000


class LaidOut(Domain):
    """A domain in a directory as ``wanderbus domain up`` makes it; a case has the same leaders each time."""

    def __init__(self, directory: Path, seed: int, *, keys: str, tables: str) -> None:
        """Make the file of the domain; ``seed`` chooses the leaders."""
        super().__init__(directory, keys=keys, tables=tables)
        text = self.file.read_text("utf-8")
        self.file.write_text(re.sub(r'hash_key = ".*"', f'hash_key = "{seed:064x}"', text), "utf-8")

    def data_dir(self, name: str) -> Path:
        """Return the data directory of a server."""
        return data_directory(self.directory, name)


async def served(directory: Path, case: Case, engine: Engine | None = None) -> World:
    """Put a case to one server, whose events ``engine`` matches; a server has no parents of subjects."""
    used = engine or OwnEngine()
    place = ServerWorld(directory)
    world = World(case._replace(parents={}), {"wb": directory / "data"})
    used.start(directory / "data")
    async with AsyncExitStack() as stack:
        stack.callback(used.kill)
        stack.enter_context(small_segments())
        broker = BrokerConfig(spark_subjects=used.subjects)
        server = await stack.enter_async_context(place.server(broker=broker, users=USERS, restrictions=OPERATORS))
        stack.push_async_callback(list_sessions, world)
        bob = await stack.enter_async_context(place.agent("bob"))
        readers = {"wb": await stack.enter_async_context(place.agent())}
        if engine is None:
            agent = place.agent("erin", password=USERS["erin"])
            await subscribe_and_leave(world, {"wb": server}, {"wb": "erin"}, {"wb": agent})
        await ask_live(world, bob, readers, tuple(WAYS) if engine is None else ("live",))
        if engine is None:
            await peek_all(world, {"wb": "erin"})
            await ask_past(world, readers, "since, log")
            await ask_channels(world, readers)
    return world


def small_segments() -> AbstractContextManager[Any]:
    """Let the log of a case have several segments, so that it can lose the first ones."""
    defaults = ServerFiles.open.__kwdefaults__
    assert defaults is not None
    return patch.dict(defaults, segment_bytes_max=SEGMENT_BYTES)


async def served_by_domain(directory: Path, case: Case, model: str) -> World:
    """Put a case to a domain of three servers: bob publishes at the first one, and there is a reader at each."""
    parents = "".join(f'{_quoted(child)} = "{parent}"\n' for child, parent in case.parents.items())
    domain = LaidOut(directory, case.seed, keys=f'model = "{model}"', tables=f"[parents]\n{parents}")
    world = World(case, {server: domain.data_dir(server) for server in READERS}, domain)
    async with AsyncExitStack() as stack:
        stack.enter_context(small_segments())
        broker = BrokerConfig(roles={"alice": "operator"})
        servers = await stack.enter_async_context(domain.servers(broker=broker, restrictions=OPERATORS))
        stack.push_async_callback(list_sessions, world)
        bob = await stack.enter_async_context(domain.agent("s1", "bob"))
        readers = {
            server: await stack.enter_async_context(domain.agent(server, user)) for server, user in READERS.items()
        }
        leaving = {server: domain.agent(server, user) for server, user in AWAY.items()}
        await subscribe_and_leave(world, servers, AWAY, leaving)
        await ask_live(world, bob, readers, ("live",), during=trace_all if model == "ordered" else None)
        await peek_all(world, AWAY)
        await ask_past(world, readers, "since, log")
        await ask_channels(world, readers)
    return world


async def ask_lake(world: World, directory: Path, lake: Path) -> None:
    """Start copies of a server or of a domain in ``directory``, whose logs have only what the lake has not, and ask.

    The lake gives the earlier events.
    """
    from wanderbus.pipeline.replay import history_service  # it needs Spark's packages

    async with AsyncExitStack() as stack:
        stack.enter_context(patch.multiple(storage, SAVE_S=0.02, RETAIN_S=0.02))
        options: dict[str, Any] = {"log_keep_bytes": 0, "restrictions": OPERATORS}
        if world.domain is None:
            stack.enter_context(history_service(directory / "data", lake))
            place = ServerWorld(directory)
            servers = {"wb": await stack.enter_async_context(place.server(**options))}
            agents = {"wb": place.agent()}
        else:
            domain = world.domain.copied(directory)
            for name in world.logs:
                stack.enter_context(history_service(domain.data_dir(name), lake))
            servers = await stack.enter_async_context(domain.servers(**options))
            agents = {name: domain.agent(name, user) for name, user in READERS.items()}
        for name, server in servers.items():
            await until(partial(_has_lost, server, world.first_place(name)))
        readers = {name: await stack.enter_async_context(agent) for name, agent in agents.items()}
        await ask_past(world, readers, "since, lake")


def _has_lost(server: Server, offset: int) -> bool:
    """Return whether the log of a server no longer has a record."""
    return files(server).log.oldest_offset > offset


def _quoted(key: str) -> str:
    return f'"{key}"'
