"""Benchmark of domains that share events: counts, rate, processor time, delivery time, and redundant links.

Messages, tables and calls are counted exactly, with real gateways in virtual time. Times are those of real processes on
loopback. NATS servers with leaf nodes run in the same run, if they are installed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import federation_counts, federation_processes, federation_redundant
from harness.reporting import Goal, finish

SECTIONS: Final = ("messages", "tables", "calls", "processes", "redundant")
Result = Mapping[str, Any]
Measured = tuple[Sequence[Result], Sequence[Goal]]


class Size(NamedTuple):
    """Amount of each measurement."""

    processes: federation_processes.Size
    redundant_events: int


FULL: Final = Size(federation_processes.Size(5, 4_000, 400), 2_000)
QUICK: Final = Size(federation_processes.Size(1, 1_000, 200), 500)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status."""
    options = _options(arguments)
    size = QUICK if options.quick else FULL
    results: list[Result] = []
    goals: list[Goal] = []
    for section in options.sections:
        found, of_section = _MEASURES[section](size)
        results += [{"section": section, **each} for each in found]
        goals += of_section
    for each in results:
        print("  ".join(f"{name} {_shown(value)}" for name, value in each.items()))
    return finish("bench federation", results, goals, file=options.json, strict=options.strict)


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


_MEASURES: Final[dict[str, Callable[[Size], Measured]]] = {
    "messages": _messages,
    "tables": _tables,
    "calls": _calls,
    "processes": _processes,
    "redundant": _redundant,
}


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{name} {_shown(each)}" for name, each in value.items()) + ")"
    if isinstance(value, list):
        return "(" + ", ".join(map(_shown, value)) + ")"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./do bench federation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Example: ./do bench federation --sections processes redundant",
    )
    parser.add_argument(
        "--sections", nargs="+", choices=SECTIONS, default=SECTIONS, help="sections to measure (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="few events: less than a minute, rough figures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report to FILE")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a goal is not met")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
