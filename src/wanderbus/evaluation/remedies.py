"""Remedies for changes of address of unknown duration: a larger buffer, and a limited rate (SPEC S-08).

The consumer is away for a random time at each change, as a service such as DHCP may take. Without a remedy the broker
keeps 100 events and the publisher publishes 20 a second. Each remedy changes one of the two. A seed draws the same
moments and outages for all of them, and each sample has the same duration, so that only the remedy differs.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from wanderbus.evaluation.goals import Goal
from wanderbus.evaluation.grid import RATE_PER_S, Cell, Experiment, Outage, model_loss_percent
from wanderbus.evaluation.outcome import Outcome

BUFFER: Final = 100
PERIOD_S: Final = 30
SAMPLE_S: Final = 100.0


class Remedy(msgspec.Struct, frozen=True):
    """Events that the broker keeps, and events published a second."""

    buffer: int = BUFFER
    rate_per_s: float = RATE_PER_S

    @property
    def cell(self) -> Cell:
        """Return the corresponding cell of the grid."""
        return Cell(self.buffer, PERIOD_S)

    def experiment(self, outage_s: float) -> Experiment:
        """Return its experiment with random outages of this mean."""
        return Experiment(Outage.RANDOM, outage_s, self.rate_per_s, round(self.rate_per_s * SAMPLE_S))


NONE: Final = Remedy()
BUFFERS: Final = (NONE, *(Remedy(buffer=each) for each in (150, 200, 300, 400)))
RATES: Final = (NONE, *(Remedy(rate_per_s=each) for each in (15.0, 10.0, 5.0)))
REMEDIES: Final = (*BUFFERS, *RATES[1:])


class Remedied(msgspec.Struct, frozen=True):
    """The runs with one remedy; losses in percent of what was published."""

    remedy: Remedy
    runs: int
    model_percent: float
    mean_percent: float
    least_percent: float
    most_percent: float
    runs_without_loss: int
    longest_outage_s: float
    unaccounted: int


def summarize(remedy: Remedy, outage_s: float, outcomes: Sequence[Outcome]) -> Remedied:
    """Return the summary of the runs with one remedy."""
    losses = [each.loss_percent for each in outcomes]
    return Remedied(
        remedy=remedy,
        runs=len(outcomes),
        model_percent=model_loss_percent(remedy.cell, remedy.experiment(outage_s)),
        mean_percent=statistics.fmean(losses),
        least_percent=min(losses),
        most_percent=max(losses),
        runs_without_loss=losses.count(0.0),
        longest_outage_s=max((one.outage_s for each in outcomes for one in each.measured), default=0.0),
        unaccounted=sum(each.unaccounted for each in outcomes),
    )


def goals(found: Iterable[Remedied]) -> list[Goal]:
    """Return the goals of the remedies: more of a remedy never loses more, and enough of it loses nothing."""
    loss = {each.remedy: each.mean_percent for each in found}
    held = []
    for name, remedies in (("larger_buffer", BUFFERS), ("limited_rate", RATES)):
        measured = [loss[each] for each in remedies if each in loss]
        worse = sum(more >= less and less > 0 for less, more in pairwise(measured))
        held.append(Goal.exactly(f"{name}_no_better", worse, "pairs of neighbours", 0))
        if remedies[-1] in loss:
            held.append(Goal.exactly(f"{name}_loss_percent", loss[remedies[-1]], "%", 0))
    return held
