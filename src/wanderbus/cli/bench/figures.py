"""Figures of a measurement: rates, percentiles and counts, from what publishers and subscribers have recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from wanderbus.cli.demo.account import account_of
from wanderbus.evaluation.percentiles import percentile


class Spread(msgspec.Struct, frozen=True):
    """Percentiles of times, in milliseconds."""

    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float

    def __str__(self) -> str:
        """Return the percentiles in one line."""
        return f"p50 {self.p50_ms:.2f}, p90 {self.p90_ms:.2f}, p99 {self.p99_ms:.2f}, max {self.max_ms:.2f} ms"


def spread_of(times_s: Sequence[float]) -> Spread | None:
    """Return the percentiles of ``times_s``; None if there are none."""
    if not times_s:
        return None
    p50_ms, p90_ms, p99_ms, max_ms = (_ms(percentile(times_s, share)) for share in (0.5, 0.9, 0.99, 1.0))
    return Spread(len(times_s), p50_ms, p90_ms, p99_ms, max_ms)


class BenchFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a command: what was asked for, what was measured, and whether the measurement came to its end.

    ``acceptance`` is the time from the publication of an event until it is durable at the server, ``latency`` that
    until a subscriber has it; with a rate, both count from the time at which the event was due. ``delivered`` counts
    the events of all subscribers. ``lost`` are those that did not arrive, ``outstanding`` those that had not arrived
    yet when the measurement was ended early. ``connection`` is the time from a move until the agent is connected again,
    ``gap`` the longest pause between two events from there to the next move.
    """

    command: str
    is_complete: bool
    subject: str
    events: int
    size_bytes: int
    publishers: int
    subscribers: int
    seconds: float
    accepted: int
    accepted_per_s: float
    accepted_bytes: int
    acceptance: Spread | None
    delivered: int = 0
    delivered_per_s: float = 0.0
    delivered_bytes: int = 0
    latency: Spread | None = None
    lost: int = 0
    outstanding: int = 0
    repeated: int = 0
    out_of_order: int = 0
    moves: int = 0
    connection: Spread | None = None
    gap: Spread | None = None

    @property
    def is_good(self) -> bool:
        """Return whether the measurement is complete, and each event came once and in order."""
        return self.is_complete and not (self.lost or self.repeated or self.out_of_order)

    def lines(self) -> Iterator[str]:
        """Yield the figures for people."""
        rate, megabytes = self.accepted_per_s, self.accepted_bytes / 1e6
        yield (
            f"published  {self.accepted:,} of {self.events:,} events of {self.size_bytes:,} bytes in "
            f"{self.seconds:.2f} s: {rate:,.0f} events/s, {megabytes / max(self.seconds, 1e-9):.2f} MB/s"
        )
        if self.acceptance is not None:
            yield f"acceptance {self.acceptance}"
        if self.subscribers:
            yield f"delivered  {self.delivered:,} events to {self.subscribers:,}: {self.delivered_per_s:,.0f} events/s"
        if self.latency is not None:
            yield f"latency    {self.latency}"
        if self.connection is not None:
            yield f"connected  {self.connection}, after {self.moves:,} {'move' if self.moves == 1 else 'moves'}"
        if self.gap is not None:
            yield f"gap        {self.gap}"
        if self.subscribers:
            waiting = f", {self.outstanding:,} outstanding" if self.outstanding else ""
            wrong = f"{self.lost:,} lost, {self.repeated:,} repeated, {self.out_of_order:,} out of order"
            yield f"account    {wrong}{waiting}"


class Recorded:
    """Records of a measurement while it runs; times are of one monotonic clock."""

    def __init__(self, publishers: int, subscribers: int) -> None:
        self.due_s: list[dict[int, float]] = [{} for _ in range(publishers)]
        """Time at which each event was due, by its number, for each publisher."""
        self.acceptance_s: list[float] = []
        self.accepted: list[list[int]] = [[] for _ in range(publishers)]
        self.arrived: list[list[list[int]]] = [[[] for _ in range(publishers)] for _ in range(subscribers)]
        """Numbers of the events in the order of their arrival, for each subscriber and publisher."""
        self.arrivals_s: list[list[float]] = [[] for _ in range(subscribers)]
        self.latency_s: list[float] = []
        self.moves_s: list[float] = []
        """Times at which the agent changed its address."""
        self.connection_s: list[float] = []
        self.began_s: float | None = None
        self.last_s = 0.0
        """Time of the last acceptance or arrival."""

    def on_due(self, publisher: int, number: int, due_s: float) -> None:
        """Record that an event is due, before it is published."""
        self.began_s = due_s if self.began_s is None else self.began_s
        self.due_s[publisher][number] = due_s

    def on_accepted(self, publisher: int, number: int, now_s: float) -> None:
        """Record that an event is durable at the server."""
        self.accepted[publisher].append(number)
        self.acceptance_s.append(now_s - self.due_s[publisher][number])
        self.last_s = now_s

    def on_arrived(self, subscriber: int, publisher: int, number: int, now_s: float) -> None:
        """Record an event at a subscriber; one that was never published is ignored."""
        if not 0 <= publisher < len(self.due_s) or (due_s := self.due_s[publisher].get(number)) is None:
            return
        self.arrived[subscriber][publisher].append(number)
        self.arrivals_s[subscriber].append(now_s)
        self.latency_s.append(now_s - due_s)
        self.last_s = now_s

    @property
    def accepted_count(self) -> int:
        """Return the number of events that are durable."""
        return sum(map(len, self.accepted))

    @property
    def delivered_count(self) -> int:
        """Return the number of events that arrived at all subscribers together, repeated ones included."""
        return sum(map(len, self.arrivals_s))

    @property
    def is_all_delivered(self) -> bool:
        """Return whether each subscriber has each event that was accepted."""
        if self.delivered_count < self.accepted_count * len(self.arrived):
            return False
        return all(
            len(set(numbers)) >= len(accepted)
            for arrived in self.arrived
            for accepted, numbers in zip(self.accepted, arrived, strict=True)
        )

    def counts(self) -> Mapping[str, int]:
        """Return how many events did not arrive, came again, or came in the wrong order."""
        accounts = [
            account_of("", accepted, numbers)
            for arrived in self.arrived
            for accepted, numbers in zip(self.accepted, arrived, strict=True)
        ]
        names = ("lost", "repeated", "out_of_order")
        return {name: sum(getattr(each, name) for each in accounts) for name in names}

    def gaps_s(self) -> list[float]:
        """Return, for each move of the first subscriber, the longest pause between two events up to the next move.

        A pause counts for the move that it contains, and for the last one before it.
        """
        if not self.arrivals_s or not self.moves_s:
            return []
        pauses = list(pairwise(self.arrivals_s[0]))
        ends = [*self.moves_s[1:], float("inf")]
        found = []
        for move_s, end_s in zip(self.moves_s, ends, strict=True):
            during = [later - earlier for earlier, later in pauses if later > move_s and earlier < end_s]
            if during:
                found.append(max(during))
        return found


def figures_of(
    command: str,
    recorded: Recorded,
    *,
    subject: str,
    events: int,
    size_bytes: int,
    is_complete: bool,
    may_lack: bool,
) -> BenchFigures:
    """Return the figures of what was recorded.

    :param is_complete: True if the measurement was not ended early
    :param may_lack: True if events may still be on their way: then those without an arrival are no loss
    """
    began_s = recorded.last_s if recorded.began_s is None else recorded.began_s
    seconds = max(0.0, recorded.last_s - began_s)
    accepted, delivered = recorded.accepted_count, recorded.delivered_count
    counts = dict(recorded.counts())
    lacking = counts.pop("lost")
    return BenchFigures(
        command=command,
        is_complete=is_complete,
        subject=subject,
        events=events,
        size_bytes=size_bytes,
        publishers=len(recorded.due_s),
        subscribers=len(recorded.arrived),
        seconds=round(seconds, 6),
        accepted=accepted,
        accepted_per_s=_rate(accepted, seconds),
        accepted_bytes=accepted * size_bytes,
        acceptance=spread_of(recorded.acceptance_s),
        delivered=delivered,
        delivered_per_s=_rate(delivered, seconds),
        delivered_bytes=delivered * size_bytes,
        latency=spread_of(recorded.latency_s),
        lost=0 if may_lack else lacking,
        outstanding=lacking if may_lack else 0,
        moves=len(recorded.moves_s),
        connection=spread_of(recorded.connection_s),
        gap=spread_of(recorded.gaps_s()),
        **counts,
    )


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 1) if seconds > 0 else 0.0


def _ms(seconds: float) -> float:
    return round(1_000 * seconds, 3)
