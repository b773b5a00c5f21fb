"""The attacker, a job of one process on the host ``attacker``."""

from __future__ import annotations

import os

from bench.workers import Line
from hostile.attack import Report, Target
from hostile.table import BY_NAME

NICE = 10
"""The attacker gives way to everybody: its own use of a processor is no part of what is measured."""


async def attack(line: Line, name: str, target: Target) -> Report:
    """Do the load of the attack with this name."""
    os.nice(NICE - os.nice(0))
    return await BY_NAME[name].load(target)
