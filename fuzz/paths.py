"""Drawn cases for every path that can answer a question (docs/paths.md): the number of answers that differ.

Each seed is a case of events, filters and a pattern. Servers and domains get it live, lakes are filled from their logs,
and each path answers; one session of Spark serves all seeds. The right answer is that of the slow evaluators.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness.reporting import finish, goal
from tests.conformance.paths.cases import drawn_case
from tests.conformance.paths.commands import using
from tests.conformance.paths.counts import count_differences
from tests.conformance.paths.suite import differences, prepared, small_form
from wanderbus.pipeline.session import spark_session


def main(options: Any) -> int:
    """Draw the cases of the command line; return the exit status."""
    until_s = time.monotonic() + options.seconds
    spark = spark_session("wanderbus-paths")
    found: dict[int, list[str]] = {}
    for seed in range(options.seed, options.seed + options.seeds):
        if found and time.monotonic() >= until_s:
            break
        case = drawn_case(seed)
        with tempfile.TemporaryDirectory(prefix="wanderbus-paths-") as directory:
            worlds = prepared(case, Path(directory), spark)
            with using(spark):
                found[seed] = [*differences(worlds, small_form(case)), *count_differences(worlds)]
        print(
            f"seed {seed}: {len(case.events)} events, {len(case.questions)} questions, {len(found[seed])} differences"
        )
        for each in found[seed]:
            print(f"{each}\n  repeat it with: ./do fuzz paths --seeds 1 --seed {seed}", file=sys.stderr)
    spark.stop()
    different = sum(map(len, found.values()))
    goals = [
        goal("path_differences", different, "answers", most=0),
        goal("path_cases", len(found), "cases", least=1),
    ]
    results = [{"seed": seed, "differences": several} for seed, several in found.items()]
    status = finish("fuzz paths", results, goals, file=options.json, strict=options.strict)
    return 1 if different else status
