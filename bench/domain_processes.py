"""Figures of server processes of a domain: processor time of an event, delivery time under load, and events a second.

Publishers, servers and subscribers are processes on loopback, which share the processors of the machine.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import domain_nats
from bench.broker_nats import program
from bench.broker_peer import Consumed, Published
from bench.domain_servers import Cluster, Pace, Wanted, cluster, filling, publish, subscribe
from harness.loads import wait_until_idle
from harness.process_figures import processor_s
from harness.reporting import Goal, goal, median, percentile, progress
from harness.workers import Worker
from wanderbus.event import Event
from wanderbus.settings.event_domain import Model

Row = Mapping[str, Any]

SUBSCRIPTIONS: Final = 1_000
SUBSCRIBERS: Final = 4
TYPES: Final = 8
WARM: Final = 6_000
"""Events until the compiled matching kernel is requested; loading it takes seconds of processor."""
PACES: Final[Mapping[str, float | None]] = {"window_100": None, "paced_200": 200.0}
"""Events a second, or as fast as 100 unacknowledged events allow: then servers process large batches."""
LOAD_PER_S: Final = 500.0
SIZES: Final = (1, 2, 4)
SHARES: Final = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))


class Route(NamedTuple):
    """Servers of the publisher, of the leader and of the subscribers, in a domain of ``size``."""

    name: str
    size: int
    publisher: int
    leader: int
    subscriber: int


LOCAL: Final = Route("local", 1, 0, 0, 0)
FORWARDED: Final = Route("forwarded", 3, 0, 1, 2)
ROUTES: Final = (LOCAL, Route("remote", 3, 0, 0, 1), FORWARDED)
"""One server alone; a subscriber elsewhere than publisher and leader; three different servers."""


class Size(NamedTuple):
    """Amount of each measurement."""

    processor_turns: int
    processor_events: int
    load_events: int
    throughput_turns: int
    throughput_events: int


def processor(size: Size) -> list[Row]:
    """Return the processor time of all servers for an event, for each route, pace and turn."""
    rows: list[Row] = []
    for turn in range(size.processor_turns):
        for route in ROUTES:
            progress(f"processor: {route.name}, turn {turn + 1} of {size.processor_turns}")
            with running(route.size) as servers:
                rows += _processor(servers, route, size.processor_events)
    return rows


def _processor(servers: Cluster, route: Route, events: int) -> list[Row]:
    subjects, pool = _matching_load(servers, route.leader)
    wanted = [
        [Wanted(subject, _filters()) for place, subject in enumerate(subjects) if place % SUBSCRIBERS == number]
        for number in range(SUBSCRIBERS)
    ]
    rows: list[Row] = []
    with Worker() as publisher, Worker() as reader:
        expected = WARM + events * len(PACES)
        reader.start(subscribe, servers.places[route.subscriber], wanted, expected).receive()
        for pace, per_s in (("warm", None), *PACES.items()):
            count = WARM if pace == "warm" else events
            publisher.start(publish, servers.places[route.publisher], pool, Pace(count, per_s=per_s)).receive()
            wait_until_idle(servers.processor_s)  # kernels are loaded
            began_s = [processor_s([place["pid"]]) for place in servers.places]
            publisher.send()
            publisher.receive()
            wait_until_idle(servers.processor_s)  # everything is delivered
            ended_s = [processor_s([place["pid"]]) for place in servers.places]
            used = [1e6 * (ended - began) / count for began, ended in zip(began_s, ended_s, strict=True)]
            rows.append({"route": route.name, "pace": pace, "us_per_event": sum(used), "us_of_each_server": used})
        _check_all_came(route.name, len(reader.receive().latency_s), expected)
    return rows


def _matching_load(servers: Cluster, leader: int) -> tuple[list[str], list[Event]]:
    """Return subjects with that leader, and events of which each matches one subscription."""
    led = servers.led[leader]
    subjects = [led[number % len(led)] for number in range(TYPES)]
    each = SUBSCRIPTIONS // TYPES
    pool = [
        Event(subjects[number % TYPES], {"Slot": number * 7 % each, "Level": 0, "Filling": filling()})
        for number in range(SUBSCRIPTIONS)
    ]
    return subjects, pool


def _filters() -> list[str]:
    """Return filters that neither cover each other nor merge, so that leaders match as many as a single server."""
    return [f"Slot == {slot} and Level < {slot + 1}" for slot in range(SUBSCRIPTIONS // TYPES)]


def delivery(size: Size) -> list[Row]:
    """Return the distribution of the time from publish to delivery, through three servers and through one."""
    rows: list[Row] = []
    for route in (FORWARDED, LOCAL):
        progress(f"delivery time: {route.name}, {LOAD_PER_S:g} events/s")
        rows.append({"route": route.name, "per_s": LOAD_PER_S, **delivery_ms(route, size.load_events)})
    return rows


def delivery_ms(route: Route, events: int, model: Model = "ordered") -> dict[str, float]:
    """Return the distribution of the time from publish to delivery at :data:`LOAD_PER_S`, in milliseconds."""
    _, consumed = sent_through(route, Pace(events, per_s=LOAD_PER_S), model)
    return {name: 1_000 * percentile(consumed.latency_s, share) for name, share in SHARES}


def sent_through(route: Route, pace: Pace, model: Model = "ordered") -> tuple[Published, Consumed]:
    """Publish events of one subject, and return the times of the publisher and of the one subscriber."""
    with running(route.size, model) as servers, Worker() as publisher, Worker() as reader:
        subject = servers.led[route.leader][0]
        place = servers.places[route.subscriber]
        reader.start(subscribe, place, [[Wanted(subject, [""])]], pace.events).receive()
        pool = [Event(subject, {"Filling": filling()})]
        publisher.start(publish, servers.places[route.publisher], pool, pace).receive()
        publisher.send()
        published, consumed = publisher.receive(), reader.receive()
    _check_all_came(route.name, len(consumed.latency_s), pace.events)
    return published, consumed


def throughput(size: Size) -> list[Row]:
    """Return events a second with 1, 2 and 4 servers, and with a NATS cluster of three if it is installed."""
    rows: list[Row] = []
    if program() is None:
        progress("nats-server is not installed, so it is left out")
    for turn in range(size.throughput_turns):
        for servers in SIZES:
            progress(f"throughput: {servers} servers, turn {turn + 1} of {size.throughput_turns}")
            rows.append({"peer": f"wanderbus_{servers}", "events_per_s": _ours_per_s(servers, size.throughput_events)})
        for replicas in (1, 3) if program() is not None else ():
            progress(f"throughput: NATS, {replicas} replicas, turn {turn + 1} of {size.throughput_turns}")
            found = _nats_per_s(replicas, size.throughput_events)
            rows.append({"peer": f"nats_3_replicas_{replicas}", "events_per_s": found})
    return rows


def _ours_per_s(size: int, events: int) -> float:
    """Measure two publishers and two subscribers at different servers, as far as there are."""
    with running(size) as servers, contextlib.ExitStack() as stack:
        publishers = [stack.enter_context(Worker()) for _ in range(2)]
        readers = [stack.enter_context(Worker()) for _ in range(2)]
        types = [led[number] for number in range(TYPES // size) for led in servers.led]
        for number, reader in enumerate(readers):
            own = [[Wanted(each, [""]) for each in types[number::2]]]
            place = servers.places[-1 - number % size]
            reader.start(subscribe, place, own, events, number).receive()
        for number, publisher in enumerate(publishers):
            pool = [Event(each, {"Filling": filling()}) for each in types]
            place = servers.places[number % size]
            publisher.start(publish, place, pool, Pace(events), f"publisher{number}").receive()
        return _events_per_s(f"wanderbus_{size}", publishers, readers, events)


def _nats_per_s(replicas: int, events: int) -> float:
    with _directory() as directory, domain_nats.cluster(directory) as places, contextlib.ExitStack() as stack:
        publishers = [stack.enter_context(Worker()) for _ in range(2)]
        readers = [stack.enter_context(Worker()) for _ in range(2)]
        publishers[0].start(domain_nats.create, places[0], replicas).receive()
        for number, reader in enumerate(readers):
            reader.start(domain_nats.subscribe, places[2 - number], range(number, TYPES, 2), events).receive()
        for number, publisher in enumerate(publishers):
            publisher.start(domain_nats.publish, places[number], range(TYPES), events, Pace(1).window).receive()
        return _events_per_s(f"nats_3_replicas_{replicas}", publishers, readers, events)


def _events_per_s(name: str, publishers: Sequence[Worker], readers: Sequence[Worker], events: int) -> float:
    """Let all publish ``events`` each; every reader gets half of them all."""
    for publisher in publishers:
        publisher.send()
    published = [publisher.receive() for publisher in publishers]
    consumed = [reader.receive() for reader in readers]
    _check_all_came(name, sum(len(each.latency_s) for each in consumed), len(publishers) * events)
    began_s = min(each.began_s for each in published)
    took_s: float = max(each.ended_s for each in consumed) - began_s
    return len(publishers) * events / took_s


def processor_goals(rows: Sequence[Row]) -> list[Goal]:
    """Return the processor time of an event compared with a single server; medians of the turns."""
    window, paced = ({route.name: _us(rows, route.name, pace) for route in ROUTES} for pace in PACES)
    return [
        goal("remote_cpu_vs_local", window["remote"] / window["local"], "ratio", most=2.0),
        goal("forwarded_cpu_vs_local", window["forwarded"] / window["local"], "ratio"),
        goal("remote_cpu_vs_local_paced_200", paced["remote"] / paced["local"], "ratio"),
        goal("forwarded_cpu_vs_local_paced_200", paced["forwarded"] / paced["local"], "ratio"),
        goal("local_cpu_us", window["local"], "us"),
        goal("local_cpu_us_paced_200", paced["local"], "us"),
    ]


def delivery_goals(rows: Sequence[Row]) -> list[Goal]:
    """Return the distribution of the delivery time as figures."""
    return [goal(f"{each['route']}_delivery_{name}_ms", each[name], "ms") for each in rows for name, _ in SHARES]


def throughput_goals(rows: Sequence[Row]) -> list[Goal]:
    """Return events a second of each peer as figures; medians of the turns."""
    peers = dict.fromkeys(each["peer"] for each in rows)
    rates = {name: median(each["events_per_s"] for each in rows if each["peer"] == name) for name in peers}
    return [goal(f"{name}_events_per_s", found, "events/s") for name, found in rates.items()]


def _us(rows: Sequence[Row], route: str, pace: str) -> float:
    return median(each["us_per_event"] for each in rows if (each["route"], each["pace"]) == (route, pace))


def _check_all_came(name: str, came: int, wanted: int) -> None:
    if came != wanted:
        raise RuntimeError(f"{name}: {came} of {wanted} events came")


@contextlib.contextmanager
def running(size: int, model: Model = "ordered") -> Iterator[Cluster]:
    """Run a domain of ``size`` servers with channels of ``model`` for the block."""
    with _directory() as directory, cluster(directory, size, model=model) as servers:
        yield servers


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as name:
        yield Path(name)
