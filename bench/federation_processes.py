"""Figures of server processes of domains that share events: rate, processor time and delivery time of an event.

Publisher, servers and subscriber are processes on loopback, which share the processors of the machine. In one run, the
same number of events goes to a subscriber in the domain of the publisher, and to one in the other domain; both domains
run all the time. Turns alternate, so that what else the machine does disturbs all routes alike.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import federation_nats
from bench.broker_nats import program
from bench.broker_peer import Consumed, Place, Published
from bench.domain_servers import Pace, filling, publish
from bench.federation_domains import OWN_TYPES, TYPES, consume, federated, wait_until_known
from harness.process_figures import processor_s
from harness.reporting import Goal, goal, median, percentile, progress
from harness.workers import Job, Worker
from wanderbus.event import Event

Row = Mapping[str, Any]

WARM: Final = 6_000
"""Events until the compiled matching kernel is requested; loading it takes seconds of processor."""

PER_S: Final = 200.0
"""Events a second when delivery times are measured."""

SETTLED_S: Final = 0.3
"""Time for acknowledgements behind the last event, which belong to its cost."""

SHARES: Final = (("p50", 0.5), ("p99", 0.99))
LOCAL: Final = "local"
FEDERATED: Final = "federated"
NATS_LOCAL: Final = "nats_jetstream_local"
NATS_LEAF: Final = "nats_jetstream_leaf"
NATS_CORE: Final = "nats_core_leaf"


class Size(NamedTuple):
    """Amount of each measurement."""

    turns: int
    events: int
    paced_events: int


class Task(NamedTuple):
    """A job and its arguments."""

    job: Job
    arguments: tuple[Any, ...]


class Route:
    """One way of events: a publisher, a subscriber, and the servers that the events pass.

    :param publisher: gets the :class:`Pace` as a further argument
    """

    def __init__(
        self, name: str, servers: Sequence[Place], reader: Task, publisher: Task, stack: contextlib.ExitStack
    ) -> None:
        self.name = name
        self._pids = [each["pid"] for each in servers]
        self._task = publisher
        self._publisher, self._reader = (stack.enter_context(Worker()) for _ in range(2))
        self._reader.start(reader.job, *reader.arguments).receive()

    def send(self, pace: Pace) -> tuple[Published, Consumed, list[float]]:
        """Publish events; return the times of both sides, and the processor time of each server."""
        self._reader.send(pace.events)
        self._reader.receive()
        self._publisher.start(self._task.job, *self._task.arguments, pace).receive()
        began_s = [processor_s([each]) for each in self._pids]
        self._publisher.send()
        published, consumed = self._publisher.receive(), self._reader.receive()
        time.sleep(SETTLED_S)
        used_s = [processor_s([each]) - before_s for each, before_s in zip(self._pids, began_s, strict=True)]
        if len(consumed.latency_s) != pace.events:
            raise RuntimeError(f"{self.name}: {len(consumed.latency_s)} of {pace.events} events came")
        return published, consumed, used_s


def measured(size: Size) -> list[Row]:
    """Return rate, processor time and delivery time of each route and turn."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wanderbus-bench-")))
        progress("two domains: starting")
        routes = [*_ours(stack, directory), *_nats(stack, directory)]
        for route in routes:
            route.send(Pace(WARM))
        rows = list[Row]()
        for turn in range(size.turns):
            progress(f"two domains: turn {turn + 1} of {size.turns}")
            rows += [{**_rate(route, size.events), **_times(route, size.paced_events)} for route in routes]
    return rows


def _ours(stack: contextlib.ExitStack, directory: Path) -> Iterator[Route]:
    (alpha,), (beta,) = stack.enter_context(federated(directory))
    yield Route(LOCAL, (alpha,), Task(consume, (alpha, OWN_TYPES)), publishing(alpha, OWN_TYPES), stack)
    yield Route(FEDERATED, (alpha, beta), Task(consume, (beta, TYPES)), publishing(alpha, TYPES), stack)
    wait_until_known([alpha], len(TYPES))


def publishing(place: Place, types: Sequence[str]) -> Task:
    """Return the task of a publisher of ours, of events of these types in turn."""
    return Task(publish, (place, [Event(each, {"Filling": filling()}) for each in types]))


def _nats(stack: contextlib.ExitStack, directory: Path) -> Iterator[Route]:
    if program() is None:
        progress("nats-server is not installed, so it is left out")
        return
    alpha, _ = places = stack.enter_context(federation_nats.leaf(directory))
    with Worker() as worker:
        worker.start(federation_nats.create, places).receive()
    for name, is_kept, subject, servers in (
        (NATS_LOCAL, True, federation_nats.KEPT, (alpha,)),
        (NATS_LEAF, True, federation_nats.KEPT, places),
        (NATS_CORE, False, federation_nats.PASSED, places),
    ):
        reader = Task(federation_nats.consume, (servers[-1], is_kept, subject))
        yield Route(name, servers, reader, Task(federation_nats.publish, (alpha, is_kept, subject)), stack)


def _rate(route: Route, events: int) -> Row:
    published, consumed, used_s = route.send(Pace(events))
    used_us = [1e6 * each / events for each in used_s]
    return {
        "route": route.name,
        "events_per_s": events / (consumed.ended_s - published.began_s),
        "us_per_event": sum(used_us),
        "us_of_each_server": used_us,
    }


def _times(route: Route, events: int) -> Row:
    _, consumed, used_s = route.send(Pace(events, per_s=PER_S))
    times_ms = {f"{name}_ms": 1_000 * percentile(consumed.latency_s, share) for name, share in SHARES}
    return {**times_ms, "us_per_paced_event": 1e6 * sum(used_s) / events}


def goals_of(rows: Sequence[Row]) -> list[Goal]:
    """Return the goals, and figures of each route; medians of the turns, and of the ratios of each turn."""
    names = list(dict.fromkeys(row["route"] for row in rows))

    def ratio(one: str, other: str, value: str) -> float:
        turns = [[row[value] for row in rows if row["route"] == each] for each in (one, other)]
        return median(first / second for first, second in zip(*turns, strict=True))

    goals = [
        goal("federated_events_vs_local", ratio(FEDERATED, LOCAL, "events_per_s"), "ratio", least=0.5),
        goal("federated_cpu_vs_local", ratio(FEDERATED, LOCAL, "us_per_event"), "ratio"),
        goal("federated_p50_vs_local", ratio(FEDERATED, LOCAL, "p50_ms"), "ratio"),
    ]
    if NATS_LEAF in names:
        goals += [
            goal("nats_leaf_events_vs_local", ratio(NATS_LEAF, NATS_LOCAL, "events_per_s"), "ratio"),
            goal("nats_leaf_cpu_vs_local", ratio(NATS_LEAF, NATS_LOCAL, "us_per_event"), "ratio"),
            goal("federated_events_vs_nats_leaf", ratio(FEDERATED, NATS_LEAF, "events_per_s"), "ratio"),
        ]
    for name in names:
        for value, unit in (("events_per_s", "events/s"), ("us_per_event", "us"), ("p50_ms", "ms"), ("p99_ms", "ms")):
            found = median(row[value] for row in rows if row["route"] == name)
            goals.append(goal(f"{name}_{value}", found, unit))
    return goals
