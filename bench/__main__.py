"""``python -m bench NAME``: run one benchmark; see each one's ``--help``."""

from __future__ import annotations

import importlib
import sys
from typing import Final

NAMES: Final = (
    "broker",
    "causal",
    "channel",
    "domain",
    "federation",
    "filters",
    "flights",
    "gateways",
    "handover",
    "heal",
    "matching",
    "limits",
    "log",
    "patterns",
    "rebalance",
    "relay",
    "sustained",
    "rudp-pair",
    "sip",
    "spark",
    "wheel",
)


def main() -> int:
    """Run the benchmark that is named, with the arguments that follow; return its exit status."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in NAMES:
        print("usage: ./do bench NAME [--help | ARGUMENTS]", file=sys.stderr)
        print(f"names: {', '.join(NAMES)}", file=sys.stderr)
        return 0 if name in ("-h", "--help") else 2
    # Only that one: each needs peers of its own.
    benchmark = importlib.import_module(f"bench.{name.replace('-', '_')}")
    try:
        status: int = benchmark.main(sys.argv[2:])
    except KeyboardInterrupt:
        print(f"bench {name}: interrupted", file=sys.stderr)
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
