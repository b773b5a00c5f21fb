"""Subscriptions of a user that cost the server as much as its limits allow."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time

from hostile.attack import Attack, Report, Target
from hostile.users import connected, subscribe_all
from wanderbus.errors import WanderbusError
from wanderbus.limits import EVENT_BYTES_MAX, EXPRESSION_CHARACTERS_MAX

SUBJECT = "Costly"
CESQL_COUNT = 30
EVENT_EACH_S = 1.0


def cesql(number: int, characters: int) -> str:
    """Return an expression of about so many characters whose every term copies the text of the event several times."""
    terms = (f"UPPER(LOWER(CONCAT(Text, Text, Text, Text))) = '{number}x{each}'" for each in itertools.count())
    written = next(terms)
    # In full it is written with parentheses around each OR.
    while len(written) + len(written.split(" OR ")) * 2 < characters - 100:
        written += f" OR {next(terms)}"
    return written


async def _costly_cesql(target: Target) -> Report:
    """Subscribe with filters as long as the server allows, and publish the events that are slowest for them."""
    until = time.monotonic() + target.seconds
    published = taken = 0
    characters = EXPRESSION_CHARACTERS_MAX
    async with connected(target, "mallory") as agent:
        while characters > CESQL_CHARACTERS_MIN and time.monotonic() < until:
            written = [cesql(number, characters) for number in range(taken, CESQL_COUNT)]
            taken += await subscribe_all(agent, SUBJECT, written, "cesql", until)
            if taken >= CESQL_COUNT:
                break
            characters //= 2
        text = "a" * (EVENT_BYTES_MAX - 200)
        while (left := until - time.monotonic()) > 0:
            with contextlib.suppress(WanderbusError, TimeoutError):
                async with asyncio.timeout(left):
                    await agent.publish(SUBJECT, {"Text": text})
                published += 1
            await asyncio.sleep(min(EVENT_EACH_S, max(0.0, until - time.monotonic())))
    return {"subscriptions": taken, "events": published, "characters": characters}


CESQL_CHARACTERS_MIN = 200
SUBSCRIPTIONS = 457
CLAUSES = 260


def clauses(number: int) -> str:
    """Return an expression of many clauses over names that no other expression has."""
    return " or ".join(f"(n{number}_{clause} == {clause})" for clause in range(CLAUSES))


async def _many_clauses(target: Target) -> Report:
    until = time.monotonic() + target.seconds
    async with connected(target, "trudy") as agent:
        written = map(clauses, range(SUBSCRIPTIONS))
        return {"subscriptions": await subscribe_all(agent, SUBJECT, written, "eci", until)}


ATTACKS = (
    Attack(
        "costly_cesql",
        "5",
        "one user: 30 CESQL subscriptions as long as may be, and an event of 32 KB each second",
        _costly_cesql,
        quick=True,
    ),
    Attack(
        "many_clauses",
        "6",
        "one user: 457 subscriptions of 260 clauses over distinct names, then a restart",
        _many_clauses,
        restarts=True,
        compiled=True,
        seconds=40.0,
    ),
)
