"""Run the mobility matrix: each change of place with each transport, path and activity, in the simulator (SPEC U-09).

Two users publish and subscribe at two servers of a domain, or at those of two domains; one of them moves, or its server
or domain changes. In each cell every event has to be consumed by both exactly once, in order. A whole run writes the
table into docs/matrix.md.

  ./do matrix                                   # all cells
  ./do matrix --cell into-nat/udp/relay/idle    # one of them
  ./do matrix --cell 'server-*/*/direct/*'      # several
  ./do matrix --seeds 20 --json out/matrix.json # each in 20 worlds
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from faults.matrix_page import PAGE, with_table
from harness.reporting import finish, goal, progress
from wanderbus.simulation.layers import Layer, replay_command
from wanderbus.simulation.matrix.cells import CELLS, EVERY, Cell, obstacle
from wanderbus.simulation.matrix.scenario import MatrixScenario
from wanderbus.simulation.scenario import Result

PROGRESS_S: Final = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cells of the command line; return the exit status."""
    options = _options(arguments)
    try:
        cells = chosen(options.cell)
    except ValueError as error:
        print(f"./do matrix: {error}", file=sys.stderr)
        return 2
    problems: dict[Cell, list[str]] = {cell: [] for cell in cells}
    for cell, result in _results(cells, options.seeds):
        if result.problems:
            problems[cell] += result.problems
            progress(f"{cell}: {result.problems[0]}\n  replay with: {replay_command(Layer.MATRIX, result.seed)}")
    failed = {cell for cell, found in problems.items() if found}
    print(f"{len(cells)} cells in {options.seeds} worlds each, {len(failed)} failed")
    if cells == CELLS:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), failed), encoding="utf-8")
    goals = [goal("matrix_failed", len(failed), "cells", most=0)]
    status = finish("matrix", _rows(problems), goals, file=options.json, strict=options.strict)
    return status or int(bool(failed))


def chosen(pattern: str | None) -> tuple[Cell, ...]:
    """Return the cells whose names match ``pattern``; :class:`ValueError` if none that can exist does."""
    if pattern is None:
        return CELLS
    matching = [cell for cell in EVERY if fnmatchcase(str(cell), pattern)]
    if not matching:
        raise ValueError(f"no cell is called {pattern} (expected CHANGE/TRANSPORT/PATH/ACTIVITY, such as {CELLS[0]})")
    if found := tuple(cell for cell in matching if not obstacle(cell)):
        return found
    raise ValueError(f"{matching[0]} cannot exist: {obstacle(matching[0])}")


def seeds_of(cell: Cell, count: int) -> list[int]:
    """Return the first seeds whose worlds are of a cell."""
    return [CELLS.index(cell) + turn * len(CELLS) for turn in range(count)]


def _results(cells: Sequence[Cell], seeds: int) -> Iterator[tuple[Cell, Result]]:
    """Run the worlds of the cells on all processors; report progress."""
    worlds = [(cell, seed) for cell in cells for seed in seeds_of(cell, seeds)]
    shown_at = time.monotonic()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(MatrixScenario.run_seed, [seed for _, seed in worlds], chunksize=4)
        for number, ((cell, _), result) in enumerate(zip(worlds, results, strict=True), 1):
            yield cell, result
            if time.monotonic() - shown_at >= PROGRESS_S:
                shown_at = time.monotonic()
                progress(f"{number} of {len(worlds)} worlds")


def _rows(problems: Mapping[Cell, Sequence[str]]) -> list[dict[str, object]]:
    return [
        {"cell": str(cell), "result": "failed" if found else "passed", "problems": found}
        for cell, found in problems.items()
    ]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./do matrix", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cell", metavar="A/B/C/D", help="only this cell; * and ? match several (default: all, which write the page)"
    )
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="worlds of each cell (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write results and goals to this file")
    parser.add_argument("--strict", action="store_true", help="as always: a failed cell ends with status 1")
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error("--seeds is at least 1")
    return options
