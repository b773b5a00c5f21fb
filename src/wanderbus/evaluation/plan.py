"""Plan of one run: the consumer's changes of address, and the events published meanwhile (DESIGN rule 3: a plan is
data).

The consumer changes its address all the time, and the sample is a section of that: the position of its start between
two changes is the run's phase. Events are published from before the sample if a change is then in progress, and until
the last outage is over, so that losses at the edges equal those in the middle.
"""

from __future__ import annotations

import math
from random import Random
from typing import Final

import msgspec

from wanderbus.errors import ConfigurationError
from wanderbus.evaluation.grid import Cell, Experiment, Outage

CONNECTED_S_MIN: Final = 1.0
"""Least time between two outages, for the consumer to receive what waited."""


class AddressChange(msgspec.Struct, frozen=True):
    """A change: the address is lost at second ``at_s`` of the sample; events arrive again ``outage_s`` after the last
    one.
    """

    at_s: float
    outage_s: float


class RunPlan(msgspec.Struct, frozen=True):
    """One run; seconds count from the sample's first event."""

    changes: tuple[AddressChange, ...]
    begin_s: float
    """Time of the first event: before the sample, or with it."""
    first: int
    """Number of the sample's first event; the very first event has number 0."""
    published: int
    """Number of all events, including the sample."""
    experiment: Experiment

    def at_s(self, number: int) -> float:
        """Return the time at which event ``number`` is published."""
        return self.begin_s + number / self.experiment.rate_per_s

    @property
    def end_s(self) -> float:
        """Return the time at which the last event is published."""
        return self.at_s(self.published - 1)


def plan(cell: Cell, experiment: Experiment, phase: float, random: Random) -> RunPlan:
    """Return the plan of a run whose sample begins at ``phase``, from 0 to 1, before a change; ``random`` draws
    outages.
    """
    longest_s = {Outage.OURS: 0.0, Outage.IMPOSED: 1.0, Outage.RANDOM: 1.8}[experiment.outage] * experiment.outage_s
    if longest_s + CONNECTED_S_MIN > cell.period_s:
        raise ConfigurationError(
            f"an outage of {longest_s:g} s leaves no time between changes every {cell.period_s} s; make it shorter"
        )
    sample_s = experiment.sample_s
    moments_s = [(turn + phase) * cell.period_s for turn in range(-1, math.ceil(sample_s / cell.period_s))]
    all_changes = [AddressChange(at_s, experiment.outage.draw(experiment.outage_s, random)) for at_s in moments_s]
    changes = tuple(each for each in all_changes if each.at_s + each.outage_s > 0 and each.at_s < sample_s)
    first = math.ceil(max(0.0, -changes[0].at_s) * experiment.rate_per_s) if changes else 0
    # The consumer leaves after a received event and the pause after that, hence one event more.
    over_s = max((each.at_s + each.outage_s + 2 / experiment.rate_per_s for each in changes), default=0.0)
    published = first + max(experiment.events, math.ceil(over_s * experiment.rate_per_s) + 1)
    return RunPlan(changes, -first / experiment.rate_per_s, first, published, experiment)
