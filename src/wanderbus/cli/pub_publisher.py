"""Publisher of ``wanderbus pub``: directly, or through an outbox file. Results are printed in the order of input."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from wanderbus.cli.connection_options import leave
from wanderbus.cli.input import numbered_lines
from wanderbus.cli.output import (
    OutputFailed,
    counted,
    print_error,
    print_json,
    print_line,
    print_progress,
    print_progress_json,
)
from wanderbus.client.agent import Agent
from wanderbus.client.answer_wait import AnswerWait, NoAnswer
from wanderbus.errors import ConfigurationError, EventError, Refused, Unreachable, WanderbusError
from wanderbus.event import HELD_BACK, Event, EventId
from wanderbus.limits import HELD_BYTES_MAX, HELD_EVENT_BYTES
from wanderbus.protocol import size_of

UNDER_WAY_MAX: Final = 256
"""Most events in flight, or in the outbox, before reading pauses."""

IN_FLIGHT_BYTES_MAX: Final = HELD_BYTES_MAX * 7 // 8
"""Bytes in flight without an outbox, counted as a leader counts what waits there, which is slightly more with times."""

_LOOK_S: Final = 0.02
"""Pause between two checks of the outbox's size."""

_Begin: TypeAlias = Callable[[Event], Awaitable["asyncio.Task[Any]"]]


@dataclass(frozen=True)
class PublishResults:
    """Output of the command: a line for each event, or a summary at the end; as text or as JSON."""

    as_json: bool
    is_for_each: bool


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


def _answer_wait(agent: Agent, json: bool, limit_s: float | None) -> AnswerWait:
    note = print_progress_json if json else (lambda _, line: print_progress(line))
    return AnswerWait(note, limit_s, lambda: agent._publishing.wait_reason)


async def publish_directly(
    agent: Agent,
    events: AsyncIterator[Event],
    result: PublishResults,
    *,
    advertised: str | None = None,
    limit_s: float | None = None,
) -> None:
    """Publish while reading; print the id of each event once the broker has acknowledged it, or a summary at the end.

    No more is in flight than the leader of a channel lets wait: it would refuse the rest, and the command would end.

    The events of the subject ``advertised`` are advertised before.

    :raises NoAnswer: the broker has acknowledged nothing for ``limit_s``
    """
    wait = _answer_wait(agent, result.as_json, limit_s)

    in_flight = _InFlight()

    async def begin(event: Event) -> asyncio.Task[EventId]:
        size = await in_flight.room_for(event)
        publishing = agent.publish(event.subject, event.attributes, published_us=event.published_us)
        task = asyncio.create_task(publishing)
        task.add_done_callback(lambda _: in_flight.answered(size))
        return task

    published, is_complete = 0, False

    def print_published(identity: EventId) -> None:
        nonlocal published
        published += identity != HELD_BACK
        if not result.is_for_each:
            return
        if identity == HELD_BACK:
            print_json({"id": None}) if result.as_json else print_line("held back: no subscription matches it")
        elif result.as_json:
            print_json({"id": str(identity)})
        else:
            print_line(f"published {identity}")

    async with agent:
        try:
            async with agent.advertise(advertised) if advertised is not None else contextlib.nullcontext():
                await _in_order(events, begin, print_published, "were published", wait)
            is_complete = True
        finally:
            await leave(agent)
            if not result.is_for_each and (is_complete or published > 0):
                line = f"published {counted(published, 'event')}"
                _print_summary(result, line, published=published, held_back=agent.held_back)
            if agent.held_back:
                print_error(f"{agent.held_back} events were held back: no subscription matches them")


class _InFlight:
    """Bytes of the events without an answer, as a leader counts those that wait."""

    def __init__(self) -> None:
        self._bytes = 0
        self._has_room = asyncio.Event()

    async def room_for(self, event: Event) -> int:
        """Wait until one more event may be in flight; return its size."""
        while self._bytes >= IN_FLIGHT_BYTES_MAX:
            self._has_room.clear()
            await self._has_room.wait()
        size = HELD_EVENT_BYTES + size_of(event)
        self._bytes += size
        return size

    def answered(self, size: int) -> None:
        """Make room: an event of this size has its answer."""
        self._bytes -= size
        self._has_room.set()


async def publish_through_outbox(
    agent: Agent,
    file: Path,
    events: AsyncIterator[Event] | None,
    result: PublishResults,
    *,
    patience_s: float,
    advertised: str | None = None,
    limit_s: float | None = None,
) -> None:
    """Store while reading, and return when all are acknowledged; ``result`` can report each event once it is stored.

    Return also when the broker could not be reached for ``patience_s``; unpublished events stay in the file. With
    ``events`` None, publish only the events in the file. The events of the subject ``advertised`` are advertised as
    soon as the broker is reached, before they are published.

    :raises Refused: the broker refused some of them; the others are published
    :raises Unreachable: ``events`` is None and the broker cannot be reached
    :raises NoAnswer: the broker has acknowledged nothing for ``limit_s``
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
        if not result.is_for_each:
            return
        if result.as_json:
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
                        await _in_order(events, begin, print_stored, "were stored")
                finally:
                    wait = _answer_wait(agent, result.as_json, limit_s)
                    await emptied(agent, connecting, patience_s, must=events is None, wait=wait)
    finally:
        if waiting := agent.outbox.events:
            print_error(
                f"{waiting} events are unpublished in {file}; the next 'wanderbus pub --outbox {file}' publishes them"
            )
    refused = [refusal.reason async for refusal in refusals]
    published = left_behind + stored - len(refused) - waiting
    figures = {"published": published, "left_behind": left_behind, "refused": len(refused), "waiting": waiting}
    _print_summary(result, f"published {published}, of which {left_behind} were left from earlier", **figures)
    if refused:
        raise Refused(f"the broker refused {len(refused)} events; reason of the first: {refused[0]}")


def _print_summary(result: PublishResults, line: str, **figures: int) -> None:
    """Print the last line of the command; what it says is in the error, too, if it cannot be printed."""
    try:
        if result.as_json:
            print_json(figures)
        else:
            print_line(line)
    except OutputFailed as failed:
        raise OutputFailed(f"{failed}; {line}") from None


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


async def emptied(
    agent: Agent, connecting: asyncio.Task[None], patience_s: float, *, must: bool, wait: AnswerWait | None = None
) -> None:
    """Wait until the outbox is empty, or the broker could not be reached for ``patience_s``.

    :raises NoAnswer: the broker was reached, and has acknowledged nothing up to the limit of ``wait``
    """
    try:
        await connecting
    except Unreachable:
        if must:
            raise
        return
    away_s, before = 0.0, agent.outbox.events
    wait = wait or AnswerWait(lambda *_: None, None)
    wait.progressed()
    while agent.outbox.events and away_s < patience_s:
        await asyncio.sleep(_LOOK_S)
        away_s = 0.0 if agent.status == "CONNECTED" else away_s + _LOOK_S
        if away_s == 0.0 and agent.outbox.events == before:
            wait.check("publishes")
        else:
            wait.progressed()
        before = agent.outbox.events
    wait.progressed()


async def _in_order(
    events: AsyncIterator[Event],
    begin: _Begin,
    done: Callable[[Any], None],
    outcome: str,
    wait: AnswerWait | None = None,
) -> None:
    """Begin each event while reading, and call ``done`` with the results in the same order.

    If ``done`` cannot print, no further event begins; the error says for how many events the work was done.
    """
    under_way: asyncio.Queue[asyncio.Task[Any] | None] = asyncio.Queue(UNDER_WAY_MAX)
    begun: collections.deque[asyncio.Task[Any]] = collections.deque()
    beginning = asyncio.create_task(_begin_each(events, begin, under_way, begun))
    finished = 0
    try:
        while (task := await under_way.get()) is not None:
            result = await (task if wait is None else wait.until(task, "a publish"))
            begun.popleft()
            finished += 1
            done(result)
        await beginning
    except NoAnswer as failed:
        for each in begun:
            each.cancel()
        sent = f"{counted(len(begun), 'more event')} may still appear, and twice if published again"
        raise NoAnswer(f"{failed}; the first {counted(finished, 'event')} of the input {outcome}; {sent}") from None
    except OutputFailed as failed:
        beginning.cancel()
        await asyncio.wait([beginning])
        others = await asyncio.gather(*begun, return_exceptions=True)
        finished += sum(1 for each in others if not isinstance(each, BaseException))
        raise OutputFailed(f"{failed}; the first {counted(finished, 'event')} of the input {outcome}") from None
    finally:
        beginning.cancel()


async def _begin_each(
    events: AsyncIterator[Event],
    begin: _Begin,
    under_way: asyncio.Queue[asyncio.Task[Any] | None],
    begun: collections.deque[asyncio.Task[Any]],
) -> None:
    """Begin each event; stop at the first invalid one, after all events before it have been begun."""
    try:
        async for event in events:
            begun.append(await begin(event))
            await under_way.put(begun[-1])
    except WanderbusError:
        await under_way.put(None)
        raise
    await under_way.put(None)
