"""Benchmarks of several sections: their options, and the report of what is measured."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from harness.reporting import Goal, finish

Result = Mapping[str, Any]
Measured = tuple[Sequence[Result], Sequence[Goal]]
SizeT = TypeVar("SizeT")


def section_options(
    name: str, description: str | None, sections: Sequence[str], *, quick: str, example: str
) -> argparse.ArgumentParser:
    """Return the parser of the options of ``./do bench NAME``, with the help of ``--quick``."""
    parser = argparse.ArgumentParser(
        prog=f"./do bench {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=example,
    )
    parser.add_argument(
        "--sections", nargs="+", choices=sections, default=sections, help="sections to measure (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report to FILE")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a goal is not met")
    return parser


def shown(value: object) -> str:
    """Return a figure as it is printed."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def print_results(results: Iterable[Result], shown: Callable[[object], str] = shown) -> None:
    """Print a line for each result."""
    for each in results:
        print("  ".join(f"{name} {shown(value)}" for name, value in each.items()))


def measure_sections(
    name: str,
    measures: Mapping[str, Callable[[SizeT], Measured]],
    size: SizeT,
    options: argparse.Namespace,
    shown: Callable[[object], str] = shown,
) -> int:
    """Measure the sections of ``options``, print, and write JSON if asked; return the exit status."""
    results: list[Result] = []
    goals: list[Goal] = []
    for section in options.sections:
        found, of_section = measures[section](size)
        results += [{"section": section, **each} for each in found]
        goals += of_section
    print_results(results, shown)
    return finish(f"bench {name}", results, goals, file=options.json, strict=options.strict)
