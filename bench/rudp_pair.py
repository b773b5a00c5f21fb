"""How many small messages per second pass through a pair of RUDP endpoints in memory, on one core (SPEC F).

Nothing but the machines runs: no socket, no event loop, no loss. Run ``python bench/rudp_pair.py --help``.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from random import Random

from wanderbus.machine import Address, DatagramReceived, Input, Output, SendDatagram
from wanderbus.rudp import Endpoint, MessageReceived, OpenConnection, SendMessage

GOAL_MESSAGES_PER_S = 20_000


class SeededRandom:
    """A repeatable source, enough for connection ids."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def token(self, n_bytes: int) -> bytes:
        """Return ``n_bytes`` bytes."""
        return self._random.randbytes(n_bytes)

    def uniform(self, low: float, high: float) -> float:
        """Return a number from ``low`` up to ``high``."""
        return self._random.uniform(low, high)


def carried(outputs: list[Output], source: Address) -> list[Input]:
    """Turn what one side sends into what the other receives."""
    return [DatagramReceived("data", source, o.data) for o in outputs if type(o) is SendDatagram]


def run_once(messages: int, batch: int, payload_bytes: int) -> float:
    """Send ``messages`` from one endpoint to the other in batches; return messages per second."""
    left, right = Endpoint(SeededRandom(1)), Endpoint(SeededRandom(2))
    left_address, right_address = ("10.0.0.1", 1), ("10.0.0.2", 2)
    left_id, right_id = left.allocate(), right.allocate()
    left.step([OpenConnection(left_id, right_id, right_address, 0)], 0.0)
    right.step([OpenConnection(right_id, left_id, left_address, 0)], 0.0)
    payload = bytes(payload_bytes)
    delivered = 0
    started = time.perf_counter()
    while delivered < messages:
        now = time.perf_counter()
        sent = left.step([SendMessage(left_id, payload) for _ in range(batch)], now)
        while sent:
            answers = right.step(carried(sent, left_address), now)
            delivered += sum(type(output) is MessageReceived for output in answers)
            sent = carried_back(left, answers, right_address, now)
    return delivered / (time.perf_counter() - started)


def carried_back(left: Endpoint, answers: list[Output], source: Address, now: float) -> list[Output]:
    """Hand the ACKs over; return what they let go, if anything."""
    outputs = left.step(carried(answers, source), now)
    return [output for output in outputs if type(output) is SendDatagram]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write the result if asked; with ``--strict`` an unmet goal gives exit status 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=100_000, help="messages per run (default %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="messages per step (default %(default)s)")
    parser.add_argument("--payload-bytes", type=int, default=100, help="bytes per message (default %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="the median of so many runs counts (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there as JSON")
    parser.add_argument("--strict", action="store_true", help="fail if the goal is not met")
    args = parser.parse_args(arguments)
    rates = [round(run_once(args.messages, args.batch, args.payload_bytes)) for _ in range(args.runs)]
    median = round(statistics.median(rates))
    met = median >= GOAL_MESSAGES_PER_S
    print(f"{median:,} messages/s (runs: {', '.join(f'{rate:,}' for rate in rates)}; goal {GOAL_MESSAGES_PER_S:,})")
    if args.json:
        report = {
            "command": "rudp_pair",
            "machine": {"python": platform.python_version(), "architecture": platform.machine()},
            "results": [{"batch": args.batch, "payload_bytes": args.payload_bytes, "messages_per_s": rates}],
            "goals": [
                {
                    "name": "rudp_messages_per_s",
                    "value": median,
                    "unit": "1/s",
                    "goal": GOAL_MESSAGES_PER_S,
                    "met": met,
                }
            ],
        }
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    return 1 if args.strict and not met else 0


if __name__ == "__main__":
    sys.exit(main())
