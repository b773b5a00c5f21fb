"""Grid of the paper's Table 2: its cells, the published losses, and the prediction of a model (SPEC R-02, X34)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from random import Random
from typing import Final

import msgspec

from wanderbus.errors import ConfigurationError

SOURCE: Final = "SIPMobility and MD-ECI paper, section 5, Table 2 (decimal commas converted)"
RATE_PER_S: Final = 20.0
"""Events published a second."""

EVENTS: Final = 2_000
"""Events of a sample."""

OUTAGE_S: Final = 9.9
"""Time from the last event received before a change of address to the first after it.

The paper does not give the duration of its changes; 10 s follows from its losses, and at 10 s a buffer of 200 is
exactly full.
"""

TOLERANCE_POINTS: Final = 5.0
"""Largest distance in percentage points between the mean loss of a reproduced cell and the published. Our choice."""


class Cell(msgspec.Struct, frozen=True, order=True):
    """One cell of the table: how many events the broker keeps, and how often the consumer's address changes."""

    buffer: int
    period_s: int

    def __str__(self) -> str:
        return f"{self.buffer}/{self.period_s}"

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Return the cell that ``BUFFER/PERIOD`` denotes."""
        for cell in GRID:
            if str(cell) == text:
                return cell
        raise ConfigurationError(f"there is no cell {text!r}; cells are {', '.join(map(str, GRID))}")


PUBLISHED: Final[Mapping[Cell, float]] = {
    Cell(100, 60): 8.38,
    Cell(100, 30): 13.94,
    Cell(100, 20): 27.67,
    Cell(150, 60): 4.21,
    Cell(150, 30): 7.77,
    Cell(150, 20): 27.55,
    Cell(200, 60): 0.00,
    Cell(200, 30): 0.00,
    Cell(200, 20): 1.22,
}
"""Loss in percent."""

GRID: Final = tuple(PUBLISHED)

APART: Final = Cell(150, 20)
"""True if its published loss contradicts its neighbours' (SPEC X34): it is reported, and has no goal."""


class Outage(StrEnum):
    """Duration for which a change of address keeps the consumer away."""

    IMPOSED = "imposed"
    """Always equally long, as in the paper."""

    OURS = "ours"
    """None beyond the change: the new address is usable at once; detection, signalling and recovery remain."""

    RANDOM = "random"
    """Uniform from a fifth to nine fifths of the imposed one, as a service like DHCP may take (SPEC S-08)."""

    def draw(self, outage_s: float, random: Random) -> float:
        """Return the duration of the next one, if the imposed one lasts ``outage_s``."""
        match self:
            case Outage.IMPOSED:
                return outage_s
            case Outage.OURS:
                return 0.0
            case Outage.RANDOM:
                return random.uniform(0.2, 1.8) * outage_s


class Experiment(msgspec.Struct, frozen=True):
    """Parameters that all cells share."""

    outage: Outage
    outage_s: float = OUTAGE_S
    rate_per_s: float = RATE_PER_S
    events: int = EVENTS

    @property
    def sample_s(self) -> float:
        """Return the duration of publishing a sample."""
        return self.events / self.rate_per_s

    @property
    def as_published(self) -> bool:
        """Return whether it is the paper's experiment, as far as the paper describes it."""
        return self.outage is Outage.IMPOSED and (self.rate_per_s, self.events) == (RATE_PER_S, EVENTS)


def model_loss_percent(cell: Cell, experiment: Experiment) -> float:
    """Return n max(0, rx - B) in percent of the sample, for n changes of x seconds; for random changes, the mean."""
    changes = experiment.sample_s / cell.period_s
    if experiment.outage is Outage.RANDOM:
        steps = 1_000
        lengths_s = [(0.2 + 1.6 * (step + 0.5) / steps) * experiment.outage_s for step in range(steps)]
    else:
        lengths_s = [0.0 if experiment.outage is Outage.OURS else experiment.outage_s]
    lost = sum(max(0.0, experiment.rate_per_s * length_s - cell.buffer) for length_s in lengths_s) / len(lengths_s)
    return 100 * changes * lost / experiment.events
