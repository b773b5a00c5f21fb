"""``python -m bench NAME``: run one benchmark; see each one's ``--help``."""

from __future__ import annotations

import sys

from bench import rudp_pair, sip, sustained

BENCHMARKS = {"sustained": sustained.main, "rudp-pair": rudp_pair.main, "sip": sip.main}


def main() -> int:
    """Run the benchmark that is named, with the arguments that follow; return its exit status."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in BENCHMARKS:
        print("usage: ./do bench NAME [--help | ARGUMENTS]", file=sys.stderr)
        print(f"names: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 0 if name in ("-h", "--help") else 2
    return BENCHMARKS[name](sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
