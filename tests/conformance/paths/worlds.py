"""Worlds that answer live: real servers in this process get the subscriptions and then the events of a case.

What is left of them, logs and the file of a domain, is what the paths of the past read.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.api.event_domain import READERS, Domain
from tests.api.world import PASSWORDS, files, until
from tests.api.world import World as ServerWorld
from tests.conformance.conditions import Engine, OwnEngine
from tests.conformance.paths.questions import Case, Question, shown
from tests.conformance.paths.reference import Answer, Refusal, right_answer, without_ends
from tests.conformance.paths.running import rows_of
from wanderbus import Agent, event_text
from wanderbus.channel_events import ChannelEvent
from wanderbus.client.notifications import Notifications
from wanderbus.errors import WanderbusError
from wanderbus.event import Event, EventId, Notification
from wanderbus.filters import xml
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.records import Arrived, Published, decode_record
from wanderbus.runtime.files.domain_file import data_directory
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.runtime.log.log_reader import read_log
from wanderbus.runtime.segment_files import end_of_log
from wanderbus.server import storage
from wanderbus.subscription import PATTERN

NO_XML = re.compile("[^\\t\\n\\r\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""Characters that XML does not have."""

SEGMENT_BYTES = 2_000

ANSWER_S_MAX = 20.0
QUIET_S = 0.3


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

    def number(self, identity: EventId | str) -> int:
        """Return the number in the case of the event with an id."""
        return self._numbers[str(identity)]

    def number_at(self, offset: int, server: str | None = None) -> int:
        """Return the number in the case of the event at an offset of the log of a server, of the only one by default.

        There the event was accepted, or it arrived from another server.
        """
        return self._places[server or next(iter(self.logs)), offset]

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
    """A subscription that waits for its answer."""

    way: str
    place: str
    asked: Question
    notifications: Notifications[Any]


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
        for event in world.case.events:
            world.ids.append(await bob.publish(event.subject, event.attributes))
        await _collect(world, opened)
        if during is not None:
            await during(world)


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


async def trace_all(world: World) -> None:
    """Ask where every event of the case would go, by ``wanderbus trace`` in another thread."""
    assert world.domain is not None
    file = _with_addresses(world.domain)
    who = ["--user", "sip:alice@localhost", "--password", PASSWORDS["alice"], "--event-domain", str(file), "--json"]
    matched: dict[tuple[str, str], list[int]] = {key: [] for key in world.subscriptions}
    names = {identity: key for key, identity in world.subscriptions.items()}
    for number, event in enumerate(world.case.events):
        words = [f"{name}={event_text.write_value(value)}" for name, value in event.attributes.items()]
        with patch("wanderbus.cli.domain.trace.run_async", asyncio.run):  # which handles signals in the main thread
            rows = await asyncio.to_thread(rows_of, "trace", event.subject, *words, *who)
        if isinstance(rows, Refusal):
            world.answers.update({("trace", *key): rows for key in world.subscriptions})
            return
        for outcome in (each for row in rows[1:] for each in row["subscriptions"]):
            if outcome["subscription"] in names:
                matched[names[outcome["subscription"]]].append(number)
    world.answers.update({("trace", *key): numbers for key, numbers in matched.items()})


def _with_addresses(domain: Domain) -> Path:
    """Write the file of a domain with the addresses at which its servers listen; return its path."""
    text = domain.file.read_text("utf-8")
    for server, port in domain.ports.items():
        text = re.sub(rf'(\[servers\.{server}\]\nsip = )".*"', rf'\1"127.0.0.1:{port}"', text)
    file = domain.directory / "listening.toml"
    file.touch(0o600)
    file.write_text(text, "utf-8")
    return file


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
    try:
        if asked.language == PATTERN:
            notifications = agent.subscribe(pattern=asked.expression, **options)
        else:
            notifications = agent.subscribe(
                asked.subject,
                asked.expression,
                language=asked.language,
                restrictions=asked.restrictions,
                **options,
            )
        await stack.enter_async_context(notifications)
    except WanderbusError as error:
        world.answers[way, place, asked.name] = Refusal(str(error))
        return None
    return Reader(way, place, asked, notifications)


async def _collect(world: World, opened: Sequence[Reader]) -> None:
    """Read the answers; each ends when it is as long as the right one and nothing more comes."""
    answers = await asyncio.gather(*(_taken(world, each) for each in opened))
    for each, found in zip(opened, answers, strict=True):
        world.answers[each.way, each.place, each.asked.name] = _answer(world, each, found)
        world.notifications[each.way, each.place, each.asked.name] = found


async def _taken(world: World, reader: Reader) -> list[Notification]:
    is_waiting = reader.asked.language == PATTERN and world.case.is_of_the_future
    right = [] if is_waiting else right_answer(world.case, reader.asked, "events")
    assert isinstance(right, list)
    found: list[Notification] = []
    loop = asyncio.get_running_loop()
    until_s = loop.time() + ANSWER_S_MAX
    while True:
        wait_s = until_s - loop.time() if len(found) < len(right) else QUIET_S
        try:
            async with asyncio.timeout(wait_s):
                found.append(await anext(reader.notifications))
        except TimeoutError:
            return found


def _answer(world: World, reader: Reader, found: Sequence[Notification]) -> Answer:
    if reader.asked.language == PATTERN:
        named = [each.event["events"] for each in found]
        taken = [tuple(map(world.number, each if isinstance(each, list) else [each])) for each in named]
        return without_ends(world.case, taken)
    return [(world.number(each.id), shown(_event(each, reader.way))) for each in found]


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


async def served(directory: Path, case: Case, engine: Engine | None = None) -> World:
    """Put a case to one server, whose events ``engine`` matches; a server has no parents of subjects."""
    used = engine or OwnEngine()
    place = ServerWorld(directory)
    world = World(case._replace(parents={}), {"wb": directory / "data"})
    used.start(directory / "data")
    async with AsyncExitStack() as stack:
        stack.callback(used.kill)
        stack.enter_context(small_segments())
        await stack.enter_async_context(place.server(broker=BrokerConfig(spark_subjects=used.subjects)))
        bob = await stack.enter_async_context(place.agent("bob"))
        readers = {"wb": await stack.enter_async_context(place.agent())}
        await ask_live(world, bob, readers, tuple(WAYS) if engine is None else ("live",))
        if engine is None:
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
        await stack.enter_async_context(domain.servers(broker=BrokerConfig(roles={"alice": "operator"})))
        bob = await stack.enter_async_context(domain.agent("s1", "bob"))
        readers = {
            server: await stack.enter_async_context(domain.agent(server, user)) for server, user in READERS.items()
        }
        await ask_live(world, bob, readers, ("live",), during=trace_all if model == "ordered" else None)
        await ask_past(world, readers, "since, log")
        await ask_channels(world, readers)
    return world


async def ask_lake(world: World, directory: Path, lake: Path) -> None:
    """Start a copy of the only server in ``directory``, whose log has only what the lake has not, and ask for all.

    The lake gives the earlier events.
    """
    from wanderbus.pipeline.replay import history_service  # it needs Spark's packages

    place = ServerWorld(directory)
    pace = patch.multiple(storage, SAVE_S=0.02, RETAIN_S=0.02)
    with pace, history_service(directory / "data", lake):
        async with place.server(log_keep_bytes=0) as server, place.agent() as alice:
            log = files(server).log
            await until(lambda: log.oldest_offset > world.ids[0].number)
            await ask_past(world, {"wb": alice}, "since, lake")


def _quoted(key: str) -> str:
    return f'"{key}"'
