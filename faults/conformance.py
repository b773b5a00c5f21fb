"""Run the conformance of federations: each method with each model of channels and each merging (SPEC M-05).

Three domains share a type in the simulator. In each cell the same users publish and subscribe, and each has to receive
the same events once, in the order of their publisher.

  python -m faults conformance                                # all cells
  python -m faults conformance --cell 'rendezvous/ordered/*'  # some of them
  python -m faults conformance --json out/conformance.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from harness.reporting import finish, goal, progress
from tests.federation.conformance import CELLS, problems_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cells of the command line; return the exit status."""
    options = _options(arguments)
    cells = [each for each in CELLS if fnmatchcase(str(each), options.cell)]
    if not cells:
        print(f"faults conformance: no cell is called {options.cell} (expected such as {CELLS[0]})", file=sys.stderr)
        return 2
    rows = []
    for cell in cells:
        if problems := problems_of(cell):
            progress(f"{cell}: {problems[0]}")
        rows.append({"cell": str(cell), "result": "failed" if problems else "passed", "problems": problems})
    failed = sum(each["result"] == "failed" for each in rows)
    print(f"{len(cells)} cells, {failed} failed")
    goals = [goal("conformance_failed", failed, "cells", most=0)]
    status = finish("conformance", rows, goals, file=options.json, strict=options.strict)
    return status or int(bool(failed))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m faults conformance", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cell", metavar="A/B/C/D", default="*", help="only this cell; * and ? match several (default: all)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write results and goals to this file")
    parser.add_argument("--strict", action="store_true", help="as always: a failed cell ends with status 1")
    return parser.parse_args(arguments)
