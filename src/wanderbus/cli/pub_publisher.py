"""How ``wanderbus pub`` publishes: directly, or through an outbox in a file. Results are told in the order of input."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from wanderbus.cli.connection_options import leave
from wanderbus.cli.input import numbered_lines
from wanderbus.cli.output import complain, say, say_json
from wanderbus.client.agent import Agent
from wanderbus.errors import ConfigurationError, EventError, Refused, Unreachable, WanderbusError
from wanderbus.event import Event, EventId

UNDER_WAY_MAX: Final = 256
"""Events under way at once, or in the outbox, at which no more are read."""

_LOOK_S: Final = 0.02
"""Pause between two looks at how much is in the outbox."""

_Begin: TypeAlias = Callable[[Event], Awaitable["asyncio.Task[Any]"]]


async def events_given(*events: Event) -> AsyncIterator[Event]:
    """Yield the events of the command line."""
    for event in events:
        yield event


async def events_of_input(read: Callable[[bytes], Event]) -> AsyncIterator[Event]:
    """Yield each line of standard input, as ``read`` reads it; :class:`ConfigurationError` names the first bad one."""
    async for number, line in numbered_lines():
        try:
            event = read(line)
        except EventError as error:
            raise ConfigurationError(f"standard input, line {number}: {error}") from None
        yield event


async def publish_directly(agent: Agent, events: AsyncIterator[Event], *, json: bool) -> None:
    """Publish while reading, and tell the id of each event when the broker has it."""

    async def begin(event: Event) -> asyncio.Task[EventId]:
        return asyncio.create_task(agent.publish(event.subject, event.attributes, published_us=event.published_us))

    def say_published(identity: EventId) -> None:
        if json:
            say_json({"id": str(identity)})
        else:
            say(f"published {identity}")

    async with agent:
        try:
            await _in_order(events, begin, say_published)
        finally:
            await leave(agent)


async def publish_through_outbox(
    agent: Agent, file: Path, events: AsyncIterator[Event] | None, *, json: bool, patience_s: float
) -> None:
    """Store while reading, report each event once it is safe in ``file``, and end when the broker has them all.

    Ends too when the broker cannot be reached for ``patience_s``: what was stored waits in the file. With ``events``
    None it publishes what waits there.

    :raises Refused: the broker declined some of them; the others are published
    :raises Unreachable: there was nothing to store, and nobody to publish to
    """
    refusals = agent.outbox_refusals()
    left_behind = stored = 0

    async def begin(event: Event) -> asyncio.Task[None]:
        while agent.outbox.events >= UNDER_WAY_MAX and agent.status == "CONNECTED":
            await asyncio.sleep(_LOOK_S)
        publishing = agent.publish(event.subject, event.attributes, published_us=event.published_us, outbox=True)
        storing = asyncio.create_task(publishing)
        await asyncio.sleep(0)  # Once it has begun, it counts in the size of the outbox.
        return storing

    def say_stored(_: None) -> None:
        nonlocal stored
        stored += 1
        if json:
            say_json({"stored": stored})
        else:
            say(f"stored {stored}")

    try:
        async with agent:
            left_behind = agent.outbox.events
            connecting = asyncio.create_task(agent.connected())
            try:
                if events is not None:
                    await _in_order(events, begin, say_stored)
            finally:
                await _emptied(agent, connecting, patience_s, must=events is None)
    finally:
        if waiting := agent.outbox.events:
            complain(f"{waiting} events wait in {file}; the next 'wanderbus pub --outbox {file}' publishes them")
    refused = [refusal.reason async for refusal in refusals]
    published = left_behind + stored - len(refused) - waiting
    if json:
        say_json({"published": published, "left_behind": left_behind, "refused": len(refused), "waiting": waiting})
    else:
        say(f"published {published}, of which {left_behind} had been left behind")
    if refused:
        raise Refused(f"the broker refused {len(refused)} events, the first one because {refused[0]}")


async def _emptied(agent: Agent, connecting: asyncio.Task[None], patience_s: float, *, must: bool) -> None:
    """Wait until the outbox is empty, or nobody could be reached for so long."""
    try:
        await connecting
    except Unreachable:
        if must:
            raise
        return
    away_s = 0.0
    while agent.outbox.events and away_s < patience_s:
        await asyncio.sleep(_LOOK_S)
        away_s = 0.0 if agent.status == "CONNECTED" else away_s + _LOOK_S


async def _in_order(events: AsyncIterator[Event], begin: _Begin, done: Callable[[Any], None]) -> None:
    """Begin each event while reading, and tell ``done`` the result of each in their order."""
    under_way: asyncio.Queue[asyncio.Task[Any] | None] = asyncio.Queue(UNDER_WAY_MAX)
    beginning = asyncio.create_task(_begin_each(events, begin, under_way))
    try:
        while (task := await under_way.get()) is not None:
            done(await task)
        await beginning
    finally:
        beginning.cancel()


async def _begin_each(
    events: AsyncIterator[Event], begin: _Begin, under_way: asyncio.Queue[asyncio.Task[Any] | None]
) -> None:
    """Begin each event; one that is at fault ends it, when those before have been begun."""
    try:
        async for event in events:
            await under_way.put(await begin(event))
    except WanderbusError:
        await under_way.put(None)
        raise
    await under_way.put(None)
