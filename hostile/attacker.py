"""The attacker, a job of one process on the host ``attacker``."""

from __future__ import annotations

from harness.workers import Line
from hostile.attack import Report, Target
from hostile.table import BY_NAME


async def attack(line: Line, name: str, target: Target) -> Report:
    """Run the load of the attack with this name."""
    return await BY_NAME[name].load(target)
