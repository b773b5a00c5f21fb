"""Healing time after a change of address: ours beside QUIC migration and MQTT reconnection.

Each system has two hosts, network namespaces joined by a cable (needs root). Events are published at 100 a second at
the one; at the other the subscriber loses its address and gets another. Ours is the whole system, sealed: registrar,
broker, and an event log that is synced before anything is delivered; its agent finds out about the move by itself. QUIC
(aioquic) has no broker behind it and sends a PING at once; MQTT (Mosquitto, paho-mqtt, QoS 1) reconnects at once. Time
counts from when the new address can be used to the first event that was published after the old one was gone. Systems
take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from bench.heal_jobs import Move, System, follow, publish
from bench.heal_mqtt import Mqtt
from bench.heal_ours import Ours
from bench.heal_quic import Quic
from harness.reporting import Goal, finish, goal, median, percentile, progress
from harness.two_hosts import NEAR_ADDRESSES, Hosts, hosts
from harness.workers import Worker, WorkerError
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.namespaces import missing

HEAL_P50_VS_QUIC_MAX: Final = 2.0
STEADY_S: Final = 0.3
"""Time for which events flow before a move."""

AFTER_S: Final = 0.2
"""Time for which events flow after healing, to observe late and repeated ones."""


class Subject(System, Protocol):
    """A system and its server."""

    def server(self, pair: Hosts) -> contextlib.AbstractContextManager[Mapping[str, Any]]:
        """Run the server for the block; yield the options of the two ends."""


SUBJECTS: Final[Mapping[str, Callable[[], Subject]]] = {
    "ours": lambda: Ours("udp"),
    "ours over TCP": lambda: Ours("tcp"),
    "quic": Quic,
    "mqtt": Mqtt,
}
OURS: Final = ("ours", "ours over TCP")


class Running(NamedTuple):
    """A running system, and its two ends."""

    name: str
    subscriber: Worker
    publisher: Worker
    state: dict[str, int]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status."""
    options = _options(arguments)
    if reason := missing("mosquitto"):
        print(f"bench heal cannot run: {reason}", file=sys.stderr)
        return 2
    try:
        moves = measure(options.moves)
    except (WorkerError, CannotRunError) as error:
        print(error, file=sys.stderr)
        return 2
    gaps_ms = {name: [_ms(move) for move in moves if move.system == name] for name in SUBJECTS}
    for name, values in gaps_ms.items():
        own = [move for move in moves if move.system == name]
        print(
            f"{name}: p50 {percentile(values, 0.5):.1f} ms, p90 {percentile(values, 0.9):.1f} ms, "
            f"most {max(values):.1f} ms, lost {sum(move.lost for move in own)}, "
            f"repeated {sum(move.repeated for move in own)} ({len(values)} moves)"
        )
    return finish(
        "bench heal",
        [move._asdict() for move in moves],
        _goals(moves, gaps_ms),
        file=options.json,
        strict=options.strict,
    )


def measure(moves: int) -> list[Move]:
    """Let every system move so many times, in turn."""
    measured: list[Move] = []
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(_running(name)) for name in SUBJECTS]
        for turn in range(moves):
            progress(f"move {turn + 1} of {moves}")
            measured += [move(each) for each in running]
        for each in running:
            each.publisher.send(None)
            each.subscriber.send(None)
    return measured


def move(running: Running) -> Move:
    """Publish, change the address of the subscriber meanwhile, and count."""
    state = running.state
    running.publisher.send(state["number"])
    # Moves must not synchronise with the events.
    time.sleep(STEADY_S + random.uniform(0.0, 0.05))
    old, new = NEAR_ADDRESSES[state["place"]], NEAR_ADDRESSES[1 - state["place"]]
    state["place"] = 1 - state["place"]
    running.subscriber.send((old, new))
    running.subscriber.receive()
    time.sleep(AFTER_S)
    running.publisher.send("stop")
    published: tuple[int, int] = running.publisher.receive()
    state["number"] = published[1]
    running.subscriber.send(published)
    result: Move = running.subscriber.receive()
    return result


@contextlib.contextmanager
def _running(name: str) -> Iterator[Running]:
    progress(f"starting {name}")
    subject = SUBJECTS[name]()
    with (
        hosts() as pair,
        subject.server(pair) as options,
        Worker(namespace=pair.far) as publisher,
        Worker(namespace=pair.near) as subscriber,
    ):
        publisher.start(publish, subject, options).receive()
        subscriber.start(follow, name, subject, options).receive()
        yield Running(name, subscriber, publisher, {"number": 0, "place": 0})


def _ms(move: Move) -> float:
    return math.inf if move.gap_s is None else move.gap_s * 1e3


def _goals(moves: Sequence[Move], gaps_ms: Mapping[str, list[float]]) -> list[Goal]:
    ours = [move for move in moves if move.system in OURS]
    p50 = {name: median(values) for name, values in gaps_ms.items()}
    return [
        goal("heal_p50_vs_quic", p50["ours"] / p50["quic"], "ratio", most=HEAL_P50_VS_QUIC_MAX),
        goal("heal_p50_over_tcp_vs_quic", p50["ours over TCP"] / p50["quic"], "ratio"),
        goal("heal_p50_vs_mqtt", p50["ours"] / p50["mqtt"], "ratio"),
        goal("lost", sum(move.lost for move in ours), "events", most=0),
        goal("repeated", sum(move.repeated for move in ours), "events", most=0),
    ]


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./do bench heal", description=__doc__)
    parser.add_argument("--moves", type=int, help="moves of each system (default 20; 5 with --quick)")
    parser.add_argument("--quick", action="store_true", help="few moves")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file as JSON")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a goal is not met")
    options = parser.parse_args(arguments)
    options.moves = options.moves or (5 if options.quick else 20)
    return options
