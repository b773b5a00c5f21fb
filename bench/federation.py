"""Benchmark of domains that share events: counts, rate, times, redundant links, and causal order.

Messages, tables and calls are counted exactly, with real gateways in virtual time. Times are those of real processes on
loopback. NATS servers with leaf nodes run in the same run, if they are installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from bench import federation_causal, federation_counts, federation_processes, federation_redundant
from bench.sections import Measured, measure_sections, section_options, shown


class Size(NamedTuple):
    """Amount of each measurement."""

    processes: federation_processes.Size
    redundant_events: int
    causal_s: float


FULL: Final = Size(federation_processes.Size(5, 4_000, 400), 2_000, 5.0)
QUICK: Final = Size(federation_processes.Size(1, 1_000, 200), 500, 2.0)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status."""
    parser = section_options(
        "federation",
        __doc__,
        tuple(_MEASURES),
        quick="few events: less than a minute, rough figures",
        example="Example: ./do bench federation --sections processes redundant",
    )
    options = parser.parse_args(arguments)
    return measure_sections("federation", _MEASURES, QUICK if options.quick else FULL, options, _shown)


def _messages(size: Size) -> Measured:
    rows = federation_counts.messages()
    return rows, federation_counts.messages_goals(rows)


def _tables(size: Size) -> Measured:
    rows = federation_counts.tables()
    return rows, federation_counts.tables_goals(rows)


def _calls(size: Size) -> Measured:
    rows = federation_counts.calls()
    return rows, federation_counts.calls_goals(rows)


def _processes(size: Size) -> Measured:
    rows = federation_processes.measured(size.processes)
    return rows, federation_processes.goals_of(rows)


def _redundant(size: Size) -> Measured:
    rows = federation_redundant.measured(size.redundant_events)
    return rows, federation_redundant.goals_of(rows)


def _causal(size: Size) -> Measured:
    rows = federation_causal.measured(size.causal_s)
    return rows, federation_causal.goals_of(rows)


_MEASURES: Final[dict[str, Callable[[Size], Measured]]] = {
    "messages": _messages,
    "tables": _tables,
    "calls": _calls,
    "processes": _processes,
    "redundant": _redundant,
    "causal": _causal,
}


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{name} {_shown(each)}" for name, each in value.items()) + ")"
    if isinstance(value, list):
        return "(" + ", ".join(map(_shown, value)) + ")"
    return shown(value)


if __name__ == "__main__":
    sys.exit(main())
