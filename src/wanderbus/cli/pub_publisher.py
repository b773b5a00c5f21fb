"""Publisher of ``wanderbus pub``: directly, or through an outbox file. Results are printed in the order of input."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from wanderbus.cli.connection_options import leave
from wanderbus.cli.input import numbered_lines
from wanderbus.cli.output import print_error, print_json, print_line
from wanderbus.client.agent import Agent
from wanderbus.errors import ConfigurationError, EventError, Refused, Unreachable, WanderbusError
from wanderbus.event import HELD_BACK, Event, EventId

UNDER_WAY_MAX: Final = 256
"""Most events in flight, or in the outbox, before reading pauses."""

_LOOK_S: Final = 0.02
"""Pause between two checks of the outbox's size."""

_Begin: TypeAlias = Callable[[Event], Awaitable["asyncio.Task[Any]"]]


async def events_given(*events: Event) -> AsyncIterator[Event]:
    """Yield the events of the command line."""
    for event in events:
        yield event


async def events_of_input(read: Callable[[bytes], Event]) -> AsyncIterator[Event]:
    """Yield the event that ``read`` parses from each line of standard input.

    :raises ConfigurationError: names the first line that cannot be parsed
    """
    async for number, line in numbered_lines():
        try:
            event = read(line)
        except EventError as error:
            raise ConfigurationError(f"standard input, line {number}: {error}") from None
        yield event


async def publish_directly(
    agent: Agent, events: AsyncIterator[Event], *, json: bool, advertised: str | None = None
) -> None:
    """Publish while reading; print the id of each event once the broker has acknowledged it.

    The events of the subject ``advertised`` are advertised before.
    """

    async def begin(event: Event) -> asyncio.Task[EventId]:
        return asyncio.create_task(agent.publish(event.subject, event.attributes, published_us=event.published_us))

    def print_published(identity: EventId) -> None:
        if identity == HELD_BACK:
            print_json({"id": None}) if json else print_line("held back: no subscription matches it")
        elif json:
            print_json({"id": str(identity)})
        else:
            print_line(f"published {identity}")

    async with agent:
        try:
            async with agent.advertise(advertised) if advertised is not None else contextlib.nullcontext():
                await _in_order(events, begin, print_published)
        finally:
            await leave(agent)
            if agent.held_back:
                print_error(f"{agent.held_back} events were held back: no subscription matches them")


async def publish_through_outbox(
    agent: Agent,
    file: Path,
    events: AsyncIterator[Event] | None,
    *,
    json: bool,
    patience_s: float,
    advertised: str | None = None,
) -> None:
    """Store while reading, report each event once it is durable in ``file``, and return when all are acknowledged.

    Return also when the broker could not be reached for ``patience_s``; unpublished events stay in the file. With
    ``events`` None, publish only the events in the file. The events of the subject ``advertised`` are advertised as
    soon as the broker is reached, before they are published.

    :raises Refused: the broker refused some of them; the others are published
    :raises Unreachable: ``events`` is None and the broker cannot be reached
    """
    refusals = agent.outbox_refusals()
    left_behind = stored = 0

    async def begin(event: Event) -> asyncio.Task[None]:
        while agent.outbox.events >= UNDER_WAY_MAX and agent.status == "CONNECTED":
            await asyncio.sleep(_LOOK_S)
        publishing = agent.publish(event.subject, event.attributes, published_us=event.published_us, outbox=True)
        storing = asyncio.create_task(publishing)
        await asyncio.sleep(0)  # The task has to start before the outbox counts its event.
        return storing

    def print_stored(_: None) -> None:
        nonlocal stored
        stored += 1
        if json:
            print_json({"stored": stored})
        else:
            print_line(f"stored {stored}")

    try:
        async with agent:
            left_behind = agent.outbox.events
            connecting = asyncio.create_task(agent.connected())
            async with _advertised_when_reached(agent, advertised):
                try:
                    if events is not None:
                        await _in_order(events, begin, print_stored)
                finally:
                    await emptied(agent, connecting, patience_s, must=events is None)
    finally:
        if waiting := agent.outbox.events:
            print_error(
                f"{waiting} events are unpublished in {file}; the next 'wanderbus pub --outbox {file}' publishes them"
            )
    refused = [refusal.reason async for refusal in refusals]
    published = left_behind + stored - len(refused) - waiting
    if json:
        print_json({"published": published, "left_behind": left_behind, "refused": len(refused), "waiting": waiting})
    else:
        print_line(f"published {published}, of which {left_behind} were left from earlier")
    if refused:
        raise Refused(f"the broker refused {len(refused)} events; reason of the first: {refused[0]}")


@contextlib.asynccontextmanager
async def _advertised_when_reached(agent: Agent, subject: str | None) -> AsyncIterator[None]:
    """Advertise ``subject``, if given, without waiting; withdraw at the end.

    If the advertisement is refused, so are the events, with a reason of their own.
    """
    if subject is None:
        yield
        return
    advertisement = agent.advertise(subject)
    opening = asyncio.create_task(advertisement.__aenter__())
    try:
        yield
    finally:
        opening.cancel()
        with contextlib.suppress(asyncio.CancelledError, WanderbusError):
            await opening
        await advertisement.withdraw()


async def emptied(agent: Agent, connecting: asyncio.Task[None], patience_s: float, *, must: bool) -> None:
    """Wait until the outbox is empty, or the broker could not be reached for ``patience_s``."""
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
    """Begin each event while reading, and call ``done`` with the results in the same order."""
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
    """Begin each event; stop at the first invalid one, after all events before it have been begun."""
    try:
        async for event in events:
            await under_way.put(await begin(event))
    except WanderbusError:
        await under_way.put(None)
        raise
    await under_way.put(None)
