"""Summary of the runs of each cell, and the goals (SPEC R-07, S-07)."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from wanderbus.evaluation.goals import Goal
from wanderbus.evaluation.handover.counted_cases import CountedCase
from wanderbus.evaluation.handover.experiment import Movement, Routing
from wanderbus.evaluation.handover.running import HandoverOutcome

EXPECTED: Final = (0, 1, 1, 2)
"""Messages to the channel in the four cases (SPEC L-03)."""


class HandoverCell(msgspec.Struct, frozen=True):
    """Parameters of the runs."""

    movement: Movement
    servers: int
    source_percent: int
    target_percent: int
    routing: Routing


class Durations(msgspec.Struct, frozen=True):
    """Median and maximum."""

    p50_ms: float
    max_ms: float


class HandoverSummary(msgspec.Struct, frozen=True):
    """The runs of one cell; figures of a handover are means over all sessions that have moved, None without any."""

    cell: HandoverCell
    runs: int
    moves: int
    updates: float | None
    """Messages that change the interest of a server elsewhere."""
    other_messages: float | None
    """Answers to them, and all other messages of the handovers."""
    kilobytes: float | None
    """Bytes of all these messages."""
    whole: Durations | None
    """Time from the walk into another cell until the session is served there."""
    pause: Durations | None
    """Time of it in which no server serves the session."""
    event_messages: float
    """Messages of an event."""
    lost: int
    repeated: int
    out_of_order: int
    """Totals of all runs."""
    group_moves: int
    group_messages: float | None
    group_kilobytes: float | None
    group_rows: float | None
    group_pause: Durations | None
    """Messages, bytes, copied subscriptions and pause of the move of a channel group."""


def summarize(outcomes: Iterable[HandoverOutcome]) -> list[HandoverSummary]:
    """Return the cells that were run, in order."""
    by_cell: dict[HandoverCell, list[HandoverOutcome]] = {}
    for each in outcomes:
        cell = HandoverCell(each.movement, each.servers, each.source_percent, each.target_percent, each.routing)
        by_cell.setdefault(cell, []).append(each)
    return [_summary(cell, by_cell[cell]) for cell in sorted(by_cell, key=_place)]


def _place(cell: HandoverCell) -> tuple[int, int, int, int, int]:
    movement, routing = list(Movement).index(cell.movement), list(Routing).index(cell.routing)
    return movement, cell.servers, cell.source_percent, cell.target_percent, routing


def _summary(cell: HandoverCell, runs: Sequence[HandoverOutcome]) -> HandoverSummary:
    moves = sum(each.moves for each in runs)
    groups = [move for each in runs for move in each.group_moves]
    handovers = [handover for each in runs for handover in each.handovers]
    return HandoverSummary(
        cell=cell,
        runs=len(runs),
        moves=moves,
        updates=_mean(sum(each.updates for each in runs), moves),
        other_messages=_mean(sum(each.answers + each.control for each in runs), moves),
        kilobytes=_mean(sum(each.control_bytes for each in runs) / 1_000, moves),
        whole=_durations([each.whole_s for each in handovers]),
        pause=_durations([each.pause_s for each in handovers]),
        event_messages=sum(each.event_messages for each in runs) / max(1, sum(each.events for each in runs)),
        lost=sum(each.lost for each in runs),
        repeated=sum(each.repeated for each in runs),
        out_of_order=sum(each.out_of_order for each in runs),
        group_moves=len(groups),
        group_messages=_mean(sum(each.group_messages for each in runs), len(groups)),
        group_kilobytes=_mean(sum(each.group_bytes for each in runs) / 1_000, len(groups)),
        group_rows=_mean(sum(each.rows for each in groups), len(groups)),
        group_pause=_durations([each.pause_s for each in groups]),
    )


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None


def _durations(seconds: Sequence[float]) -> Durations | None:
    return Durations(1_000 * statistics.median(seconds), 1_000 * max(seconds)) if seconds else None


def diagonal(summaries: Iterable[HandoverSummary], routing: Routing) -> list[HandoverSummary]:
    """Return the cells of ``once`` with one saturation at source and target, by rising saturation."""
    return [
        each
        for each in summaries
        if each.cell.movement is Movement.ONCE
        and each.cell.routing is routing
        and each.cell.source_percent == each.cell.target_percent
    ]


def goals(summaries: Sequence[HandoverSummary], cases: Sequence[CountedCase]) -> list[Goal]:
    """Return the goals of the cells that were run, and of the counted cases."""
    found = [
        Goal.exactly(f"channel_updates_2x2_{case.name}", case.servers.updates, "messages", expected)
        for case, expected in zip(cases, EXPECTED, strict=True)
    ]
    differing = sum(case.servers != case.model for case in cases)
    found.append(Goal.exactly("cases_in_which_the_model_differs", differing, "cases", 0))
    ours = diagonal(summaries, Routing.RENDEZVOUS)
    if full := [each.updates for each in ours if each.cell.source_percent == 100 and each.updates is not None]:
        found.append(Goal.exactly("updates_at_full_saturation", max(full), "messages", 0))
    updates = [each.updates for each in ours if each.updates is not None]
    rises = sum(later >= earlier for earlier, later in pairwise(updates))
    if len(updates) > 1:
        found.append(Goal.exactly("saturations_without_fewer_updates", rises, "steps", 0))
    for name in ("lost", "repeated", "out_of_order"):
        found.append(Goal.exactly(name, sum(getattr(each, name) for each in summaries), "events", 0))
    return found
