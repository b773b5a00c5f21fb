"""The attacker, a job of one process on the host ``attacker``."""

from __future__ import annotations

import time

from harness.workers import Line
from hostile.attack import Report, Target
from hostile.table import BY_NAME


async def attack(line: Line, name: str, target: Target) -> Report:
    """Report "begins", and run the load of the attack with this name; ``lasted_s`` of the report is its duration."""
    load = BY_NAME[name].load
    line.send("begins")
    began_s = time.monotonic()
    report = await load(target)
    return {**report, "lasted_s": time.monotonic() - began_s}
