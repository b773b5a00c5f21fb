"""``python -m tests.interop``: all of it with others' servers and clients, and one table of how that went.

Exit status: 0 everything passed, or was skipped where a program is missing; 1 something failed, or with ``--strict``
was skipped; 2 it could not run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import pytest

from harness.reporting import finish, goal
from tests.interop.table import Outcome, Row, aligned, markdown, merged

HERE: Final = str(Path(__file__).parent)
PAGE: Final = Path("docs/interop.md")
BEGIN: Final = "<!-- table -->\n"
END: Final = "<!-- end of table -->\n"


class Recorder:
    """A plugin that keeps the outcome of every test, and its row."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.outcomes: list[tuple[Row, Outcome]] = []
        self.skipped: dict[str, int] = {}
        """Number of skipped tests, by reason."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember the selected tests."""
        self.rows = [row for item in session.items for row in _rows(item.user_properties)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the result of a test: its call phase, and failures of the other phases."""
        if report.when != "call" and report.passed:
            return
        self.outcomes += [(row, report.outcome) for row in _rows(report.user_properties)]
        if report.skipped and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            self.skipped[reason] = self.skipped.get(reason, 0) + 1


def _rows(properties: Iterable[tuple[str, object]]) -> list[Row]:
    return [value for _, value in properties if isinstance(value, Row)]


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    arguments = argparse.ArgumentParser(
        prog="./do interop",
        description="Run all tests with other SIP servers, relays and clients, and through NAT; print one table.",
        epilog="examples: ./do interop; ./do interop --json out/interop.json --strict; ./do interop -k baresip",
    )
    add = arguments.add_argument
    add("--json", type=Path, metavar="FILE", help="write table and goals to this file as JSON")
    add("--strict", action="store_true", help="fail also if a test was skipped")
    add("--list", action="store_true", help="print the rows of the table without running tests")
    add("--write", action="store_true", help=f"write the table into {PAGE} if all tests have passed")
    add("-k", metavar="WORDS", help="only tests whose names match this expression of pytest")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run the selected tests; return the exit status."""
    given = parser().parse_args(argv)
    recorder = Recorder()
    chosen = ["-k", given.k] if given.k else []
    if given.list:
        with contextlib.redirect_stdout(io.StringIO()):
            status = pytest.main([HERE, "--collect-only", "-qq", *chosen], [recorder])
        print(markdown(dict.fromkeys(sorted(set(recorder.rows)), "passed")), end="")
        return _status_of(status)
    status = pytest.main([HERE, "-q", "-p", "no:cacheprovider", "--durations=5", *chosen], [recorder])
    results = merged(recorder.outcomes)
    print(f"\n{aligned(results)}\n")
    for reason, count in recorder.skipped.items():
        print(f"skipped ({count}): {reason}")
    if given.write and not given.k and set(results.values()) == {"passed"}:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), markdown(results)), encoding="utf-8")
    counts = {outcome: list(results.values()).count(outcome) for outcome in ("failed", "skipped", "passed")}
    goals = [
        goal("scenarios_failed", counts["failed"], "", most=0),
        goal("scenarios_skipped", counts["skipped"], "", most=0),
        goal("scenarios_passed", counts["passed"], ""),
    ]
    rows = [{**row._asdict(), "result": result} for row, result in results.items()]
    unmet = finish("interop", rows, goals, file=given.json, strict=given.strict)
    return _status_of(status) or unmet


def with_table(page: str, table: str) -> str:
    """Return ``page`` with ``table`` between its two marks."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + table + END + rest.partition(END)[2]


def _status_of(status: int) -> int:
    if status == pytest.ExitCode.INTERRUPTED:
        return 130
    return min(int(status), 2)


if __name__ == "__main__":
    sys.exit(main())
