"""Attack by a server of the domain, and by a client that requests sessions of others meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import msgspec

import wanderbus
from harness.loads import LoadEndedError
from hostile.attack import DOMAIN, OPERATOR, Attack, Report, Target
from hostile.domain import LIAR, PLACES
from hostile.good import MOVER, NAMES
from hostile.lies import GHOST, SESSION, Honest
from hostile.lying_server import COUNTS, ORDERS, OWNED
from hostile.network import ATTACKER
from hostile.users import ANSWER_S_MAX, connected
from wanderbus.errors import WanderbusError
from wanderbus.protocol.session_copy import SessionCopy

SUBJECT: Final = "Lie"
WAITING: Final = 20
"""Notifications that wait in the session that the liar owned."""

HONEST: Final = tuple(each for each in PLACES if each != LIAR)
MOVING: Final = f"sip:{MOVER}@{DOMAIN}"
"""User whose session moves from one honest server to the other."""

MOVE_EACH_S: Final = 1.0
SETTLE_S: Final = 1.0
"""Time for a move that has waited for an answer of the liar."""

ATTACK_S: Final = 10.0
"""Duration in which the servers do not load their compiled loops, because of the subscriptions that the liar makes."""

PATTERN: Final = f"pattern twice match A: {SUBJECT} then B: {SUBJECT} where (B.N > A.N) within 1 hours"


async def _lying_server(target: Target) -> Report:
    """Let the server lie while a user requests the sessions of others, and one session moves between honest servers."""
    until = time.monotonic() + target.seconds
    await _own(msgspec.structs.replace(target, server=ATTACKER))
    before, _ = await _sessions(target)
    home = next(each.server for each in before if each.user == MOVING)
    orders, counts_file = Path(target.directory, ORDERS), Path(target.directory, COUNTS)
    orders.with_suffix(".new").write_bytes(msgspec.json.encode(before))
    orders.with_suffix(".new").rename(orders)
    (pulls, admitted), moves = await asyncio.gather(_pull(target, until), _move(target, home, until))
    orders.unlink()
    while not counts_file.exists():
        await asyncio.sleep(0.1)
    await asyncio.sleep(SETTLE_S)
    after, made = await _sessions(target)
    if not made:
        raise LoadEndedError("no server has taken a session from the liar")
    left = {(each.user, "" if each.user == MOVING else each.server, each.subscriptions) for each in after}
    stayed = [(each.user, "" if each.user == MOVING else each.server, each.subscriptions) in left for each in before]
    counts = {"sessions_moved": stayed.count(False), "sessions_made": made, "moves": moves}
    return {**counts, "pulls": pulls, "pulls_admitted": admitted, **json.loads(counts_file.read_text())}


async def _own(target: Target) -> None:
    """Make a session at the liar, with a queue and the state of a pattern."""
    user = OWNED.removeprefix("sip:").partition("@")[0]
    async with connected(target, user) as agent:
        await agent.subscribe(SUBJECT, "N > 0", keep=True).__aenter__()
        await agent.subscribe(pattern=PATTERN, keep=True).__aenter__()
    async with connected(target, "oscar") as agent:
        for number in range(WAITING):
            await agent.publish(SUBJECT, {"N": number + 1})


async def _sessions(target: Target) -> tuple[list[Honest], int]:
    """Return the sessions of the good agents at the honest servers, and the number of those that the liar has made."""
    found, made = [], 0
    good = {f"sip:{name}@{DOMAIN}" for name in NAMES}
    for server in HONEST:
        async with _administrator(target, server) as agent:
            rows = [each async for each in agent.operator.sessions()]
            wanted = [each async for each in agent.operator.subscriptions()]
        made += sum(each.user.startswith(GHOST) for each in rows)
        for row in (each for each in rows if each.user in good and each.subscriptions):
            names = tuple(each.subscription for each in wanted if each.user == row.user)
            found.append(Honest(server, row.user, tuple(each.device for each in row.devices), names))
    return found, made


def _administrator(target: Target, server: str) -> AbstractAsyncContextManager[wanderbus.Agent]:
    return connected(msgspec.structs.replace(target, server=PLACES[server].host), OPERATOR)


async def _move(target: Target, here: str, until: float) -> int:
    """Move a session between the honest servers until monotonic second ``until``; return how often."""
    moved = 0
    while time.monotonic() < until:
        there = next(each for each in HONEST if each != here)
        async with _administrator(target, here) as agent:
            with contextlib.suppress(WanderbusError, TimeoutError):
                async with asyncio.timeout(ANSWER_S_MAX):
                    await agent.operator.move(MOVING, SESSION, there)
                    moved, here = moved + 1, there
        await asyncio.sleep(MOVE_EACH_S)
    return moved


async def _pull(target: Target, until: float) -> tuple[int, int]:
    """Request the sessions of others until monotonic second ``until``; return how many requests, and successes."""
    tried = admitted = 0
    async with connected(target, "mallory") as agent:
        while time.monotonic() < until:
            for doing in _requests(agent):
                tried += 1
                with contextlib.suppress(WanderbusError, TimeoutError):
                    async with asyncio.timeout(ANSWER_S_MAX):
                        await doing
                        admitted += 1
            await asyncio.sleep(0.1)
    return tried, admitted


def _requests(agent: wanderbus.Agent) -> Iterator[Any]:
    operator = agent.operator
    for name in NAMES:
        user = f"sip:{name}@{DOMAIN}"
        yield operator.move(user, SESSION, LIAR)
        yield operator.transfer(user, SESSION, "x")
        yield operator.copy_session(user, SESSION)
        yield operator.import_session(SessionCopy(user, "taken", 0, (), ()))
        yield operator.kick(user, forget=True)
        yield operator.discard(user, SESSION)


ATTACKS = (
    Attack(
        "lying_server",
        "",
        "a server of the domain: forged offers, exports and answers, and a user who requests others' sessions",
        _lying_server,
        lying=True,
        restarts=True,
        spares=("good_p99_ratio",),
        quick=True,
        seconds=ATTACK_S,
    ),
)
