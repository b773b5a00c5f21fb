"""Bytes that causal order adds to an event between the servers of a domain, in virtual time (SPEC K-06).

Ten servers that have run for long publish events of many types, a fifth of them in reply to a delivery. A type
interests three of the servers on average; few types make most of the events. Disks sync in 0.2 to 10 ms, links take 1
to 5 ms. Counted is every header, and the settled mark in every acknowledgement.
"""

from __future__ import annotations

import argparse
from bisect import bisect
from itertools import accumulate
from pathlib import Path
from typing import Final

import msgspec

from harness.reporting import finish, goal
from wanderbus.channels.causal.interface import Acked, Carried, CausalLimits, Deliver, Marked, Message, PublishTo
from wanderbus.machine import Output
from wanderbus.simulation.domains.causal_node import CausalLinks, CausalNode
from wanderbus.simulation.world import World

SERVERS: Final = 10
TYPES: Final = 100
INTERESTED: Final = 3.0
REPLIES: Final = 0.2
LINK_S_MAX: Final = 0.005
PUBLISHED_BEFORE: Final = 10_000_000
"""Events of each server before the measurement."""

GOAL_RATE_PER_S: Final = 500.0
_MESSAGE: Final = msgspec.msgpack.Decoder(Message)


class Counts(msgspec.Struct):
    """Figures of one run; ``down`` servers are away."""

    rate_per_s: float
    down: int
    events: int = 0
    copies: int = 0
    header_bytes: int = 0
    mark_bytes: int = 0
    bytes_per_copy: float = 0.0


class CountedLinks(CausalLinks):
    """Links that count the bytes of causal order."""

    def __init__(self, domain: Domain, nodes: dict[int, CausalNode], counts: Counts) -> None:
        super().__init__(domain, nodes, LINK_S_MAX)
        self._counts = counts

    def send(self, source: int, destination: int, session: int, data: bytes) -> None:
        """Count a message, and send it."""
        match _MESSAGE.decode(data):
            case Carried(header=header):
                self._counts.copies += 1
                self._counts.header_bytes += len(header)
            case Acked(settled_more=more, lagging=lagging) | Marked(settled_more=more, lagging=lagging):
                self._counts.mark_bytes += len(msgspec.msgpack.encode(more)) + len(msgspec.msgpack.encode(lagging))
        super().send(source, destination, session, data)


class Domain:
    """Servers with filtered traffic; the last ``down`` of them are away all the time."""

    def __init__(self, counts: Counts, seconds: float) -> None:
        self.world = World(7)
        self.limits = CausalLimits()
        self.nodes: dict[int, CausalNode] = {}
        self.links = CountedLinks(self, self.nodes, counts)
        self._counts = counts
        self._seconds = seconds
        draw = self.world.random
        self._interest = [
            frozenset(server for server in range(SERVERS) if draw.random() < INTERESTED / SERVERS) for _ in range(TYPES)
        ]
        self._popularity = list(accumulate(1 / (rank + 1) for rank in range(TYPES)))
        for server in range(SERVERS):
            self.nodes[server] = CausalNode(self, server)
            self.nodes[server].machine.outgoing.last = PUBLISHED_BEFORE

    def run(self) -> None:
        """Publish at the rate, and count."""
        up = range(SERVERS - self._counts.down)
        for one in up:
            for other in up[:one]:
                self.links.watch(other, one)
        when, own_rate = 0.1, self._counts.rate_per_s * (1 - REPLIES)
        while (when := when + self.world.random.expovariate(own_rate)) < self._seconds:
            server = self.world.random.choice(up)
            self.world.at(when, lambda server=server: self._publish(self.nodes[server]))  # type: ignore[misc]
        self.world.run(self._seconds)
        total = self._counts.header_bytes + self._counts.mark_bytes
        self._counts.bytes_per_copy = round(total / max(1, self._counts.copies), 2)

    def reported(self, node: CausalNode, output: Output) -> None:
        """Reply to some of the deliveries."""
        if isinstance(output, Deliver) and self.world.random.random() < REPLIES / (1 - REPLIES) / INTERESTED:
            self.world.after(self.world.random.uniform(0.0, 0.1), lambda: self._publish(node))

    def _publish(self, node: CausalNode) -> None:
        rank = bisect(self._popularity, self.world.random.random() * self._popularity[-1])
        self._counts.events += 1
        node.feed(PublishTo(self._interest[rank] - {node.server}, b""))


def measure(rate_per_s: float, seconds: float, *, down: int = 0) -> Counts:
    """Return the counts of a run; ``down`` servers are away while events wait for them."""
    counts = Counts(rate_per_s, down)
    Domain(counts, seconds).run()
    return counts


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status."""
    parser = argparse.ArgumentParser(prog="bench causal", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="virtual seconds of a run (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report to FILE")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if the goal is not met")
    options = parser.parse_args(arguments)
    runs = [(50.0, 0), (GOAL_RATE_PER_S, 0), (GOAL_RATE_PER_S, 1), (2_000.0, 0)]
    results = []
    for rate_per_s, down in runs:
        results.append(measure(rate_per_s, options.seconds, down=down))
        print(results[-1], flush=True)
    goals = [
        goal("causal_bytes_per_event", results[1].bytes_per_copy, "bytes", most=24),
        goal("causal_bytes_per_event_server_away", results[2].bytes_per_copy, "bytes"),
        goal("causal_bytes_per_event_2000_per_s", results[3].bytes_per_copy, "bytes"),
    ]
    return finish("bench causal", results, goals, file=options.json, strict=options.strict)
