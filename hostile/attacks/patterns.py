"""Patterns of a user that cost the server as much as its limits allow."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterable

import wanderbus
from hostile.attack import Attack, Report, Target
from hostile.users import ANSWER_S_MAX, connected
from wanderbus.errors import WanderbusError

SUBJECT = "Costly"
SUMS = 28
AGGREGATES = 52
FIRSTS = 36
LASTS = 8
PATTERNS = 50
OPEN_MATCHES = 900


def costly(number: int) -> str:
    """Return a pattern whose condition takes the sum of the same events again and again."""
    sums = " + ".join(["(" + " + ".join(["sum(A.v)"] * AGGREGATES) + ")"] * SUMS)
    repeated = f"pattern p{number} match A{{1,1000}}: {SUBJECT}x"
    return f"{repeated} then B: {SUBJECT}y where (({sums}) == 1.5) within 1 hours"


def matches(number: int) -> str:
    """Return a pattern of which one event completes as many matches as there are partial ones."""
    values = ", ".join(f"n{each} = sum(A.v) + sum(B.v)" for each in range(60))
    return f"pattern m{number} match A: {SUBJECT}x then B: {SUBJECT}y within 1 minute emit m{number} with {values}"


async def _subscribe(agent: wanderbus.Agent, texts: Iterable[str], until: float) -> int:
    taken = 0
    for text in texts:
        if time.monotonic() >= until:
            break
        with contextlib.suppress(WanderbusError, TimeoutError):
            async with asyncio.timeout(ANSWER_S_MAX):
                await agent.subscribe(pattern=text, keep=True).__aenter__()
                taken += 1
    return taken


async def _publish(agent: wanderbus.Agent, firsts: int, lasts: int, until: float) -> int:
    """Publish events that begin matches and events that complete them, in turns, until monotonic second ``until``."""
    published = 0
    for _ in itertools.count():
        for kind in "x" * firsts + "y" * lasts:
            if (left := until - time.monotonic()) <= 0:
                return published
            with contextlib.suppress(WanderbusError, TimeoutError):
                async with asyncio.timeout(left):
                    await agent.publish(f"{SUBJECT}{kind}", {"v": 1.0})
                published += 1
        await asyncio.sleep(0.1)
    return published


async def _pattern_sums(target: Target) -> Report:
    """Subscribe to a pattern with the longest condition, and publish events that would complete matches of it."""
    until = time.monotonic() + target.seconds
    async with connected(target, "mallory") as agent:
        taken = await _subscribe(agent, [costly(0)], until)
        published = await _publish(agent, FIRSTS, LASTS, until)
    return {"subscriptions": taken, "events": published}


async def _many_matches(target: Target) -> Report:
    """Keep many partial matches in many patterns, and complete all of them with one event."""
    until = time.monotonic() + target.seconds
    async with connected(target, "trudy") as agent:
        taken = await _subscribe(agent, map(matches, range(PATTERNS)), until - target.seconds / 2)
        published = await _publish(agent, OPEN_MATCHES // PATTERNS * 5, 1, until)
    return {"subscriptions": taken, "events": published}


ATTACKS = (
    Attack(
        "pattern_sums",
        "own",
        "one user: a pattern with a condition of 16 KB over repeated events, then a restart",
        _pattern_sums,
        user_input=True,
        restarts=True,
        quick=True,
    ),
    Attack(
        "many_matches",
        "own",
        "one user: 50 patterns of 90 partial matches, which one event completes, each with 120 sums",
        _many_matches,
        user_input=True,
        restarts=True,
        compiled=True,
    ),
)
