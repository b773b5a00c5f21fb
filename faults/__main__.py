"""``python -m faults NAME``: inject one kind of fault and compare what is left with what was promised."""

from __future__ import annotations

import importlib
import sys
from typing import Final

NAMES: Final = (
    *("conformance", "crash", "domainkill", "enginekill", "federationkill", "lakekill"),
    *("matrix", "modelchange", "powercut", "restore", "sabotage"),
)


def main() -> int:
    """Run the named program with the arguments that follow; return its exit status."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in NAMES:
        print(f"usage: python -m faults NAME [--help | ARGUMENTS]\nnames: {', '.join(NAMES)}", file=sys.stderr)
        return 0 if name in ("-h", "--help") else 2
    try:
        status: int = importlib.import_module(f"faults.{name}").main(sys.argv[2:])
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
