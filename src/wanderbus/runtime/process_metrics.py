"""Metrics of one process: those of its roles, its limits and its version (SPEC U-08)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import wanderbus
from wanderbus.metrics import Sample, counted
from wanderbus.runtime.limit_log import Refusals

FRESH_S: Final = 1.0
"""Age up to which samples are given again: gathering takes time linear in the sessions, and anybody may ask often."""


class ProcessMetrics:
    """Samples of one process.

    :param gather: yields the samples of the roles
    """

    def __init__(
        self,
        gather: Callable[[], Iterable[Sample]],
        refusals: Refusals,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gather = gather
        self._refusals = refusals
        self._clock = clock
        self._samples: Sequence[Sample] = ()
        self._until = float("-inf")

    def samples(self) -> Sequence[Sample]:
        """Return the samples, not older than :data:`FRESH_S`."""
        if (now := self._clock()) >= self._until:
            self._samples, self._until = (*self._gather(), *self._of_process()), now + FRESH_S
        return self._samples

    def _of_process(self) -> Iterator[Sample]:
        yield Sample("build_info", 1, (wanderbus.__version__,))
        yield from counted("limit_applied_total", self._refusals.table.totals)
        for part, counts in self._refusals.counted.items():
            for reason, count in counts().items():
                yield Sample("input_dropped_total", count, (part, reason))
