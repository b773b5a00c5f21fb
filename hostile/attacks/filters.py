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


MULTIPLIED = 8
CONTAINED = (100, 55)
"""Contained texts of a filter: too many for a clause to be analysed, and just few enough."""


def multiplied(number: int) -> str:
    """Return an expression of 2 KB or less whose clauses multiply, so that it is costly to compare with another."""
    texts = CONTAINED[number % len(CONTAINED)]
    contained = " or ".join(f'contains "{number:x}{each:x}"' for each in range(texts))
    return f"any a ({contained})" + "".join(f" and (b{each} == 1 or c{each} == 2)" for each in range(MULTIPLIED))


async def _costly_merging(target: Target) -> Report:
    """Subscribe to a subject whose publisher filters, so that each filter is merged with all before it."""
    until = time.monotonic() + target.seconds
    subscribed = published = 0
    async with (
        connected(target, "mallory", publisher_filtering=True) as publisher,
        connected(target, "trudy") as subscriber,
    ):
        for number in itertools.count():
            if time.monotonic() >= until:
                break
            # A subject with few subscriptions, whose filters are merged whenever there is another one.
            subject = f"{SUBJECT}{number // MULTIPLIED}"
            with contextlib.suppress(WanderbusError, TimeoutError):
                async with asyncio.timeout(max(0.1, until - time.monotonic())):
                    await publisher.publish(subject, {"a": "x"})
                    published += 1
            subscribed += await subscribe_all(subscriber, subject, [multiplied(number)], "eci", until)
    return {"subscriptions": subscribed, "events": published}


ATTACKS = (
    Attack(
        "costly_cesql",
        "5",
        "one user: 30 CESQL subscriptions as long as may be, and an event of 32 KB each second",
        _costly_cesql,
        user_input=True,
        quick=True,
    ),
    Attack(
        "many_clauses",
        "6",
        "one user: 457 subscriptions of 260 clauses over distinct names, then a restart",
        _many_clauses,
        user_input=True,
        restarts=True,
        compiled=True,
        seconds=40.0,
    ),
    Attack(
        "costly_merging",
        "own",
        "two users: one publishes and filters, one subscribes with filters of 2 KB that multiply when they are merged",
        _costly_merging,
        user_input=True,
        quick=True,
    ),
)
