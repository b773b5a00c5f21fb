"""The number of failed conformance tests that ``./do bench spark engine`` reports."""

from __future__ import annotations

import math
from pathlib import Path

from bench.engine_conformance import TESTS, count

CLASSES = [f"{each.removesuffix('.py').replace('/', '.')}.TestDelivery" for each in TESTS]


def report(directory: Path, *cases: tuple[str, str]) -> Path:
    """Write a report of pytest with these classes and outcomes."""
    path = directory / "report.xml"
    lines = "".join(f'<testcase classname="{name}" name="t">{outcome}</testcase>' for name, outcome in cases)
    path.write_text(f"<testsuites><testsuite>{lines}</testsuite></testsuites>")
    return path


def test_t06_failures_and_errors_of_each_engine_count(tmp_path: Path) -> None:
    broker, spark, domain = CLASSES
    assert count(report(tmp_path, (broker, ""), (spark, ""), (domain, ""))) == 0
    assert count(report(tmp_path, (broker, "<failure/>"), (spark, ""), (spark, "<error/>"), (domain, ""))) == 2


def test_t06_an_engine_without_tests_is_not_measured(tmp_path: Path) -> None:
    broker, spark, domain = CLASSES
    assert math.isnan(count(tmp_path / "missing.xml"))
    assert math.isnan(count(report(tmp_path, (broker, ""), (spark, ""))))
    assert math.isnan(count(report(tmp_path, (broker, ""), (spark, "<skipped/>"), (domain, ""))))
