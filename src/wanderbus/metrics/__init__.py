"""Metrics: samples of what a process counts and measures, as every part reports them (SPEC U-08).

A part yields :class:`Sample`; :mod:`.catalogue` describes every metric that exists. Names, kinds and labels follow the
conventions of Prometheus: counters never decrease while the process runs, units are seconds and bytes, and the values
of a label are few, whatever users and other servers do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

PREFIX: Final = "wanderbus_"
"""Beginning of every name outside the process."""


class Durations(msgspec.Struct):
    """Sum of durations in microseconds, and their number by magnitude: by the bits that the microseconds take."""

    sum_us: int = 0
    by_bits: dict[int, int] = msgspec.field(default_factory=dict)

    def add(self, duration_us: int) -> None:
        """Count a duration; one that a clock made negative counts as none."""
        duration_us = max(0, duration_us)
        self.sum_us += duration_us
        bits = duration_us.bit_length()
        self.by_bits[bits] = self.by_bits.get(bits, 0) + 1

    def add_all(self, others: Durations) -> None:
        """Count the durations of another count."""
        self.sum_us += others.sum_us
        for bits, count in others.by_bits.items():
            self.by_bits[bits] = self.by_bits.get(bits, 0) + count


class Sample(NamedTuple):
    """Value of a metric now: ``labels`` are the values of its labels, in the order of the catalogue."""

    metric: str
    value: float | Durations
    labels: tuple[str, ...] = ()


class Metric(msgspec.Struct, frozen=True):
    """A metric: its name without :data:`PREFIX`, its kind, its meaning, and the names of its labels."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


def counted(metric: str, counts: Mapping[str, int]) -> Iterable[Sample]:
    """Yield a sample for each of ``counts``, by the label of ``metric``."""
    return (Sample(metric, count, (label,)) for label, count in counts.items())


def fields_of(metric: str, counters: msgspec.Struct) -> Iterable[Sample]:
    """Yield a sample for each field of a struct of counters, by the label of ``metric``."""
    return counted(metric, msgspec.structs.asdict(counters))


def row_of(sample: Sample) -> Mapping[str, Any]:
    """Return the row that shows a sample to operators, as :class:`~wanderbus.operator_rows.MetricInfo`."""
    value = sample.value
    row: dict[str, Any] = {"metric": sample.metric, "labels": sample.labels}
    return {**row, "durations": value} if isinstance(value, Durations) else {**row, "value": value}
