"""Server processes of one domain, and the jobs of publishers and subscribers at them.

Each server has publishers and subscribers of its own. A subject is chosen by the server that leads it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.broker_ours import connected, running
from bench.broker_peer import EVENT_BYTES, HOST, Consumed, Deliveries, Place, Published
from bench.stored_sessions import store_sessions
from harness import domain_file
from harness.domain_file import place_servers
from harness.ports import free_port
from harness.process_figures import processor_s
from harness.server_hosts import ServerHosts, server_hosts
from harness.workers import Line
from wanderbus.event import Event
from wanderbus.runtime.files.domain_file import create_domain, read_domain
from wanderbus.settings.event_domain import Model
from wanderbus.testbed.namespaces import entered

USERS_MAX: Final = 4
START_S: Final = 1.0
"""Time until the links between new servers are open."""

_FRAME_BYTES: Final = 44
"""Bytes of an event besides its filling."""


class Cluster(NamedTuple):
    """Running servers, and the subjects that each of them leads."""

    places: tuple[Place, ...]
    led: tuple[tuple[str, ...], ...]
    """Subjects that each server leads, in the order of ``places``."""

    def processor_s(self) -> float:
        """Return the processor time that all servers have used."""
        return processor_s([place["pid"] for place in self.places])


@contextlib.contextmanager
def cluster(
    directory: Path,
    size: int,
    *options: str,
    model: Model = "ordered",
    more_users: Sequence[str] = (),
    away: Sequence[str] = (),
    delay_s: float = 0.0,
) -> Iterator[Cluster]:
    """Run a domain of ``size`` servers for the block; a single one has no domain, as it is without one.

    :param away: users whose sessions the first server has stored
    :param delay_s: time between servers; unless it is 0, they are hosts, and the block runs at their clients' host
    """
    users = [*more_users, *(f"{kind}{number}" for kind in ("publisher", "subscriber") for number in range(USERS_MAX))]
    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(server_hosts(size, delay_s)) if delay_s else None
        if size == 1:
            place = stack.enter_context(running(directory, users, *options))
            yield Cluster((place,), (tuple(map(_subject, range(8))),))
            return
        file = create_domain(directory / "domain", "localhost", size)
        names = [f"s{number}" for number in range(1, size + 1)]
        servers = read_domain(file).settings.servers
        place_servers(file, {name: _placed(number, servers[name].roles, hosts) for number, name in enumerate(names, 1)})
        file.write_text(f'model = "{model}"\n{file.read_text("utf-8")}', "utf-8")
        leader = read_domain(file).directory.lookup
        places = []
        for number, name in enumerate(names):
            own = directory / name
            own.mkdir()
            if away and number == 0:
                store_sessions(own / "data", name, away, "News")
            belongs = ("--event-domain", str(file), "--event-server", name)
            namespace = None if hosts is None else hosts.servers[number]
            places.append(stack.enter_context(running(own, [*users, *away], *belongs, *options, namespace=namespace)))
        led = [tuple(each for each in map(_subject, range(200)) if leader(each).server == name) for name in names]
        if hosts is not None:
            stack.enter_context(entered(hosts.clients))
        time.sleep(START_S)
        yield Cluster(tuple(places), tuple(led))


def _placed(number: int, roles: Sequence[str], hosts: ServerHosts | None) -> domain_file.Place:
    """Return the place of a server: that of its host, or with a free port on loopback for its links."""
    if hosts is not None:
        return hosts.place(number, roles)
    return domain_file.Place(f"127.0.0.{number}", 5060, roles, free_port(), link_host=HOST)


class Wanted(NamedTuple):
    """Subscriptions of one subscriber, with these ``expressions`` to one subject."""

    subject: str
    expressions: Sequence[str]


class Pace(NamedTuple):
    """Number of events, and how many may wait for an acknowledgement, or how many a second at an even pace."""

    events: int
    window: int = 100
    per_s: float | None = None


async def publish(line: Line, place: Place, pool: Sequence[Event], pace: Pace, user: str = "publisher0") -> Published:
    """Report when connected, and on request publish the events of ``pool`` in turn, each with the present time."""
    async with connected(place, user) as agent:
        line.send("open")
        await line.receive()
        loop, each_s, free = asyncio.get_running_loop(), list[float](), asyncio.Semaphore(pace.window)
        began_s, waiting = time.monotonic(), set[asyncio.Task[None]]()

        async def one(event: Event) -> None:
            started_s = time.monotonic()
            await agent.publish(event.subject, {**event.attributes, "At": started_s})
            each_s.append(time.monotonic() - started_s)
            free.release()

        for number in range(pace.events):
            if pace.per_s is None:
                await free.acquire()
            else:
                await asyncio.sleep(began_s + number / pace.per_s - time.monotonic())
            task = loop.create_task(one(pool[number % len(pool)]))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        await asyncio.gather(*waiting)
        return Published(began_s, time.monotonic(), each_s)


async def subscribe(
    line: Line, place: Place, wanted: Sequence[Sequence[Wanted]], events: int, first: int = 0
) -> Consumed:
    """Run a subscriber for each of ``wanted``, from number ``first`` on; report when all subscriptions count.

    Return after ``events`` events at all subscribers together, or a silence.
    """
    deliveries = Deliveries(events)

    async def read(notifications: Any, seen: set[int]) -> None:
        """Read a subscription; an event that others of the subscriber match too counts once."""
        async for notification in notifications:
            if (number := notification.position.number) not in seen:
                seen.add(number)
                deliveries.add(float(notification.event["At"]))

    async with contextlib.AsyncExitStack() as stack:
        tasks = []
        for number, own in enumerate(wanted, first):
            agent = await stack.enter_async_context(connected(place, f"subscriber{number}"))
            seen: set[int] = set()
            for subject, expressions in own:
                for each in expressions:
                    subscription = await stack.enter_async_context(agent.subscribe(subject, each, keep=True))
                    tasks.append(asyncio.create_task(read(subscription, seen)))
        line.send("subscribed")
        consumed = await deliveries.all()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return consumed


def filling(event_bytes: int = EVENT_BYTES) -> str:
    """Return the filling of an event of about so many bytes."""
    return "x" * (event_bytes - _FRAME_BYTES)


def _subject(number: int) -> str:
    return f"Type.{number}"
