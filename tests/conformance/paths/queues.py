"""Users who are away, and what ``wanderbus peek`` shows of their queues."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from tests.api.world import service, until
from tests.conformance.paths.commands import event_of
from tests.conformance.paths.reference import Refusal
from tests.conformance.paths.running import rows_beside
from tests.conformance.paths.worlds import ANSWER_S_MAX, World, answer_of, expected, subscribed
from wanderbus import Agent, Server
from wanderbus.errors import WanderbusError
from wanderbus.subscription import EVERY_SUBJECT, QueuePolicy

EVERYTHING = "exists n or not exists n"
"""Filter of a subscription of every user who is away."""

KEPT_MAX = 2
"""Notifications that its queue keeps."""

Users = Mapping[str, str]
"""The user who is away of each server."""


async def subscribe_and_leave(
    world: World, servers: Mapping[str, Server], users: Users, agents: Mapping[str, Agent]
) -> None:
    """Subscribe with every question for a user of each server, and disconnect; return once the servers have noticed."""
    for place, agent in agents.items():
        async with agent:
            for asked in world.case.questions:
                try:
                    async with subscribed(agent, asked, keep=True) as notifications:
                        world.away[place, asked.name] = notifications.subscription.id
                except WanderbusError as error:
                    world.answers["peek", place, asked.name] = Refusal(str(error))
            async with agent.subscribe(EVERY_SUBJECT, EVERYTHING, keep=True, queue=QueuePolicy(KEPT_MAX)):
                pass  # it loses what the counts have as dropped
        await until(partial(_is_away, servers[place], users[place]))


def _is_away(server: Server, user: str) -> bool:
    return service(server).broker._links.status(f"sip:{user}@localhost") == "DISCONNECTED"


async def peek_all(world: World, users: Users) -> None:
    """Keep what waits for the users, by ``wanderbus peek`` in another thread; it is asked again until all is there."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + ANSWER_S_MAX
    while any([not await _peeked(world, place, user) for place, user in users.items()]):
        if loop.time() > until_s:
            return


async def _peeked(world: World, place: str, user: str) -> bool:
    """Keep the answers to the questions of a user; return whether they are long enough."""
    words = ["peek", f"sip:{user}@localhost", "--session", "default", "--count", "10000", "--json"]
    rows = await rows_beside("operator.queue_commands", *words, "--data-dir", str(world.logs[place]))
    is_complete = True
    for asked in world.case.questions:
        if (identity := world.away.get((place, asked.name))) is None:
            continue
        if isinstance(rows, Refusal):
            world.answers["peek", place, asked.name] = rows
            continue
        found = [(row["id"], event_of(row)) for row in rows if identity in row.get("subscriptions", ())]
        world.waiting[place, asked.name] = len(found)
        world.answers["peek", place, asked.name] = answer_of(world, asked, found)
        is_complete &= len(found) >= expected(world, asked, is_away=True)
    return is_complete


async def list_sessions(world: World) -> None:
    """Keep what ``wanderbus sessions`` shows of all servers, once the last agent has left."""
    for data in world.logs.values():
        rows = await rows_beside("operator.listings", "sessions", "--data-dir", str(data), "--json")
        assert not isinstance(rows, Refusal), rows
        world.sessions += rows
