"""Benchmark of the broker beside others: durable publishes, delivery, latency, syncs, restart, idle and slow users.

Publisher, broker and consumers are processes on loopback; the others are measured by their Python clients in the same
run where they are installed. What each acknowledgement means differs: see the modules of the peers. ``disk`` is the
bare rate of appending an event and syncing it, in the directory where the brokers keep theirs.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from bench.broker_full import USERS as FULL_USERS
from bench.broker_full import full
from bench.broker_growth import Scale, growth
from bench.broker_mqtt import Mosquitto
from bench.broker_nats import JetStream
from bench.broker_others import beside_returning
from bench.broker_ours import Ours
from bench.broker_peer import EVENT_BYTES, Consumed, Peer, consume, publish_all, publish_paced
from bench.broker_redis import RedisStreams
from bench.broker_scale import idle_users, restart, syncs
from bench.broker_unread import beside_unread
from bench.sections import Result, section_options
from harness.loads import LoadEndedError
from harness.reporting import Goal, finish, goal, median, percentile, progress
from harness.workers import Worker

FANOUT: Final = 20
WINDOWS: Final = (1, 100)
RATES_PER_S: Final = (20, 1_000)
SECTIONS: Final = (
    "publish",
    "deliver",
    "latency",
    "syncs",
    "restart",
    "idle",
    "slow",
    "comer",
    "unread",
    "full",
    "growth",
)


class Size(NamedTuple):
    """Amount of each measurement."""

    runs: int
    publish_events: Mapping[int, int]
    """Events by window."""
    deliver_events: int
    latency_events: Mapping[int, int]
    """Events by rate."""
    queued_users: int
    queued_each: int
    idle_users: int
    returning_queued: int
    """Notifications that wait for each user who returns while others are measured."""
    returning_s: float
    unread_events: int
    full_users: tuple[int, ...]
    growth: Scale


FULL: Final = Size(
    runs=5,
    publish_events={1: 1_500, 100: 15_000},
    deliver_events=6_000,
    latency_events={20: 200, 1_000: 5_000},
    queued_users=100,
    queued_each=10_000,
    idle_users=10_000,
    returning_queued=100_000,
    returning_s=5.0,
    unread_events=6_000,
    full_users=FULL_USERS,
    growth=Scale(events=1_000, batches=3, values=4, backlog=9_000),
)
QUICK: Final = Size(
    runs=2,
    publish_events={1: 300, 100: 4_000},
    deliver_events=2_000,
    latency_events={20: 60, 1_000: 1_000},
    queued_users=20,
    queued_each=2_000,
    idle_users=300,
    returning_queued=40_000,
    returning_s=2.0,
    unread_events=2_000,
    full_users=FULL_USERS[:1],
    growth=Scale(events=500, batches=1, values=2, backlog=3_000),
)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status.

    A section whose load ended too early is not measured, and the status is 1.
    """
    quick, example = "few events: one or two minutes, rough figures", "--quick --sections publish deliver"
    parser = section_options("broker", __doc__, SECTIONS, quick=quick, example=f"Example: ./do bench broker {example}")
    options = parser.parse_args(arguments)
    size = QUICK if options.quick else FULL
    peers: list[Peer] = [Ours(), Mosquitto(), JetStream(synced=False), JetStream(synced=True), RedisStreams()]
    results: list[Result] = []
    status = 0
    for section in options.sections:
        try:
            results += _measure(section, size, [peer for peer in peers if _usable(peer)])
        except LoadEndedError as error:
            print(f"bench broker: {section}: {error}", file=sys.stderr)
            status = 1
    return finish("bench broker", results, goals_of(results), file=options.json, strict=options.strict) or status


def _measure(section: str, size: Size, peers: list[Peer]) -> list[Result]:
    beside_others: dict[str, Callable[[Peer, Size], list[Result]]] = {
        "publish": _publishes,
        "deliver": _deliveries,
        "latency": _latencies,
    }
    ours_alone: dict[str, Callable[[], Result]] = {
        "syncs": syncs,
        "restart": lambda: restart(size.queued_users, size.queued_each),
        "idle": lambda: idle_users(size.idle_users),
        "slow": lambda: beside_returning(size.returning_queued, size.returning_s, stuck=True),
        "comer": lambda: beside_returning(size.returning_queued, size.returning_s, stuck=False),
        "unread": lambda: beside_unread(size.unread_events, size.runs + 1),
        "full": lambda: full(size.growth.events, size.growth.batches, size.full_users),
        "growth": lambda: growth(size.growth),
    }
    if section in ours_alone:
        progress(f"{section}")
        return [{"section": section, **ours_alone[section]()}]
    results: list[Result] = []
    for run in range(size.runs):
        results += _disk() if section == "publish" else []
        for peer in peers:
            progress(f"{section}: {peer.name}, run {run + 1} of {size.runs}")
            found = _unless_it_fails(peer, beside_others[section], size)
            results += [{"section": section, "peer": peer.name, **each} for each in found]
    return results


def _unless_it_fails(peer: Peer, measure: Callable[[Peer, Size], list[Result]], size: Size) -> list[Result]:
    """Return a run's figures; none if another broker fails, so that its failure costs no figure of the others."""
    try:
        return measure(peer, size)
    except RuntimeError as error:
        if isinstance(peer, Ours):
            raise
        progress(f"{peer.name} failed, and this run of it is left out: {str(error).splitlines()[-1]}")
        return []


def _publishes(peer: Peer, size: Size) -> list[Result]:
    """Measure acknowledged publishes without any subscriber."""
    found: list[Result] = []
    with _directory() as directory, peer.server(directory) as place, Worker() as publisher:
        for window in WINDOWS:
            events = size.publish_events[window]
            publisher.start(publish_all, peer, place, events, window).receive()
            publisher.send()
            published = publisher.receive()
            rate = events / (published.ended_s - published.began_s)
            p50_ms = 1_000 * percentile(published.each_s, 0.5)
            found.append({"figure": f"window_{window}", "events_per_s": rate, "p50_ms": p50_ms})
    return found


def _deliveries(peer: Peer, size: Size) -> list[Result]:
    """Deliver events to one consumer and to many, as fast as the publisher's window of acknowledgements allows."""
    found: list[Result] = []
    for consumers in (1, FANOUT):
        events = size.deliver_events // (1 if consumers == 1 else 4)
        with _directory() as directory, peer.server(directory) as place, Worker() as publisher, Worker() as reader:
            reader.start(consume, peer, place, 0, consumers, events).receive()
            publisher.start(publish_all, peer, place, events, max(WINDOWS)).receive()
            publisher.send()
            published, consumed = publisher.receive(), reader.receive()
            _check_all_came(peer, consumed, events * consumers)
            rate = events * consumers / (consumed.ended_s - published.began_s)
            found.append({"figure": f"to_{consumers}", "deliveries_per_s": rate})
    return found


def _latencies(peer: Peer, size: Size) -> list[Result]:
    """Measure latency from publishing to one consumer, at a low and at a high rate."""
    found: list[Result] = []
    with _directory() as directory, peer.server(directory) as place, Worker() as publisher, Worker() as reader:
        for number, rate in enumerate(RATES_PER_S):
            events = size.latency_events[rate]
            before = sum(size.latency_events[each] for each in RATES_PER_S[:number])
            # A consumer of a persistent stream reads earlier events too.
            replayed = before if peer.name.startswith(("jetstream", "redis")) else 0
            reader.start(consume, peer, place, number, 1, events + replayed).receive()
            publisher.start(publish_paced, peer, place, rate, events).receive()
            publisher.send()
            publisher.receive()
            consumed = reader.receive()
            _check_all_came(peer, consumed, events + replayed)
            latency_s = consumed.latency_s[replayed:]
            figures = {f"p{share}_ms": 1_000 * percentile(latency_s, share / 100) for share in (50, 99)}
            found.append({"figure": f"{rate}_per_s", **figures})
    return found


def _disk() -> list[Result]:
    """Append an event and sync it, one by one, and a hundred at a time."""
    found: list[Result] = []
    with _directory() as directory:
        for window in WINDOWS:
            descriptor = os.open(directory / "appended", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            turns, began_s = 500, time.monotonic()
            for _ in range(turns):
                os.write(descriptor, bytes(EVENT_BYTES * window))
                os.fdatasync(descriptor)
            rate = turns * window / (time.monotonic() - began_s)
            os.close(descriptor)
            found.append({"section": "publish", "peer": "disk", "figure": f"window_{window}", "events_per_s": rate})
    return found


def goals_of(results: list[Result]) -> list[Goal]:
    """Return the goals, each of the medians over the runs."""

    def of(section: str, peer: str, figure: str, value: str) -> float:
        return median(
            each[value]
            for each in results
            if (each["section"], each.get("peer"), each.get("figure")) == (section, peer, figure)
        )

    def alone(section: str, value: str) -> float:
        return median(each[value] for each in results if each["section"] == section)

    def ratio(section: str, figure: str, value: str, peer: str) -> float:
        other = of(section, peer, figure, value)
        return of(section, "wanderbus", figure, value) / other if other else math.nan

    per_s, deliveries = "events_per_s", "deliveries_per_s"
    durable = of("publish", "wanderbus", "window_100", per_s)
    return [
        goal("durable_window_100_events_per_s", durable, "events/s", least=10_000),
        goal("durable_window_1_vs_disk", ratio("publish", "window_1", per_s, "disk"), "ratio"),
        goal("durable_window_100_vs_redis_streams", ratio("publish", "window_100", per_s, "redis_streams"), "ratio"),
        goal("fsyncs_per_1000_acks_window_1", alone("syncs", "per_1000_acks"), "syncs", least=990),
        goal("delivery_vs_mosquitto_qos1", ratio("deliver", "to_1", deliveries, "mosquitto_qos1"), "ratio", least=1),
        goal(
            "fanout_vs_mosquitto_qos1", ratio("deliver", f"to_{FANOUT}", deliveries, "mosquitto_qos1"), "ratio", least=1
        ),
        goal(
            "latency_p50_20_per_s_vs_jetstream_synced",
            ratio("latency", "20_per_s", "p50_ms", "jetstream_synced"),
            "ratio",
            most=1.5,
        ),
        goal("latency_p50_1000_per_s_vs_jetstream", ratio("latency", "1000_per_s", "p50_ms", "jetstream"), "ratio"),
        goal("restart_1m_queued_s", alone("restart", "ready_s"), "s", most=10),
        goal("bytes_per_idle_user", alone("idle", "bytes_per_user"), "bytes", most=20_000),
        goal("others_p99_ratio", alone("slow", "p99_ratio"), "ratio", most=1.2),
        goal("others_p50_beside_100k_queued", alone("comer", "p50_ratio"), "ratio", most=1.2),
        goal("others_p99_beside_100k_queued", alone("comer", "p99_ratio"), "ratio"),
        goal("reader_beside_unread_vs_alone", alone("unread", "other_events_ratio"), "ratio", least=0.9),
        goal("reader_beside_unread_same_events_vs_alone", alone("unread", "same_events_ratio"), "ratio"),
        goal("full_queues_vs_room", alone("full", "full_queues_vs_room"), "ratio", most=1.3),
        goal(
            "full_queues_of_other_kinds_vs_room", alone("full", "full_queues_of_other_kinds_vs_room"), "ratio", most=1.5
        ),
        goal("backlog_vs_live", alone("growth", "backlog_vs_live"), "ratio", least=0.8),
    ]


def _check_all_came(peer: Peer, consumed: Consumed, wanted: int) -> None:
    if (came := len(consumed.latency_s)) != wanted:
        raise RuntimeError(f"{peer.name}: {came} of {wanted} events came")


def _usable(peer: Peer) -> bool:
    if not (usable := peer.available()):
        progress(f"{peer.name} is not installed, so it is left out")
    return usable


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as name:
        yield Path(name)


if __name__ == "__main__":
    sys.exit(main())
