"""The conformance tests of delivery, with each of the matching engines (SPEC T-06): the number that fail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from harness.reporting import progress
from wanderbus.testbed.launch import python
from wanderbus.testbed.processes import Process

TESTS: Final = (
    "tests/conformance/test_delivery.py",
    "tests/spark/engine/test_conformance.py",
    "tests/spark/engine/test_domain_conformance.py",
)
"""The broker's own engine and one beside it; the engine on Spark, of one server and of servers of a domain."""

TESTS_S_MAX: Final = 900.0
_ROOT: Final = Path(__file__).parents[1]


def failed(work: Path, tests: Sequence[str] = TESTS) -> float:
    """Run the tests of these files; return how many fail, not a number if they could not be run."""
    progress(f"delivering: {' and '.join(tests)}")
    report = work / "conformance.xml"
    argv = python("pytest", "-q", f"--junitxml={report}", *tests)
    with Process("the conformance tests", argv, work / "conformance.errors", cwd=_ROOT) as running:
        running.wait(TESTS_S_MAX)
    return count(report, tests)


def count(report: Path, tests: Sequence[str] = TESTS) -> float:
    """Return the failed tests of a report of pytest, not a number unless it has a test of each file."""
    cases = ElementTree.parse(report).findall(".//testcase") if report.exists() else []
    modules = {str(case.get("classname")).rpartition(".")[0] for case in cases if case.find("skipped") is None}
    if not {each.removesuffix(".py").replace("/", ".") for each in tests} <= modules:
        return math.nan
    return sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
