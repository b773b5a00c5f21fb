"""Redundant ways between domains: events that come twice, or not at all, of ours and of NATS leaf nodes.

*Pairs* are two domains of two servers each, joined by two links, one for each pair of servers; publisher and subscriber
are at the second ones. A *ring* is three domains of one server, each of which has a link to the two others.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench import federation_nats
from bench.broker_nats import program
from bench.broker_peer import Place
from bench.domain_servers import Pace
from bench.federation_domains import TYPES, Received, consume, federated, wait_until_known
from bench.federation_processes import Task, publishing
from harness.reporting import Goal, goal, progress
from harness.workers import Worker

Row = Mapping[str, Any]

PER_S: Final = 500.0
KNOWN_S: Final = 2.0
"""Time until servers of NATS know a subscription elsewhere, and have found a loop."""

SETTLED_S: Final = 3.0
"""Time for what comes late, or twice."""


def measured(events: int) -> list[Row]:
    """Return events that were published and received, for each layout, of ours and of NATS if it is installed."""
    rows = []
    for layout, domains, servers in (("pairs", 2, 2), ("ring", 3, 1)):
        progress(f"redundant links: {layout}")
        with _directory() as directory, federated(directory, domains, servers) as places:
            alpha, beta = places[0][-1], places[1][-1]

            def know(first: Sequence[Place] = places[0]) -> None:
                wait_until_known(first, len(TYPES))

            received = _sent(Task(consume, (beta, TYPES)), publishing(alpha, TYPES), events, know)
        rows.append(_row("wanderbus", layout, events, received, 0))
    if program() is not None:
        rows += [_nats("pairs", events), _nats("ring", events)]
    return rows


def _nats(layout: str, events: int) -> Row:
    progress(f"redundant links: {layout} of NATS")
    running = federation_nats.pairs if layout == "pairs" else federation_nats.ring
    with _directory() as directory, running(directory) as places:
        publisher, subscriber = (places[1], places[3]) if layout == "pairs" else places[:2]
        reader = Task(federation_nats.consume, (subscriber, False, federation_nats.PASSED))
        task = Task(federation_nats.publish, (publisher, False, federation_nats.PASSED))
        received = _sent(reader, task, events, lambda: time.sleep(KNOWN_S))
        return _row("nats", layout, events, received, federation_nats.loops(directory))


def _sent(reader: Task, publisher: Task, events: int, know: Callable[[], None]) -> Received:
    """Publish events at an even pace once the subscription is known; return what came."""
    with Worker() as subscribing, Worker() as sending:
        subscribing.start(reader.job, *reader.arguments).receive()
        know()
        sending.start(publisher.job, *publisher.arguments, Pace(events, per_s=PER_S)).receive()
        sending.send()
        sending.receive()
        time.sleep(SETTLED_S)
        subscribing.send(None)
        received: Received = subscribing.receive()
    return received


def _row(of: str, layout: str, events: int, received: Received, loops: int) -> Row:
    repeated = received.events - received.different
    return {
        "of": of,
        "layout": layout,
        "published": events,
        "repeated": repeated,
        "undelivered": events - received.different,
        "loops_found": loops,
    }


def goals_of(rows: Sequence[Row]) -> list[Goal]:
    """Return that ours repeats and loses nothing, and the figures of NATS."""
    ours = [row for row in rows if row["of"] == "wanderbus"]
    goals = [goal(f"redundant_{name}", sum(row[name] for row in ours), "events", most=0) for name in _COUNTED]
    theirs = [row for row in rows if row["of"] == "nats"]
    if theirs:
        goals.append(goal("nats_leaf_duplicates", sum(row["repeated"] for row in theirs), "events"))
        for row in theirs:
            goals.append(goal(f"nats_{row['layout']}_undelivered", row["undelivered"], "events"))
            goals.append(goal(f"nats_{row['layout']}_loops_found", row["loops_found"], "times"))
    return goals


_COUNTED: Final = ("repeated", "undelivered")


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as name:
        yield Path(name)
