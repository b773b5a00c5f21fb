"""``python -m fuzz NAME``: feed hostile inputs to readers, and report failures.

Bounded by --inputs for each target and by --seconds in total. Exit status: 0 no failure, 1 a failure (with --strict
also an unmet goal), 2 the command line is invalid, 130 interrupted.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from fuzz import agent, cost, federation, filters, light, matching, meaning, ng, routed, rudp, sip, target_runs
from fuzz.target_runs import Failure, Tally, Target
from harness.reporting import Goal, goal, write_report

INPUTS: Final = 200_000
PAIRS: Final = 1_000_000
MEMORY_MB_MAX: Final = 16

NAMES: Final[dict[str, Sequence[Target]]] = {
    "agent": agent.TARGETS,
    "meaning": meaning.TARGETS,
    "federation": federation.TARGETS,
    "filters": filters.TARGETS,
    "light": light.TARGETS,
    "matching": matching.TARGETS,
    "ng": ng.TARGETS,
    "routed": routed.TARGETS,
    "rudp": rudp.TARGETS,
    "sip": sip.TARGETS,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the targets of the command line; return the exit status."""
    options = _options(arguments)
    if options.name == "cost":
        return cost.main(options)
    if options.name == "paths":
        from fuzz import paths  # it needs Spark

        return paths.main(options)
    targets = [target for target in NAMES[options.name] if options.target in ("", target.name)]
    if not targets:
        names = ", ".join(target.name for target in NAMES[options.name])
        print(f"{options.name} has no target {options.target!r}; use one of: {names}", file=sys.stderr)
        return 2
    if options.replay is not None:
        return replay(targets, options.replay)
    until = time.monotonic() + options.seconds
    inputs = inputs_asked(targets, options.inputs, options.pairs)
    tallies = {}
    for target in targets:
        bounds: dict[str, Any] = {"until": until, "jobs": options.jobs, "cpu_s_max": target.cpu_s_max}
        tallies[target.name] = target_runs.run(target, inputs, options.seed, **bounds)
        _say(target, tallies[target.name], inputs)
        _complain(options.name, tallies[target.name].failures, options.failures)
    failed = any(tally.failures for tally in tallies.values())
    goals = goals_of(tallies, inputs, max(target.cpu_s_max for target in targets))
    goals += goals_of_pairs(targets, tallies, inputs)
    if options.json:
        results = [_result(target, tally, inputs) for target, tally in tallies.items()]
        write_report(options.json, f"fuzz {options.name}", results, goals)
    unmet = [str(each["name"]) for each in goals if not each["met"]]
    if unmet and options.strict:
        print(f"not met: {', '.join(unmet)}", file=sys.stderr)
    return 1 if failed or (unmet and options.strict) else 0


def inputs_asked(targets: Sequence[Target], inputs: int | None, pairs: int) -> int:
    """Return the number of inputs for each of ``targets``: for targets that compare pairs, as many as have enough
    pairs.
    """
    if inputs is not None:
        return inputs
    return math.ceil(pairs / targets[0].pairs) if targets[0].pairs else INPUTS


def goals_of_pairs(targets: Sequence[Target], tallies: dict[str, Tally], inputs: int) -> list[Goal]:
    """Return the goals of targets that compare pairs; none of others."""
    compared = [tallies[target.name].inputs * target.pairs for target in targets if target.pairs]
    if not compared:
        return []
    different = sum(failure.kind == "broken" for tally in tallies.values() for failure in tally.failures)
    asked = inputs * targets[0].pairs
    return [
        goal("differences", different, "inputs", most=0),
        goal("pairs", min(compared), "pairs of each target at least", least=asked),
    ]


def replay(targets: Sequence[Target], path: Path) -> int:
    """Handle one saved input again, by the target whose name begins the file's; return the exit status."""
    target = next((target for target in targets if path.name.startswith(target.name)), None)
    if target is None or not path.is_file():
        names = ", ".join(target.name for target in targets)
        print(f"{path} is no file whose name begins with one of: {names}", file=sys.stderr)
        return 2
    data = path.read_bytes()
    _, cpu_s, failure = target_runs.judge(target, data, target.cpu_s_max)
    if failure is not None:
        print(f"{target.name}: {failure.kind}: {failure.detail}")
        return 1
    print(f"{target.name}: nothing broke; {cpu_s * 1000:.1f} ms, {target_runs.peak_of(target, data) / 2**20:.1f} MB")
    return 0


def goals_of(tallies: dict[str, Tally], inputs: int, cpu_s_max: float) -> list[Goal]:
    """Return the goals that every run has."""
    failures = sum(len(tally.failures) for tally in tallies.values())
    slowest_ms = max(tally.slowest_s for tally in tallies.values()) * 1000
    peak_mb = max(tally.peak_bytes for tally in tallies.values()) / 2**20
    fewest = min(tally.inputs for tally in tallies.values())
    return [
        goal("fuzz_unhandled", failures, "inputs", most=0),
        goal("fuzz_inputs", fewest, "inputs of each target", least=inputs),
        goal("fuzz_slowest", slowest_ms, "ms", most=cpu_s_max * 1000),
        goal("fuzz_memory", peak_mb, "MB", most=MEMORY_MB_MAX),
    ]


def _result(target: str, tally: Tally, inputs: int) -> dict[str, Any]:
    kinds = [failure.kind for failure in tally.failures]
    return {
        "target": target,
        "inputs": tally.inputs,
        "inputs_asked": inputs,
        "accepted": tally.accepted,
        "refused": tally.inputs - tally.accepted,
        "cpu_s": round(tally.cpu_s, 3),
        "slowest_ms": round(tally.slowest_s * 1000, 3),
        "largest_input_bytes": tally.largest_input_bytes,
        "memory_measured_inputs": tally.memory_measured,
        "memory_peak_mb": round(tally.peak_bytes / 2**20, 3),
        "failures": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
    }


def _say(target: Target, tally: Tally, inputs: int) -> None:
    cut = "" if tally.inputs >= inputs else f" (of {inputs:,}: cut short)"
    pairs = f" of at least {tally.inputs * target.pairs:,} pairs" if target.pairs else ""
    print(
        f"{target.name}: {tally.inputs:,} inputs{cut}{pairs}, {tally.accepted:,} accepted, "
        f"{len(tally.failures)} failures; "
        f"slowest {tally.slowest_s * 1000:.1f} ms, memory peak {tally.peak_bytes / 2**20:.1f} MB "
        f"(measured on {tally.memory_measured:,})",
        flush=True,
    )


def _complain(name: str, failures: list[Failure], directory: Path) -> None:
    """Save the failures and report how to reproduce them."""
    paths = target_runs.save(failures, directory) if failures else []
    for failure, path in zip(failures, paths, strict=True):
        print(f"{failure.target}: {failure.kind}: {failure.detail}", file=sys.stderr)
        print(f"  replay it with: ./do fuzz {name} --replay {path}", file=sys.stderr)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./do fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("name", choices=sorted([*NAMES, "cost", "paths"]), help="part to fuzz")
    parser.add_argument("--inputs", type=int, help=f"inputs of each target (default: {INPUTS}; of cost: {cost.INPUTS})")
    parser.add_argument(
        "--pairs", type=int, default=PAIRS, help="for `matching`: pairs for each target instead (default: %(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=20, help="for `paths`: cases (default: %(default)s)")
    parser.add_argument("--target", default="", help="only this target (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the inputs (default: %(default)s)")
    parser.add_argument(
        *("--seconds", "--limit-s"), type=float, default=1_800, help="time limit in seconds (default: %(default)s)"
    )
    parser.add_argument("--jobs", type=int, help="processes (default: one for each processor)")
    parser.add_argument(
        "--failures", type=Path, default=Path("out/fuzz"), help="directory for failing inputs (default: %(default)s)"
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="process only this saved input")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a goal is not met")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
