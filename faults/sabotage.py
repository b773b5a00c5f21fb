"""Break the code of one requirement after the other, and check that the tests that show the requirement fail.

docs/REQUIREMENTS.md names tests for each requirement. A test that also passes without the requirement shows nothing.
tests/house/sabotages.toml has small changes, each of which breaks a requirement, and the tests that must notice it.
Each change is made in a copy of the project. The tests must pass without it and fail with it.

  ./do sabotage                      # all of them
  ./do sabotage J-07 U-03            # those of two requirements
  ./do sabotage --every 10 --turn 3  # a tenth of them
  ./do sabotage --limit-s 40         # as many as fit, chosen by the day
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Final, Literal, NamedTuple

from harness import ROOT
from harness.reporting import finish, goal, progress
from wanderbus.testbed.launch import python
from wanderbus.testbed.processes import Process

LIST: Final = ROOT / "tests" / "house" / "sabotages.toml"
NOT_COPIED: Final = (
    *(".git", ".venv", ".*_cache", ".hypothesis", "build", "dist", "out"),
    *("*.egg-info", "spark-warehouse", "metastore_db", "wanderbus-data"),
)
TRIED_MIN: Final = 40
TESTS_S_MAX: Final = 120.0
"""Time limit of the tests of one sabotage; longer is not noticed."""

POLL_S: Final = 0.5

PASSED, FAILED = 0, 1
"""Exit statuses of pytest; the others mean that it could not run the tests."""

_DAY_S: Final = 86_400
_FAILURE: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)

Outcome = Literal["noticed", "unnoticed", "skipped", "stopped"]


class Sabotage(NamedTuple):
    """A change of one file that breaks a requirement, and the tests that must fail with it."""

    id: str
    what: str
    file: str
    text: str
    by: str
    tests: tuple[str, ...]

    def applied(self, source: str) -> str:
        """Return the source with the change; :class:`ValueError` unless the text occurs in it exactly once."""
        if (count := source.count(self.text)) != 1:
            raise ValueError(f"{self.id}: {self.file} has the text {count} times, not once: {self.text!r}")
        return source.replace(self.text, self.by)


class Tried(NamedTuple):
    """The outcome of one sabotage, and a description unless it was noticed."""

    sabotage: Sabotage
    outcome: Outcome
    words: str = ""
    took_s: float = 0.0


class Deadline:
    """The time at which everything ends; an interruption moves it to now."""

    def __init__(self, in_s: float) -> None:
        self._at = time.monotonic() + in_s

    def left_s(self) -> float:
        """Return the time that is left, at least 0."""
        return max(0.0, self._at - time.monotonic())

    def end(self) -> None:
        """End everything now."""
        self._at = 0.0


class Ran(NamedTuple):
    """End of pytest: its exit status, None after the time limit, and its output."""

    status: int | None
    output: str

    def failed(self, test: str) -> bool:
        """Return whether a test, any of its cases, or a test of a file failed."""
        return any(name == test or name.startswith((f"{test}[", f"{test}::")) for name in _FAILURE.findall(self.output))


def read(path: Path = LIST) -> list[Sabotage]:
    """Return the sabotages of a list."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["sabotage"]
    return [Sabotage(row["id"], row["what"], row["file"], row["text"], row["by"], tuple(row["tests"])) for row in rows]


def main(arguments: list[str] | None = None) -> int:
    """Try the sabotages of the command line; return the exit status."""
    options = _options(arguments)
    sabotages = chosen(read(options.list), options.ids, options.every, options.turn)
    if options.show:
        print("\n".join(f"{each.id}  {each.what}: {', '.join(each.tests)}" for each in sabotages))
        return 0
    counted: Counter[Outcome] = Counter()
    rows = []
    for tried in results(sabotages, options.jobs, Deadline(options.limit_s)):
        counted[tried.outcome] += 1
        if tried.outcome == "stopped":
            continue
        rows.append({**tried._asdict(), "sabotage": f"{tried.sabotage.id}: {tried.sabotage.what}"})
        progress(f"{rows[-1]['sabotage']}: {tried.outcome}, {tried.took_s:.1f} s {tried.words}".rstrip())
    unnoticed, tried_count = counted["unnoticed"], counted["noticed"] + counted["unnoticed"]
    print(f"{tried_count} of {len(sabotages)} sabotages tried, {counted['skipped']} skipped; turn {options.turn}")
    goals = [
        goal("sabotages_unnoticed", unnoticed, "sabotages", most=0),
        goal("sabotages_tried", tried_count, "sabotages", least=TRIED_MIN),
    ]
    return finish("sabotage", rows, goals, file=options.json, strict=options.strict) or int(unnoticed > 0)


def chosen(sabotages: Sequence[Sabotage], ids: Sequence[str], every: int, turn: int) -> list[Sabotage]:
    """Return the sabotages of these requirements, or every ``every``-th one of all, in an order drawn for the turn."""
    if unknown := set(ids) - {each.id for each in sabotages}:
        raise SystemExit(f"no sabotage is listed for {', '.join(sorted(unknown))}; see ./do sabotage --list")
    if ids:
        return [each for each in sabotages if each.id in ids]
    found = list(sabotages[turn % every :: every])
    Random(turn).shuffle(found)
    return found


def results(sabotages: Sequence[Sabotage], jobs: int, deadline: Deadline) -> Iterator[Tried]:
    """Try each sabotage in a copy of the project, several at a time; those that do not end in time are stopped."""
    with tempfile.TemporaryDirectory(prefix="wanderbus-sabotage-") as directory, ThreadPoolExecutor(jobs) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(min(jobs, len(sabotages))):
            copies.put(copy_of(ROOT, Path(directory, str(number))))

        def attempt(sabotage: Sabotage) -> Tried:
            copy = copies.get()
            try:
                return try_one(sabotage, copy, deadline)
            finally:
                copies.put(copy)

        try:
            yield from pool.map(attempt, sabotages)
        finally:
            deadline.end()
            pool.shutdown(cancel_futures=True)


def copy_of(root: Path, place: Path) -> Path:
    """Copy the project without its environment, but with its bytecode; return the place."""
    shutil.copytree(root, place, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
    return place


def try_one(sabotage: Sabotage, copy: Path, deadline: Deadline) -> Tried:
    """Run the tests of a sabotage in a copy of the project, with it and without it."""
    began = time.monotonic()
    file = copy / sabotage.file
    source = file.read_text(encoding="utf-8")
    replace(file, sabotage.applied(source))
    try:
        ran = run_tests(sabotage.tests, copy, deadline)
    finally:
        replace(file, source)
    outcome, words = judge(sabotage, ran, not deadline.left_s())
    if outcome == "noticed":
        untouched = run_tests(sabotage.tests, copy, deadline)
        if untouched.status is None and not deadline.left_s():
            outcome = "stopped"
        elif untouched.status != PASSED:
            outcome, words = "unnoticed", f"the tests do not pass without it: exit status {untouched.status}"
    return Tried(sabotage, outcome, words, round(time.monotonic() - began, 1))


def judge(sabotage: Sabotage, ran: Ran, over: bool) -> tuple[Outcome, str]:
    """Return whether each test noticed a sabotage, and why not."""
    if ran.status is None:
        return ("stopped", "") if over else ("unnoticed", f"the tests took longer than {TESTS_S_MAX:g} s")
    if ran.status == FAILED:
        passed = [test for test in sabotage.tests if not ran.failed(test)]
        return ("unnoticed", f"passed: {', '.join(passed)}") if passed else ("noticed", "")
    if ran.status == PASSED:
        skipped = " skipped" in ran.output and " passed" not in ran.output
        return ("skipped", "") if skipped else ("unnoticed", f"passed: {', '.join(sabotage.tests)}")
    return "unnoticed", f"pytest could not run the tests: exit status {ran.status}\n{ran.output}"


def replace(file: Path, source: str) -> None:
    """Write a source file, and remove its bytecode, which Python may take for that of the new source."""
    for cached in file.parent.glob(f"__pycache__/{file.stem}.*"):
        cached.unlink()
    file.write_text(source, encoding="utf-8")


def run_tests(tests: Sequence[str], copy: Path, deadline: Deadline) -> Ran:
    """Run tests in a copy of the project, until the deadline at the latest."""
    log = copy / "sabotage.log"
    log.unlink(missing_ok=True)
    words = ["-q", "--tb=no", "-rfEs", "-p", "no:cacheprovider", "--hypothesis-profile=sabotage"]
    words += ["-x"] if len(tests) == 1 else []
    paths = {"PYTHONPATH": os.pathsep.join((str(copy / "src"), str(copy)))}
    with Process("pytest", python("pytest", *words, *tests), log, cwd=copy, more_environment=paths) as process:
        began, status = time.monotonic(), None
        while status is None and deadline.left_s() and time.monotonic() - began < TESTS_S_MAX:
            status = process.wait(min(deadline.left_s(), POLL_S))
        if status is None:
            process.kill()
    return Ran(status, log.read_text(encoding="utf-8", errors="replace"))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./do sabotage", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="only the sabotages of these requirements (default: all)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th sabotage")
    parser.add_argument(
        "--turn",
        type=int,
        default=int(time.time() // _DAY_S),
        metavar="K",
        help="number that chooses among them and their order (default: that of the day)",
    )
    parser.add_argument("--limit-s", type=float, default=3_600.0, help="end after this time (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="copies (default: one for each processor)")
    parser.add_argument("--list", dest="show", action="store_true", help="list the chosen sabotages, and do nothing")
    parser.add_argument(
        "--sabotages", dest="list", type=Path, default=LIST, metavar="FILE", help="read the sabotages from this file"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with status 1 if a goal is not met; what is unnoticed always does",
    )
    options = parser.parse_args(arguments)
    if options.every < 1 or options.jobs < 1:
        parser.error("--every and --jobs are at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
