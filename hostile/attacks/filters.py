"""Subscriptions of a user that cost the server as much as its limits allow."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator

from hostile.attack import Attack, Report, Target
from hostile.users import connected, subscribe_all
from wanderbus.errors import WanderbusError
from wanderbus.limits import EVENT_BYTES_MAX, EXPRESSION_CHARACTERS_MAX

SUBJECT = "Costly"
CESQL_COUNT = 30
EVENT_EACH_S = 5.0


def cesql(number: int) -> str:
    """Return an expression as long as may be whose every term copies the text of the event several times."""
    terms = (f"UPPER(LOWER(CONCAT(Text, Text, Text, Text))) = '{number}x{each}'" for each in itertools.count())
    written = next(terms)
    # In full it is written with parentheses around each OR.
    while len(written) + len(written.split(" OR ")) * 2 < EXPRESSION_CHARACTERS_MAX - 100:
        written += f" OR {next(terms)}"
    return written


async def _costly_cesql(target: Target) -> Report:
    until = time.monotonic() + target.seconds
    published = 0
    async with connected(target, "mallory") as agent:
        taken = await subscribe_all(agent, SUBJECT, map(cesql, range(CESQL_COUNT)), "cesql")
        text = "a" * (EVENT_BYTES_MAX - 200)
        while (left := until - time.monotonic()) > 0:
            with contextlib.suppress(WanderbusError, TimeoutError):
                async with asyncio.timeout(left):
                    await agent.publish(SUBJECT, {"Text": text})
                published += 1
            await asyncio.sleep(min(EVENT_EACH_S, max(0.0, until - time.monotonic())))
    return {"subscriptions": taken, "events": published}


SUBSCRIPTIONS = 457
CLAUSES = 260


def clauses(number: int) -> str:
    """Return an expression of many clauses over names that no other expression has."""
    return " or ".join(f"(n{number}_{clause} == {clause})" for clause in range(CLAUSES))


async def _many_clauses(target: Target) -> Report:
    async def limited() -> Report:
        async with connected(target, "trudy") as agent:
            taken = 0
            for expression in _until(target.seconds):
                taken += await subscribe_all(agent, SUBJECT, [expression], "eci")
            return {"subscriptions": taken}

    return await limited()


def _until(seconds: float) -> Iterator[str]:
    until = time.monotonic() + seconds
    for number in range(SUBSCRIPTIONS):
        if time.monotonic() < until:
            yield clauses(number)


ATTACKS = (
    Attack(
        "costly_cesql",
        "5",
        "one user: 30 CESQL subscriptions of 16 KB, and an event of 32 KB each 5 s",
        _costly_cesql,
        quick=True,
    ),
    Attack(
        "many_clauses",
        "6",
        "one user: 457 subscriptions of 260 clauses over distinct names, then a restart",
        _many_clauses,
        restarts=True,
        seconds=40.0,
    ),
)
