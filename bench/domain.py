"""Benchmark of a domain of several servers: lookup, messages between servers, hops, processor, delay and throughput.

Messages and hops are counted exactly, with real brokers and sessions at leaders that are connected by function calls.
Times are those of real processes on loopback. A NATS cluster of three runs in the same run, if it is installed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from bench import (
    domain_interest,
    domain_lookup,
    domain_messages,
    domain_models,
    domain_processes,
    domain_single,
    engine_conformance,
)
from bench.sections import Measured, measure_sections, section_options
from harness.reporting import goal, median

CONFORMANCE: Final = ("tests/conformance/test_delivery.py", "tests/conformance/test_domain_delivery.py")


class Size(NamedTuple):
    """Amount of each measurement."""

    is_quick: bool
    lookup_turns: int
    single_turns: int
    single_events: int
    processes: domain_processes.Size


FULL: Final = Size(False, 30, 12, 8_000, domain_processes.Size(3, 4_000, 15_000, 3, 6_000))
QUICK: Final = Size(True, 10, 2, 2_000, domain_processes.Size(1, 400, 1_000, 1, 1_000))


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status."""
    parser = section_options(
        "domain",
        __doc__,
        tuple(_MEASURES),
        quick="few events: about two minutes, rough figures",
        example="Example: ./do bench domain --sections lookup messages",
    )
    options = parser.parse_args(arguments)
    return measure_sections("domain", _MEASURES, QUICK if options.quick else FULL, options)


def _lookup(size: Size) -> Measured:
    rows = domain_lookup.measured(domain_lookup.SIZES, size.lookup_turns)
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


if __name__ == "__main__":
    sys.exit(main())
