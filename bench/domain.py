"""Benchmark of a domain of several servers: lookup, messages between servers, hops, processor, delay and throughput.

Messages and hops are counted exactly, with real brokers and sessions at leaders that are connected by function calls.
Times are those of real processes on loopback. A NATS cluster of three runs in the same run, if it is installed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import (
    domain_interest,
    domain_lookup,
    domain_messages,
    domain_models,
    domain_processes,
    domain_single,
    engine_conformance,
)
from harness.reporting import Goal, finish, goal, median

SECTIONS: Final = ("lookup", "messages", "single", "processor", "delivery", "throughput", "models", "conformance")
CONFORMANCE: Final = ("tests/conformance/test_delivery.py", "tests/conformance/test_domain_delivery.py")
Result = Mapping[str, Any]
Measured = tuple[Sequence[Result], Sequence[Goal]]


class Size(NamedTuple):
    """Amount of each measurement."""

    is_quick: bool
    lookup_turns: int
    single_turns: int
    single_events: int
    processes: domain_processes.Size


FULL: Final = Size(False, 60, 12, 8_000, domain_processes.Size(3, 4_000, 15_000, 3, 6_000))
QUICK: Final = Size(True, 20, 2, 2_000, domain_processes.Size(1, 400, 1_000, 1, 1_000))


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
    return finish("bench domain", results, goals, file=options.json, strict=options.strict)


def _lookup(size: Size) -> Measured:
    rows = domain_lookup.measured(domain_lookup.SIZES, size.lookup_turns, domain_lookup.LOOKUPS)
    return rows, domain_lookup.goals_of(rows)


def _messages(size: Size) -> Measured:
    covered = domain_messages.covered_messages()
    rows, hops = domain_messages.measured(size.is_quick), domain_messages.hops_of()
    interest = domain_interest.measured()
    return [*rows, *hops, *interest], [
        *domain_messages.goals_of(rows, hops, covered),
        *domain_interest.goals_of(interest),
    ]


def _single(size: Size) -> Measured:
    rows = domain_single.compared(size.single_turns, size.single_events)
    now = median(each["now"] for each in rows)
    ratio = median(each["now"] / each["before"] for each in rows)
    return rows, [
        goal("single_server_vs_before", ratio, "ratio", least=0.95),
        goal("single_server_events_per_s", now, "events/s"),
    ]


def _processor(size: Size) -> Measured:
    rows = domain_processes.processor(size.processes)
    return rows, domain_processes.processor_goals(rows)


def _delivery(size: Size) -> Measured:
    rows = domain_processes.delivery(size.processes)
    return rows, domain_processes.delivery_goals(rows)


def _throughput(size: Size) -> Measured:
    rows = domain_processes.throughput(size.processes)
    return rows, domain_processes.throughput_goals(rows)


def _models(size: Size) -> Measured:
    rows = domain_models.models(size.processes)
    return rows, domain_models.models_goals(rows)


def _conformance(size: Size) -> Measured:
    with tempfile.TemporaryDirectory() as work:
        failed = engine_conformance.failed(Path(work), CONFORMANCE)
    return [], [goal("conformance_failed", failed, "tests", most=0)]


_MEASURES: Final[dict[str, Callable[[Size], Measured]]] = {
    "lookup": _lookup,
    "messages": _messages,
    "single": _single,
    "processor": _processor,
    "delivery": _delivery,
    "throughput": _throughput,
    "models": _models,
    "conformance": _conformance,
}


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./do bench domain",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Example: ./do bench domain --sections lookup messages",
    )
    parser.add_argument(
        "--sections", nargs="+", choices=SECTIONS, default=SECTIONS, help="sections to measure (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="few events: about two minutes, rough figures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report to FILE")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a goal is not met")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
