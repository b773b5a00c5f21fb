"""Spark as the matching engine of a real server: its rate, and the latency from publishing to delivery (SPEC T-06).

The engine is a program, on two cores of this machine. The log begins with 10,000 subscriptions of a hundred users who
are away, of which an event matches one or two. Server, agents and this process share the cores with the engine.

*Engine*: the log has events too, and this process asks for their matches, as a server does. *Backlog*: the same with a
server; the rate is that of the records in which it has written the matches. *Broker*: a server with its own index, and
an agent that publishes as fast as it can. *Closed loop*: an agent publishes 1,000 events a second, and another one gets
all of them. *Conformance*: the number of tests of delivery that fail with any engine.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import msgspec

import wanderbus
from bench.broker_ours import connected, running
from harness.reporting import Goal, goal, percentile, progress
from wanderbus.event import Event, EventId
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import encode_event
from wanderbus.records import (
    SPARK,
    Acceptance,
    Published,
    Record,
    Started,
    Subscribed,
    decode_record,
    encode_record,
)
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.runtime.log.log_reader import read_log
from wanderbus.runtime.segment_files import durable_end
from wanderbus.runtime.services.caller import ServiceCaller
from wanderbus.runtime.services.engine import (
    BEGIN,
    MATCHES,
    NAME,
    PIECE_SUBSCRIPTIONS_MAX,
    Begin,
    Matches,
    MatchesAsked,
)
from wanderbus.subscription import Subscription
from wanderbus.testbed.launch import python
from wanderbus.testbed.processes import Process

SUBSCRIPTIONS: Final = 10_000
EVENTS: Final = 200_000
QUICK_EVENTS: Final = 40_000
RATE: Final = 1_000
SECONDS: Final = 20.0
WARM_S: Final = 5.0
SUBJECT: Final = "Trade"
SYMBOLS: Final = 5_000
USERS: Final = 100
FLIGHT_MAX: Final = 512
"""Events that the publisher has on their way when it publishes as fast as it can."""
END_S_MAX: Final = 300.0

_SPARK: Final = '[broker]\nspark_subjects = ["*"]\n'
_ENTRIES: Final = 5_000


class _Mark(msgspec.Struct):
    """The fields of a record that tell up to which offset the server had matches, and when."""

    at_us: int
    next: int = 0


_marks: Final = msgspec.msgpack.Decoder(_Mark)


class Measured(NamedTuple):
    """One measurement: a rate, and latencies from publishing to delivery; 0 if they were not measured."""

    way: str
    events: int
    events_per_s: float
    p50_s: float = 0.0
    p99_s: float = 0.0


def measure(work: Path, events: int) -> Iterator[Measured]:
    """Measure all; ``events`` are those of the backlog."""
    progress(f"writing a log of {SUBSCRIPTIONS} subscriptions and {events} events")
    yield _alone(_directory(work, "alone", events), events)
    yield asyncio.run(_backlog(_directory(work, "backlog", events), events))
    yield asyncio.run(_broker(_directory(work, "broker", 0), min(events, QUICK_EVENTS)))
    yield asyncio.run(_closed_loop(_directory(work, "loop", 0)))


def goals(results: Sequence[Measured], conformance_failed: float) -> list[Goal]:
    """Return the goals of the report."""
    by = {each.way: each for each in results}
    loop = by["closed loop"]
    return [
        goal("engine_conformance_failed", conformance_failed, "tests", most=0),
        goal("engine_events_per_s", by["engine"].events_per_s, "1/s", least=20_000),
        goal("engine_delivered_per_s", by["backlog"].events_per_s, "1/s"),
        goal("engine_vs_broker", by["backlog"].events_per_s / by["broker"].events_per_s, "ratio"),
        goal("closed_loop_p50_s", loop.p50_s, "s", most=0.4),
        goal("closed_loop_p99_s", loop.p99_s, "s"),
    ]


def _alone(directory: Path, events: int) -> Measured:
    caller = ServiceCaller(directory / "data", NAME, END_S_MAX)
    with closing(caller), _engine(directory) as engine:
        engine.line(END_S_MAX)
        progress("matching without a server")
        at, end = _begin(caller, directory / "data" / "log"), SUBSCRIPTIONS + 1 + events
        first, began_s, deadline = at, 0.0, time.monotonic() + END_S_MAX
        while at < end:
            answer = caller.ask(*MATCHES, MatchesAsked(1, at, at, 1.0), Matches)
            if answer.is_lost or time.monotonic() > deadline:
                raise AssertionError(f"the engine has not matched {events} events in {END_S_MAX:g} s")
            if not began_s and answer.next > at:  # the first matches come when a worker has its index
                first, began_s = answer.next, time.monotonic()
            at = answer.next
        return Measured("engine", end - first, (end - first) / (time.monotonic() - began_s))


def _begin(caller: ServiceCaller, log: Path) -> int:
    """Let the engine begin with all subscriptions of a log; return the offset of the first event."""
    first = SUBSCRIPTIONS + 1
    started, *records = [decode_record(frame.payload) for frame in read_log(log, 0, first)]
    assert isinstance(started, Started)
    subscriptions = tuple(each.subscription for each in records if isinstance(each, Subscribed))
    for place in range(0, SUBSCRIPTIONS, PIECE_SUBSCRIPTIONS_MAX):
        begin = Begin(
            number=1,
            server=started.server,
            incarnation=started.incarnation,
            first=first,
            subscriptions=subscriptions[place : place + PIECE_SUBSCRIPTIONS_MAX],
            filter_work_max=BrokerConfig().filter_work_max,
            is_last=place + PIECE_SUBSCRIPTIONS_MAX >= SUBSCRIPTIONS,
        )
        caller.ask(*BEGIN, begin, type(None))
    return first


async def _backlog(directory: Path, events: int) -> Measured:
    log, marks = directory / "data" / "log", list[_Mark]()
    with running(directory, ["publisher"], "--config", str(directory / "server.toml")), _engine(directory):
        progress("matching the backlog")
        at, deadline = durable_end(log), time.monotonic() + END_S_MAX
        # The last events may have no match, and so no record.
        while not marks or marks[-1].next < events:
            if time.monotonic() > deadline:
                raise AssertionError(f"the engine has not matched {events} events in {END_S_MAX:g} s")
            await asyncio.sleep(0.5)
            end = durable_end(log)
            marks += [mark for frame in read_log(log, at, end) if (mark := _marks.decode(frame.payload)).next]
            at = end
    done = marks[-1].next - marks[0].next
    return Measured("backlog", done, done / ((marks[-1].at_us - marks[0].at_us) / 1e6))


async def _broker(directory: Path, events: int) -> Measured:
    (directory / "server.toml").write_text("")
    with running(directory, ["publisher"], "--config", str(directory / "server.toml")) as place:
        async with connected(place, "publisher") as agent:
            progress("publishing to the broker's own engine")
            room, random = asyncio.Semaphore(FLIGHT_MAX), Random(2)

            async def publish(number: int) -> None:
                async with room:
                    await agent.publish(SUBJECT, _attributes(number, random))

            began = time.monotonic()
            async with asyncio.TaskGroup() as group:
                for number in range(events):
                    group.create_task(publish(number))
            return Measured("broker", events, events / (time.monotonic() - began))


async def _closed_loop(directory: Path) -> Measured:
    settings = ["--config", str(directory / "server.toml")]
    with running(directory, ["publisher", "consumer"], *settings) as place, _engine(directory) as engine:
        engine.line(END_S_MAX)
        async with (
            connected(place, "publisher") as publisher,
            connected(place, "consumer") as consumer,
            consumer.subscribe(SUBJECT) as notifications,
        ):
            progress(f"publishing {RATE} events a second")
            return await _loop(publisher, notifications)


async def _loop(publisher: wanderbus.Agent, notifications: AsyncIterable[wanderbus.Notification]) -> Measured:
    count, random = round(RATE * (WARM_S + SECONDS)), Random(3)
    sent: dict[int, float] = {}
    latencies: list[float] = []
    taken: Counter[int] = Counter()

    async def take() -> None:
        async for each in notifications:
            number = int(each.event["n"])  # type: ignore[arg-type]
            taken[number] += 1
            if number >= RATE * WARM_S:
                latencies.append(time.monotonic() - sent[number])
            if number == count - 1:
                return

    taking = asyncio.create_task(take())
    await publisher.publish(SUBJECT, _attributes(-1, random))
    async with asyncio.timeout(END_S_MAX):
        while not taken:  # the first one also waits for the engine to begin
            await asyncio.sleep(0.1)
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / RATE - time.monotonic()))
            sent[number] = time.monotonic()
            group.create_task(_publish(publisher, number, random))
    await asyncio.wait((taking,), timeout=END_S_MAX)
    taking.cancel()
    if taken != Counter(range(-1, count)):
        raise AssertionError(f"{count + 1} events were published, and {taken.total()} taken, {len(taken)} different")
    return Measured("closed loop", count, RATE, percentile(latencies, 0.5), percentile(latencies, 0.99))


async def _publish(agent: wanderbus.Agent, number: int, random: Random) -> None:
    await agent.publish(SUBJECT, _attributes(number, random))


def _engine(directory: Path) -> Process:
    command = python("wanderbus", "pipeline", "engine", str(directory / "data"), "--cores", "2")
    return Process("the engine", command, directory / "engine.errors", read=True)


def _directory(work: Path, name: str, events: int) -> Path:
    """Return a directory with settings, and the data of a server whose log has subscriptions and events."""
    directory = work / name
    directory.mkdir()
    (directory / "server.toml").write_text(_SPARK)
    data = directory / "data"
    data.mkdir(0o700)
    files = ServerFiles.open(data)
    try:
        batch: list[tuple[int, int, bytes]] = []
        for offset, record in enumerate(_records(files.identity.server, events)):
            batch.append((offset, record.at_us, encode_record(record)))
            if len(batch) == _ENTRIES:
                files.log.append(batch)
                batch = []
        files.log.append(batch)
        files.log.sync()
    finally:
        files.close()
    return directory


def _records(server: str, events: int) -> Iterator[Record]:
    random, at_us = Random(1), time.time_ns() // 1_000
    yield Started(at_us=at_us, server=server, incarnation=at_us, spark_subjects=("*",))
    for number in range(1, SUBSCRIPTIONS + 1):
        owner, symbol = f"sip:away{number % USERS}@localhost", random.randrange(SYMBOLS)
        expression = f"symbol == {symbol} and price > {random.randrange(50)}"
        identity = str(EventId(server, at_us, number))
        yield Subscribed(
            at_us=at_us, subscription=Subscription(identity, owner, "default", SUBJECT, expression), number=number
        )
    for number in range(events):
        event = Event(SUBJECT, _attributes(number, random))
        acceptance = Acceptance(
            id=EventId(server, at_us, SUBSCRIPTIONS + 1 + number),
            event=msgspec.Raw(encode_event(event)),
            user="sip:publisher@localhost",
            device="backlog",
            epoch=1,
            number=number + 1,
        )
        yield Published(at_us=at_us, acceptance=acceptance, engine=SPARK)


def _attributes(number: int, random: Random) -> dict[str, int | float | str]:
    return {
        "n": number,
        "symbol": random.randrange(SYMBOLS),
        "price": round(random.uniform(0, 100), 2),
        "venue": random.choice("abcdef"),
    }
