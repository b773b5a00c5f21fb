"""Summary of the runs of each cell, and the goals (SPEC M-04, M-05, S-03)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from wanderbus.evaluation.federation.experiment import Topology, Way
from wanderbus.evaluation.federation.running import FederationOutcome
from wanderbus.evaluation.goals import Goal

COMPARED: Final = range(10, 41)
"""Numbers of domains with which a move costs more in a tree than with a rendezvous.

Fewer have few hops. With more, popular filters of a branch together ask for every value, and cover all others.
"""


class FederationCell(msgspec.Struct, frozen=True):
    """Parameters of the runs."""

    topology: Topology
    domains: int
    way: Way


class FederationSummary(msgspec.Struct, frozen=True):
    """The runs of one cell, as means: of a start, of a move, of a domain, of a cut that heals, and of an event."""

    cell: FederationCell
    runs: int
    start_messages: float
    start_kilobytes: float
    updates: float
    """Messages of a move that tell another domain what is wanted."""
    answers: float
    kilobytes: float
    table_mean: float
    table_max: int
    heal_messages: float
    heal_kilobytes: float
    event_messages: float
    event_bytes: float
    event_ways_ms: float
    delivery_ms: float
    """Mean time from the domain of an event to one that wants it."""
    delivery_ms_max: float
    hops_max: int
    useless: float
    lost: int
    repeated: int
    """Totals of all runs."""


def summarize(outcomes: Iterable[FederationOutcome]) -> list[FederationSummary]:
    """Return the cells that were run, in order."""
    by_cell: dict[FederationCell, list[FederationOutcome]] = {}
    for each in outcomes:
        by_cell.setdefault(FederationCell(each.topology, each.domains, each.way), []).append(each)
    return [_summary(cell, by_cell[cell]) for cell in sorted(by_cell, key=_place)]


def _place(cell: FederationCell) -> tuple[int, int, int]:
    return list(Topology).index(cell.topology), cell.domains, list(Way).index(cell.way)


def _summary(cell: FederationCell, runs: Sequence[FederationOutcome]) -> FederationSummary:
    moves, events = max(1, sum(each.moves for each in runs)), max(1, sum(each.events.count for each in runs))
    deliveries = max(1, sum(each.events.deliveries for each in runs))

    def mean(value: Callable[[FederationOutcome], float], count: int) -> float:
        return sum(value(each) for each in runs) / count

    return FederationSummary(
        cell=cell,
        runs=len(runs),
        start_messages=mean(lambda each: each.start_messages, len(runs)),
        start_kilobytes=mean(lambda each: each.start_bytes / 1_000, len(runs)),
        updates=mean(lambda each: each.move_updates, moves),
        answers=mean(lambda each: each.move_answers, moves),
        kilobytes=mean(lambda each: each.move_bytes / 1_000, moves),
        table_mean=mean(lambda each: each.table_mean, len(runs)),
        table_max=max(each.table_max for each in runs),
        heal_messages=mean(lambda each: each.heal_messages, len(runs)),
        heal_kilobytes=mean(lambda each: each.heal_bytes / 1_000, len(runs)),
        event_messages=mean(lambda each: each.events.messages, events),
        event_bytes=mean(lambda each: each.events.bytes, events),
        event_ways_ms=1_000 * mean(lambda each: each.events.ways_s, events),
        delivery_ms=1_000 * mean(lambda each: each.events.deliveries_s, deliveries),
        delivery_ms_max=1_000 * max(each.events.delivery_s_max for each in runs),
        hops_max=max(each.events.hops_max for each in runs),
        useless=mean(lambda each: each.events.useless, events),
        lost=sum(each.events.lost for each in runs),
        repeated=sum(each.events.repeated for each in runs),
    )


def goals(summaries: Sequence[FederationSummary]) -> list[Goal]:
    """Return the goals of the cells that were run."""
    found = [
        Goal.exactly(name, sum(getattr(each, name) for each in summaries), "events", 0) for name in ("lost", "repeated")
    ]
    direct = [each.useless for each in summaries if each.cell.way in (Way.MULTICAST, Way.RENDEZVOUS)]
    found.append(Goal.exactly("useless_events_without_hops", sum(direct), "messages", 0))
    updates = {each.cell: each.updates for each in summaries}
    cheaper = 0
    for cell, of_tree in updates.items():
        other = updates.get(FederationCell(cell.topology, cell.domains, Way.RENDEZVOUS))
        if cell.way is Way.TREE and cell.domains in COMPARED and other is not None:
            cheaper += of_tree <= other
    found.append(Goal.exactly("cells_in_which_moves_cost_less_in_a_tree", cheaper, "cells", 0))
    return found
