"""Goals of the project from one list, ``bench/goals.toml``: shown, measured and checked (decision 0042).

Without names all are checked, which takes some hours; with --quick the short forms run, in about twelve minutes on an
idle machine. A name is that of a goal or of a measurement. Exit status 1 if a goal is not met or was not measured.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.reporting import Goal, progress, write_report
from wanderbus.testbed.launch import python
from wanderbus.testbed.processes import Process

LIST: Final = Path(__file__).with_name("goals.toml")
PROGRESS_S: Final = 30.0
GOODBYE_S: Final = 60.0
COMPARED: Final = re.compile(r"(<=|>=|=) (-?[\d.]+)")
Report = dict[str, Any]


class Listed(NamedTuple):
    """One goal of the list."""

    name: str
    bound: str
    quick: str
    """The bound of the short form; empty if that does not measure it."""
    unit: str
    last: str


class Measurement(NamedTuple):
    """One command, its requirements, and the goals that it reports."""

    name: str
    command: str
    minutes: float
    quick: str
    """The short form; empty if there is none."""
    quick_minutes: float
    goals: tuple[Listed, ...]


class Checked(NamedTuple):
    """One goal after its measurement; ``value`` and ``met`` are None if it was not measured."""

    measurement: str
    goal: Listed
    bound: str
    value: float | None
    met: bool | None


def read(path: Path = LIST) -> list[Measurement]:
    """Return the list."""
    found = []
    for name, table in tomllib.loads(path.read_text(encoding="utf-8")).items():
        quick = table.get("quick", "")
        goals = tuple(
            Listed(goal, row["bound"], row.get("quick", row["bound"] if quick else ""), row["unit"], row["last"])
            for goal, row in table["goals"].items()
        )
        minutes, quick_minutes = float(table["minutes"]), float(table.get("quick_minutes", 0.0))
        found.append(Measurement(name, table["command"], minutes, quick, quick_minutes, goals))
    return found


def chosen(measurements: Sequence[Measurement], names: Sequence[str], *, quick: bool) -> list[Measurement]:
    """Return the measurements of the goals with these ``names``, with only those goals; without names, everything."""
    unknown = set(names) - {each.name for each in measurements}
    unknown -= {goal.name for each in measurements for goal in each.goals}
    if unknown:
        raise SystemExit(f"no goal or measurement is called {', '.join(sorted(unknown))}; see ./do goals --list")
    found = []
    for each in measurements:
        goals = each.goals if not names or each.name in names else tuple(g for g in each.goals if g.name in names)
        if quick:
            goals = tuple(goal for goal in goals if goal.quick)
        if goals:
            found.append(each._replace(goals=goals))
    return found


def check(measurement: Measurement, report: Report | None, *, quick: bool) -> list[Checked]:
    """Return the goals of a measurement, from what it has reported.

    A short form may have a bound of its own; otherwise the report says whether a goal is met, since some bounds depend
    on what was measured.
    """
    reported = {} if report is None else {each["name"]: each for each in report["goals"]}
    found = []
    for goal in measurement.goals:
        bound = goal.quick if quick else goal.bound
        each = reported.get(goal.name, {})
        value, met = each.get("value"), each.get("met")
        if value is not None and bound != goal.bound:
            met = holds(value, bound)
        found.append(Checked(measurement.name, goal, bound, value, None if value is None else bool(met)))
    return found


def holds(value: float, bound: str) -> bool:
    """Return whether a value meets a bound such as ``<= 10``."""
    match = COMPARED.fullmatch(bound)
    if match is None:
        raise ValueError(f"the bound {bound!r} is no comparison with a number (<=, >= or =)")
    sign, number = match[1], float(match[2])
    return value <= number if sign == "<=" else value >= number if sign == ">=" else value == number


def measure(measurement: Measurement, *, quick: bool, log: Path) -> tuple[Report | None, Report]:
    """Run the command, its output to ``log``; return its report, and its cost."""
    line = measurement.quick if quick else measurement.command
    minutes = measurement.quick_minutes if quick else measurement.minutes
    progress(f"{measurement.name}: {line} (about {minutes:g} min)")
    report_file = log.with_suffix(".json")
    began_s, cpu_s = time.monotonic(), _children_cpu_s()
    module, *words = line.split()
    with Process(measurement.name, python(module, *words, "--json", str(report_file)), log) as process:
        try:
            while process.wait(PROGRESS_S) is None:
                progress(f"{measurement.name}: {(time.monotonic() - began_s) / 60:.1f} of about {minutes:g} min")
        except KeyboardInterrupt:
            process.end(GOODBYE_S, signal.SIGINT)  # it removes what it has made
            raise
    took = {
        "measurement": measurement.name,
        "command": line,
        "wall_s": round(time.monotonic() - began_s, 1),
        "cpu_s": round(_children_cpu_s() - cpu_s, 1),
        "exit_status": process.status,
    }
    if not report_file.exists():
        progress(f"{measurement.name}: exit status {process.status} and no report; its output: {log}")
        return None, took
    report: Report = json.loads(report_file.read_text(encoding="utf-8"))
    return report, took


def _children_cpu_s() -> float:
    """Return the processor time of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# Text ----------------------------------------------------------------------------------------------------------------


def listing(measurements: Sequence[Measurement]) -> Iterator[str]:
    """Return the lines of --list, 80 columns wide: of each goal its bound, the last figure and its day."""
    yield f"{'goal':40} {'bound':18} {'last':9} {'on':10}"
    for each in measurements:
        yield f"{each.name}: {each.command} ({each.minutes:g} min)"
        for goal in each.goals:
            value, _, day = goal.last.partition(", ")
            last = f"{value[:9]:9} {day[:10]:10}" if day else "-"
            yield f"{goal.name:40} {goal.bound:18} {last}".rstrip()
    goals = [goal for each in measurements for goal in each.goals]
    quick_min = sum(each.quick_minutes for each in measurements)
    yield f"{len(goals)} goals, {sum(bool(goal.quick) for goal in goals)} of them with --quick ({quick_min:.0f} min)"


def line_of(checked: Checked) -> str:
    """Return a goal's line of the table, 80 columns wide."""
    value = "-" if checked.value is None else f"{checked.value:.6g}"
    text = {True: "met", False: "NOT MET", None: "not measured"}[checked.met]
    return f"{checked.goal.name:40} {value:>8} {checked.bound:17} {text}"


def verdict(checked: Sequence[Checked]) -> str:
    """Return the last line."""
    unmet = [f"{each.measurement}.{each.goal.name}" for each in checked if each.met is False]
    missing = [f"{each.measurement}.{each.goal.name}" for each in checked if each.met is None]
    text = f"{len(checked) - len(unmet) - len(missing)} of {len(checked)} goals met"
    text += f"\nnot met: {', '.join(unmet)}" if unmet else ""
    return text + (f"\nnot measured: {', '.join(missing)}" if missing else "")


def recorded(text: str, checked: Sequence[Checked], day: datetime.date) -> str:
    """Return the list with the figures of these goals as the last ones."""
    for each in checked:
        if each.value is not None:
            last = f"{each.value:.6g}, {day.isoformat()}, {os.cpu_count()} processors"
            table = re.escape(f"[{each.measurement}.goals]")
            row = rf'({table}\n(?:.+\n)*?"?{re.escape(each.goal.name)}"? = .*last = )"[^"]*"'
            text = re.sub(row, lambda found, last=last: f'{found[1]}"{last}"', text)  # type: ignore[misc]
    return text


# The command ---------------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Check the requested goals; return the exit status."""
    options = _options(arguments)
    if options.record and options.quick:
        raise SystemExit("--record keeps figures of the full forms; leave --quick out")
    measurements = chosen(read(), options.names, quick=options.quick)
    if options.list:
        print("\n".join(listing(measurements)))
        return 0
    checked: list[Checked] = []
    results: list[Report] = []
    logs = Path(tempfile.mkdtemp(prefix="wanderbus-goals-"))
    for each in measurements:
        report, took = measure(each, quick=options.quick, log=logs / f"{each.name}.log")
        found = check(each, report, quick=options.quick)
        results.append(took)
        checked += found
        print(f"{each.name}: {took['command']}")
        for one in found:
            print(line_of(one), flush=True)
    print(verdict(checked))
    cpu_s, wall_s = (sum(took[name] for took in results) for name in ("cpu_s", "wall_s"))
    print(f"{wall_s / 60:.1f} min, {cpu_s / 60:.1f} min of processor; outputs and reports: {logs}")
    if options.json is not None:
        write(options.json, options.quick, results, checked)
    if options.record:
        LIST.write_text(recorded(LIST.read_text(encoding="utf-8"), checked, datetime.date.today()), encoding="utf-8")
    return 0 if all(each.met for each in checked) else 1


def write(path: Path, quick: bool, results: Sequence[Report], checked: Sequence[Checked]) -> None:
    """Write the report, as every measurement has it; a goal's name begins with that of its measurement."""
    goals: list[Goal] = [
        {
            "name": f"{each.measurement}.{each.goal.name}",
            "value": each.value,
            "unit": each.goal.unit,
            "goal": each.bound,
            "met": each.met,
        }
        for each in checked
    ]
    command = "goals --quick" if quick else "goals"
    write_report(path, command, results, goals)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./do goals",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples: ./do goals --quick; ./do goals broker; ./do goals bytes_per_idle_user --record",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="name of a goal or measurement (default: all)")
    parser.add_argument("--list", action="store_true", help="show the goals and their last figures without measuring")
    parser.add_argument("--quick", action="store_true", help="run the short forms, in about twelve minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report to FILE")
    parser.add_argument("--record", action="store_true", help=f"keep the figures as the last ones, in {LIST.name}")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("goals: interrupted", file=sys.stderr)
        sys.exit(130)
