"""Accidental damage to the files of a server: agents must receive everything in spite of it."""

from __future__ import annotations

import asyncio

from hostile.attack import Attack, Report, Target


async def _wait(target: Target) -> Report:
    await asyncio.sleep(target.seconds)
    return {}


ATTACKS = (
    Attack(
        "damaged_state",
        "10",
        "the server is stopped, one byte of a subscription in state.db is changed, and it starts again",
        _wait,
        damage="state.db",
        # The server is away while it stops and starts.
        spares=("good_p99_ratio", "newcomer_s", "longest_stall_s", "rss_growth_mib"),
        seconds=20.0,
        quick=True,
    ),
)
