"""Output of every measurement: goals by name, the machine, medians and percentiles."""

from __future__ import annotations

import asyncio
import json
import math
import os
import platform
import statistics
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from wanderbus.evaluation.percentiles import percentile

__all__ = [
    "PROGRESS_EACH_S",
    "Goal",
    "MachineFacts",
    "finish",
    "goal",
    "machine",
    "median",
    "percentile",
    "progress",
    "progress_shown",
    "write_report",
]

MachineFacts = dict[str, object]
Goal = dict[str, object]

PROGRESS_EACH_S: Final = 1.8
"""Pause between two reports of progress."""


def machine() -> MachineFacts:
    """Return facts on which figures depend; ``load`` is the mean number of runnable processes of the last minute."""
    return {
        "python": platform.python_version(),
        "architecture": platform.machine(),
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def goal(name: str, value: float, unit: str, *, least: float | None = None, most: float | None = None) -> Goal:
    """Return a goal for the report; it is met from ``least`` on, or up to ``most``; without both it is a figure.

    What is not a number was not measured.
    """
    bound = least if most is None else most
    if math.isnan(value):
        return {"name": name, "value": None, "unit": unit, "goal": bound, "met": None}
    met = None if bound is None else bool(value >= bound if most is None else value <= bound)
    return {"name": name, "value": round(value, 4), "unit": unit, "goal": bound, "met": met}


def finish(command: str, results: Iterable[object], goals: Sequence[Goal], *, file: Path | None, strict: bool) -> int:
    """Print the goals, write the report to ``file`` if there is one, and return the exit status."""
    for each in goals:
        print(_line(each))
    if file is not None:
        write_report(file, command, results, goals)
    return 1 if strict and any(each["met"] is False for each in goals) else 0


def write_report(file: Path, command: str, results: Iterable[object], goals: Sequence[Goal]) -> None:
    """Write the report of a command, from which ``bench.goals`` reads the goals."""
    report: dict[str, Any] = {"command": command, "machine": machine(), "results": list(results), "goals": goals}
    file.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _line(each: Goal) -> str:
    if each["value"] is None:
        return f"{each['name']}: not measured"
    text = f"{each['name']}: {each['value']} {each['unit']}"
    if each["goal"] is None:
        return text
    return f"{text}, goal {each['goal']}: {'met' if each['met'] else 'NOT MET'}"


def progress(text: str) -> None:
    """Report progress on standard error."""
    print(text, file=sys.stderr, flush=True)


@asynccontextmanager
async def progress_shown(words: Callable[[], str]) -> AsyncIterator[None]:
    """Report ``words`` again and again while the ``with`` block runs."""

    async def show() -> None:
        while True:
            await asyncio.sleep(PROGRESS_EACH_S)
            progress(words())

    showing = asyncio.create_task(show())
    try:
        yield
    finally:
        showing.cancel()


def median(values: Iterable[float]) -> float:
    """Return the median; not a number if there are no values."""
    gathered = list(values)
    return statistics.median(gathered) if gathered else math.nan
