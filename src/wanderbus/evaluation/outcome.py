"""Outcome of a run, and the summary of many runs of a cell."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, Self

import msgspec

from wanderbus.evaluation.goals import Goal
from wanderbus.evaluation.grid import APART, PUBLISHED, TOLERANCE_POINTS, Cell, Experiment, Outage, model_loss_percent
from wanderbus.evaluation.plan import RunPlan
from wanderbus.evaluation.roaming import Measured

LOSSLESS: Final = (Cell(200, 60), Cell(200, 30))
"""Cells in which, according to the paper, nothing is lost."""


class Receipts(msgspec.Struct):
    """Events that the consumer received: their numbers in order of arrival, and how many were dropped between them.

    Everything published is for the consumer's one subscription, so it has a place of its own in its session's stream,
    and a gap covers the places since the last item.
    """

    numbers: list[int] = msgspec.field(default_factory=list)
    dropped: int = 0
    marked: int = 0
    """Drops reported by gap markers; more than their places if the broker dropped events in flight."""
    place: int = 0
    """Place of the last item."""

    def event(self, number: int, place: int) -> None:
        """Record event ``number``."""
        self.numbers.append(number)
        self.place = place

    def gap(self, count: int, place: int) -> None:
        """Record a marker of ``count`` drops that ends at ``place``."""
        self.dropped += place - self.place
        self.marked += count
        self.place = place

    @property
    def accounted(self) -> int:
        """Return the number of events whose outcome the consumer knows."""
        return len(self.numbers) + self.dropped


class Outcome(msgspec.Struct, frozen=True):
    """One run of one cell."""

    cell: Cell
    outage: Outage
    run: int
    """The seed in virtual time, the number of the run in real time."""
    published: int
    received: int
    dropped: int
    marked: int
    """Events that gap markers reported as dropped."""
    repeated: int
    """Events that were received again, or out of order."""
    sample_lost: int
    loss_percent: float
    """Loss of the sample: published less received (SPEC R-02)."""
    changes: int
    measured: tuple[Measured, ...]

    @property
    def unaccounted(self) -> int:
        """Return how many events were neither received nor dropped, or were both: 0 after the last reconnection."""
        return abs(self.published - self.received - self.dropped) + self.repeated + self.changes - len(self.measured)


def outcome(cell: Cell, run: int, plan: RunPlan, receipts: Receipts, measured: Sequence[Measured]) -> Outcome:
    """Return the outcome of a run."""
    numbers = receipts.numbers
    events = plan.experiment.events
    in_sample = {number for number in numbers if plan.first <= number < plan.first + events}
    lost = events - len(in_sample)
    return Outcome(
        cell=cell,
        outage=plan.experiment.outage,
        run=run,
        published=plan.published,
        received=len(numbers),
        dropped=receipts.dropped,
        marked=receipts.marked,
        repeated=sum(after <= before for before, after in pairwise(numbers)),
        sample_lost=lost,
        loss_percent=100 * lost / events,
        changes=len(plan.changes),
        measured=tuple(measured),
    )


class Times(msgspec.Struct, frozen=True):
    """Summary of the times of all changes in a cell."""

    p50_s: float
    max_s: float

    @classmethod
    def of(cls, values_s: Sequence[float]) -> Self | None:
        """Return the summary of ``values_s``, None if there are none."""
        return cls(statistics.median(values_s), max(values_s)) if values_s else None


class CellSummary(msgspec.Struct, frozen=True):
    """The runs of one cell; losses in percent."""

    cell: Cell
    outage: Outage
    runs: int
    published_percent: float | None
    """Published loss; None if the paper's experiment was another one."""
    model_percent: float
    mean_percent: float
    deviation_percent: float
    """Standard deviation between runs; 0 for a single run."""
    least_percent: float
    most_percent: float
    outages: Times | None
    healings: Times | None
    unaccounted: int

    @property
    def difference_points(self) -> float | None:
        """Return how far the mean is above the published loss."""
        return None if self.published_percent is None else self.mean_percent - self.published_percent


def summarize(experiment: Experiment, outcomes: Iterable[Outcome]) -> list[CellSummary]:
    """Return the cells of one experiment that were run, in the order of the table."""
    by_cell: dict[Cell, list[Outcome]] = {}
    for each in outcomes:
        by_cell.setdefault(each.cell, []).append(each)
    return [_summary(cell, experiment, by_cell[cell]) for cell in PUBLISHED if cell in by_cell]


def _summary(cell: Cell, experiment: Experiment, outcomes: Sequence[Outcome]) -> CellSummary:
    losses = [each.loss_percent for each in outcomes]
    measured = [one for each in outcomes for one in each.measured]
    return CellSummary(
        cell=cell,
        outage=experiment.outage,
        runs=len(outcomes),
        published_percent=PUBLISHED[cell] if experiment.as_published else None,
        model_percent=model_loss_percent(cell, experiment),
        mean_percent=statistics.fmean(losses),
        deviation_percent=statistics.stdev(losses) if len(losses) > 1 else 0.0,
        least_percent=min(losses),
        most_percent=max(losses),
        outages=Times.of([one.outage_s for one in measured]),
        healings=Times.of([one.healing_s for one in measured]),
        unaccounted=sum(each.unaccounted for each in outcomes),
    )


def goals(summaries: Sequence[CellSummary]) -> list[Goal]:
    """Return the goals of ``summaries``, of one or more experiments; none for what was not run."""
    found = []
    compared = [s for s in summaries if s.difference_points is not None and s.cell != APART]
    if compared:
        near = sum(abs(s.difference_points or 0.0) <= TOLERANCE_POINTS for s in compared)
        found.append(Goal.exactly("cells_within_5_points", near, "cells", len(compared)))
        imposed = [s for s in summaries if s.published_percent is not None]
        found.append(Goal.exactly("trends_broken", _trends_broken(imposed), "pairs of cells", 0))
        lossless = [s.most_percent for s in imposed if s.cell in LOSSLESS]
        found += [Goal.exactly("loss_with_buffer_200_max_percent", max(lossless), "%", 0)] if lossless else []
    ours = [s.most_percent for s in summaries if s.outage is Outage.OURS]
    if ours:
        found.append(Goal.exactly("loss_with_ours_max_percent", max(ours), "%", 0))
    return [*found, Goal.exactly("unaccounted_events", sum(s.unaccounted for s in summaries), "events", 0)]


def _trends_broken(summaries: Sequence[CellSummary]) -> int:
    """Return the number of neighbouring pairs in which loss grows with the buffer, or with the period."""
    loss: Mapping[Cell, float] = {s.cell: s.mean_percent for s in summaries}
    buffers, periods = ((100, 150), (150, 200)), ((20, 30), (30, 60))
    pairs = [(Cell(few, p), Cell(many, p)) for few, many in buffers for p in (20, 30, 60)]
    pairs += [(Cell(b, short), Cell(b, long)) for short, long in periods for b in (100, 150, 200)]
    return sum(loss.get(more, math.inf) < loss.get(less, -math.inf) for more, less in pairs)
