"""Worlds that answer live: real servers in this process get the subscriptions and then the events of a case.

What is left of them, logs and the file of a domain, is what the paths of the past read.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tests.api.event_domain import Domain
from tests.conformance.paths.questions import Case, Question, shown
from tests.conformance.paths.reference import Answer, Refusal, right_answer, without_ends
from wanderbus import Agent
from wanderbus.channel_events import ChannelEvent
from wanderbus.client.notifications import Notifications
from wanderbus.errors import WanderbusError
from wanderbus.event import Event, EventId, Notification
from wanderbus.filters import xml
from wanderbus.records import Arrived, Published, decode_record
from wanderbus.runtime.log.log_reader import read_log
from wanderbus.runtime.segment_files import end_of_log
from wanderbus.subscription import PATTERN

NO_XML = re.compile("[^\\t\\n\\r\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""Characters that XML does not have."""

ANSWER_S_MAX = 20.0
QUIET_S = 0.3


class World:
    """Live answers to the questions of a case, and the places in which its past is."""

    def __init__(self, case: Case, logs: dict[str, Path], domain: Domain | None = None) -> None:
        self.case = case
        self.logs = logs
        """Data directory of each server."""
        self.domain = domain
        self.ids: list[EventId] = []
        """Ids of the events of the case."""
        self.answers: dict[tuple[str, str, str], Answer] = {}
        """Answers by the way in which they came, the place of the subscriber, and the question."""
        self.notifications: dict[tuple[str, str, str], Sequence[Notification]] = {}
        """Notifications of the live answers, by the same."""
        self.subscriptions: dict[tuple[str, str], str] = {}
        """Ids of the live subscriptions by place and question."""
        self.waiting: dict[tuple[str, str], int] = {}
        """Notifications that wait for the users who are away, by the same."""
        self.sessions: list[dict[str, Any]] = []
        """Sessions of all servers at their end."""
        self.away: dict[tuple[str, str], str] = {}
        """Ids of the subscriptions of the users who are away, by the same."""

    def number(self, identity: EventId | str) -> int:
        """Return the number in the case of the event with an id."""
        return self._numbers[str(identity)]

    def number_at(self, offset: int, server: str | None = None) -> int:
        """Return the number in the case of the event at an offset of the log of a server, of the only one by default.

        There the event was accepted, or it arrived from another server.
        """
        return self._places[server or next(iter(self.logs)), offset]

    def first_place(self, server: str) -> int:
        """Return the first offset of an event in the log of a server."""
        return min(offset for (name, offset), _ in self._places.items() if name == server)

    def leader(self, asked: Question) -> str:
        """Return the server that leads the channel of a question."""
        return next(iter(self.logs)) if self.domain is None else self.domain.leader(asked.subject)

    def elsewhere(self, asked: Question) -> str:
        """Return a server that does not lead the channel of a question."""
        return next(each for each in reversed(self.logs) if each != self.leader(asked))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {str(each): number for number, each in enumerate(self.ids)}

    @cached_property
    def _places(self) -> dict[tuple[str, int], int]:
        found = {}
        for server, data in self.logs.items():
            log = data / "log"
            for frame in read_log(log, 0, end_of_log(log)):
                match decode_record(frame.payload):
                    case Published(acceptance=had) | Arrived(arrival=had):
                        found[server, frame.offset] = self.number(had.id)
        return found


class Reader(NamedTuple):
    """A subscription that waits for its answer; ``taken`` are its notifications so far."""

    way: str
    place: str
    asked: Question
    notifications: Notifications[Any]
    taken: list[Notification]


WAYS: Mapping[str, Mapping[str, Any]] = {"live": {}, "live XML": {"format": "xml"}}
"""Options of the live subscriptions by the way in which they are answered."""


async def ask_live(
    world: World,
    bob: Agent,
    readers: Mapping[str, Agent],
    ways: Sequence[str],
    during: Callable[[World], Awaitable[None]] | None = None,
) -> None:
    """Subscribe with every question at every place, publish the events, and keep the answers; then await ``during``."""
    async with AsyncExitStack() as stack:
        opened = [
            reader
            for way in ways
            for place, agent in readers.items()
            for asked in world.case.questions
            if (reader := await _opened(world, stack, way, place, agent, asked, WAYS[way])) is not None
        ]
        for each in opened:
            if each.way == "live":
                world.subscriptions[each.place, each.asked.name] = each.notifications.subscription.id
        for number, event in enumerate(world.case.events):
            if number == world.case.half:
                await _restrict(world, opened, readers)
            world.ids.append(await bob.publish(event.subject, event.attributes))
        await _collect(world, opened)
        if during is not None:
            await during(world)


async def _restrict(world: World, opened: Sequence[Reader], readers: Mapping[str, Agent]) -> None:
    """Give other restrictions to subscriptions that get them later, once they have the first half of their answers."""
    for each in opened:
        if each.asked.later is not None:
            right = right_answer(world.case, each.asked, "numbers")
            assert isinstance(right, list)
            await _take(each, len([number for number in right if number < world.case.half]))
            await readers[each.place].restrict(each.notifications.subscription.id, each.asked.later)


async def ask_channels(world: World, readers: Mapping[str, Agent]) -> None:
    """Ask for the history of the channel of each question to every event, and keep the answers."""
    for place, agent in readers.items():
        for asked in world.case.questions:
            if asked.expression:
                continue
            try:
                found = [each async for each in agent.history(asked.subject)]
                events = [each for each in found if isinstance(each, ChannelEvent)]
                answer: Answer = [(world.number(each.id), shown(each.event)) for each in events]
            except WanderbusError as error:
                answer = Refusal(str(error))
            world.answers["channel", place, asked.name] = answer


async def ask_past(world: World, readers: Mapping[str, Agent], way: str) -> None:
    """Subscribe with every question from the first event on, and keep the answers."""
    async with AsyncExitStack() as stack:
        opened = [
            reader
            for place, agent in readers.items()
            for asked in world.case.questions
            if (reader := await _opened(world, stack, way, place, agent, asked, {"since": "earliest"})) is not None
        ]
        await _collect(world, opened)


async def _opened(
    world: World,
    stack: AsyncExitStack,
    way: str,
    place: str,
    agent: Agent,
    asked: Question,
    options: Mapping[str, Any],
) -> Reader | None:
    notifications = subscribed(agent, asked, **options)
    try:
        await stack.enter_async_context(notifications)
    except WanderbusError as error:
        world.answers[way, place, asked.name] = Refusal(str(error))
        return None
    return Reader(way, place, asked, notifications, [])


def subscribed(agent: Agent, asked: Question, **options: Any) -> Notifications[Any]:
    """Return the notifications of a subscription with a question, to be opened."""
    if asked.language == PATTERN:
        return agent.subscribe(pattern=asked.expression, **options)
    return agent.subscribe(
        asked.subject, asked.expression, language=asked.language, restrictions=asked.restrictions, **options
    )


async def _collect(world: World, opened: Sequence[Reader]) -> None:
    """Read the answers; each ends when it is as long as the right one and nothing more comes."""
    await asyncio.gather(*(_take(each, expected(world, each.asked), QUIET_S) for each in opened))
    for each in opened:
        world.answers[each.way, each.place, each.asked.name] = answer_of(
            world, each.asked, [(one.id, _event(one, each.way)) for one in each.taken]
        )
        world.notifications[each.way, each.place, each.asked.name] = each.taken


async def _take(reader: Reader, count: int, quiet_s: float | None = None) -> None:
    """Take notifications until a subscription has ``count`` of them, and then until none comes for ``quiet_s``."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + ANSWER_S_MAX
    while len(reader.taken) < count or quiet_s is not None:
        wait_s = until_s - loop.time() if len(reader.taken) < count else quiet_s
        try:
            async with asyncio.timeout(wait_s):
                reader.taken.append(await anext(reader.notifications))
        except TimeoutError:
            return


def expected(world: World, asked: Question, *, is_away: bool = False) -> int:
    """Return the number of notifications that a live subscription with a question gets; ``is_away`` if its user is."""
    if asked.language == PATTERN and world.case.is_of_the_future:
        return 0
    right = right_answer(world.case, asked, "events", is_away=is_away)
    assert isinstance(right, list)
    return len(right)


def answer_of(world: World, asked: Question, found: Sequence[tuple[EventId | str, Event]]) -> Answer:
    """Return the answer that consists of some events with their ids."""
    if asked.language == PATTERN:
        named = [event["events"] for _, event in found]
        taken = [tuple(map(world.number, each if isinstance(each, list) else [each])) for each in named]
        return without_ends(world.case, taken)
    return [(world.number(identity), shown(event)) for identity, event in found]


def _event(notification: Notification, way: str) -> Event:
    """Return the event of a notification, or the one that its XML has."""
    if way != "live XML" or (notification.xml is None and not is_for_xml(notification.event)):
        return notification.event
    assert notification.xml is not None, notification
    return xml.read_notification(notification.xml).event


def is_for_xml(event: Event) -> bool:
    """Return whether XML has all characters of an event."""
    values = [each for value in event.attributes.values() for each in (value if isinstance(value, list) else [value])]
    texts = [event.subject, *event.attributes, *(each for each in values if isinstance(each, str))]
    return not any(map(NO_XML.search, texts))
