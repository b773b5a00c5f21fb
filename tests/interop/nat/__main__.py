"""Measure how long events stop after each kind of move, through two NATs with a relay and without; requires root.

``python -m tests.interop.nat [--moves N] [--json FILE]``. Events flow at 50 a second from the publisher, which stays;
the subscriber moves. Time counts from the removal of its old address to the first event that was published after that;
some 10 ms of it are the move itself in this test network.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.internet import PUBLIC, Internet
from harness.reporting import percentile
from tests.interop.nat.places import BOB, EAST, HOSTS, NORTH, ROUTERS, SOUTH, WEST
from tests.interop.nat.programs import Layout
from tests.interop.nat.stage import Stage
from wanderbus.testbed import CannotRunError

STEADY_S: Final = 0.4


class Plan(NamedTuple):
    """A run in which the subscriber goes round ``places``, or, where it is but one, has its router rebind."""

    layout: Layout
    publisher: str
    places: tuple[str, ...]
    kinds: tuple[str, ...]
    """Names of the moves to each of them."""


PLANS: Final = (
    Plan(Layout.DIRECT, PUBLIC, (PUBLIC, PUBLIC), ("direct", "direct")),
    Plan(Layout.TOGETHER, NORTH, (SOUTH, NORTH), ("NAT to NAT", "NAT to NAT")),
    Plan(Layout.TOGETHER, EAST, (WEST, EAST), ("symmetric to symmetric", "symmetric to symmetric")),
    Plan(Layout.TOGETHER, NORTH, (PUBLIC, SOUTH), ("out of NAT", "into NAT")),
    Plan(Layout.TOGETHER, NORTH, (SOUTH,), ("rebinding",)),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and optionally write JSON; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.nat", description=__doc__)
    parser.add_argument("--moves", type=int, default=20, help="moves of each run (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file as JSON")
    options = parser.parse_args(arguments)
    internet = Internet("wbnat", ROUTERS, HOSTS)
    try:
        internet.open()
    except CannotRunError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        rows = [row for transport in ("UDP", "TCP") for row in measure(internet, transport, options.moves)]
    finally:
        internet.close()
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0


def measure(internet: Internet, transport: str, moves: int) -> Iterator[dict[str, Any]]:
    """Do every plan over one transport; print and yield a row for each kind of move."""
    for plan in PLANS:
        healed = _healed_ms(internet, plan, transport, moves) if transport == "UDP" or len(plan.places) > 1 else {}
        for kind, values in healed.items():
            figures = {f"p{round(100 * share)}": round(percentile(values, share), 1) for share in (0.5, 0.99)}
            row = {"kind": kind, "transport": transport, "moves": len(values), **figures, "max": round(max(values), 1)}
            print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
            yield row


def _healed_ms(internet: Internet, plan: Plan, transport: str, moves: int) -> dict[str, list[float]]:
    healed: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="wanderbus-nat-") as work,
        Stage.set(
            internet,
            Path(work),
            layout=plan.layout,
            transport=transport,
            alice=plan.publisher,
            bob=plan.places[0],
        ) as stage,
    ):
        stage.flow()
        for number in range(1, moves + 1):
            # Moves must not fall into step with the events.
            time.sleep(STEADY_S + random.uniform(0.0, 0.05))
            turn = number % len(plan.places)
            moment_s = stage.move(BOB, plan.places[turn]) if len(plan.places) > 1 else stage.rebind(plan.places[0])
            healed.setdefault(plan.kinds[turn], []).append(stage.healed_s(moment_s) * 1e3)
        stage.check(stage.hold())
    return healed


if __name__ == "__main__":
    sys.exit(main())
