"""Rate of small messages through a pair of RUDP endpoints in memory, on one core (SPEC F).

Only the two machines run: no socket, no event loop, no loss. Run ``python bench/rudp_pair.py --help``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from harness.reporting import goal, write_report
from wanderbus.machine import Address, DatagramReceived, Input, Output, SendDatagram
from wanderbus.rudp import Endpoint, MessageReceived, OpenConnection, RudpConfig, SendMessage
from wanderbus.rudp.interface import Secrets

GOALS_MESSAGES_PER_S = {
    (False, False): 250_000,
    (False, True): 200_000,
    (True, False): 60_000,
    (True, True): 60_000,
}
"""Rates, by whether each message has a datagram of its own, and whether packets are sealed."""


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


def carried(outputs: Sequence[Output], source: Address) -> list[Input]:
    """Return the inputs of one side for the outputs of the other."""
    return [DatagramReceived("data", source, o.data) for o in outputs if type(o) is SendDatagram]


def run_once(messages: int, batch: int, payload_bytes: int, config: RudpConfig, sealed: bool) -> float:
    """Send ``messages`` from one endpoint to the other in batches; return messages per second."""
    left, right = Endpoint(SeededRandom(1), config), Endpoint(SeededRandom(2), config)
    ahead, back = bytes(32), bytes([1]) * 32
    left_address, right_address = ("10.0.0.1", 1), ("10.0.0.2", 2)
    left_id, right_id = left.allocate(), right.allocate()
    left.step([OpenConnection(left_id, right_id, right_address, 0, Secrets(ahead, back) if sealed else None)], 0.0)
    right.step([OpenConnection(right_id, left_id, left_address, 0, Secrets(back, ahead) if sealed else None)], 0.0)
    payload = bytes(payload_bytes)
    delivered = 0
    started = time.perf_counter()
    while delivered < messages:
        now = time.perf_counter()
        sent: Sequence[Output] = left.step([SendMessage(left_id, payload) for _ in range(batch)], now)
        while sent:
            answers = right.step(carried(sent, left_address), now)
            delivered += sum(type(output) is MessageReceived for output in answers)
            sent = carried_back(left, answers, right_address, now)
    return delivered / (time.perf_counter() - started)


def carried_back(left: Endpoint, answers: Sequence[Output], source: Address, now: float) -> Sequence[Output]:
    """Deliver the ACKs; return the packets that they release, if any."""
    outputs = left.step(carried(answers, source), now)
    return [output for output in outputs if type(output) is SendDatagram]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write the result if asked; with ``--strict`` an unmet goal gives exit status 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=100_000, help="messages per run (default %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="messages per step (default %(default)s)")
    parser.add_argument("--payload-bytes", type=int, default=100, help="bytes per message (default %(default)s)")
    parser.add_argument("--sealed", action="store_true", help="seal the packets")
    parser.add_argument("--single", action="store_true", help="send each message in a separate datagram")
    parser.add_argument(
        "--runs", type=int, default=3, help="number of runs; their median counts (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file as JSON")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if the goal is not met")
    args = parser.parse_args(arguments)
    config = RudpConfig(messages_per_datagram_max=1) if args.single else RudpConfig()
    size = (args.messages, args.batch, args.payload_bytes)
    rates = [round(run_once(*size, config, args.sealed)) for _ in range(args.runs)]
    median = round(statistics.median(rates))
    least = GOALS_MESSAGES_PER_S[args.single, args.sealed]
    print(f"{median:,} messages/s (runs: {', '.join(f'{rate:,}' for rate in rates)}; goal {least:,})")
    if args.json:
        figures = {name: getattr(args, name) for name in ("batch", "payload_bytes", "sealed", "single")}
        goals = [goal("rudp_messages_per_s", median, "1/s", least=least)]
        write_report(args.json, "rudp_pair", [{**figures, "messages_per_s": rates}], goals)
    return 1 if args.strict and median < least else 0


if __name__ == "__main__":
    sys.exit(main())
