"""Benchmark of sessions and channel groups that move between the servers of a domain, and of servers that restart.

Three servers run as processes on loopback; agents are in this process. The pause is the longest one between two events
of a stream of 100 a second around a move, beside the longest one in as much time without a move. Other sections: a
session in which 64 MiB wait, the rate of a drain, and a rolling restart beside that of a NATS cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench import long_queue, rolling_restart
from bench.broker_ours import connected
from bench.broker_peer import Place, reading
from bench.domain_servers import Cluster, cluster
from bench.streams import Streams, pause_ms
from harness.reporting import Goal, finish, goal, median, percentile, progress
from wanderbus import Agent
from wanderbus.client.operator import Operator
from wanderbus.settings.event_domain import Model

Row = Mapping[str, Any]

SECTIONS: Final = ("gap", "queue", "group", "drain", "restart")
PER_S: Final = 100.0
AROUND_S: Final = 0.5
"""Time from the request of a move in which its pause is looked for."""
SIZE: Final = 3
ADMINISTRATOR: Final = "adam"
FAULTS: Final = ("lost", "repeated", "out_of_order")
OPENING: Final = 16
"""Agents that connect at once."""
DRAIN_S_MAX: Final = 120.0


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status."""
    options = _options(arguments)
    results: list[Row] = []
    goals: list[Goal] = []
    if "gap" in options.sections:
        rows = [_gap(model, 6 if options.quick else 60) for model in ("ordered", "decentralised")]
        results += rows
        goals += _goals_of_gaps(rows)
    if "queue" in options.sections:
        row, found = long_queue.measure((8 if options.quick else 64) * 2**20)
        results.append(row)
        goals += found
    if "group" in options.sections:
        row = _gap("ordered", 6 if options.quick else 60, "channel group")
        results.append(row)
        goals.append(goal("group_move_gap_p99_ms", row["gap_p99_ms"], "ms", most=250))
        goals += [goal(f"group_move_{each}", row[each], "events", most=0) for each in FAULTS]
    if "restart" in options.sections:
        rows, found = rolling_restart.measure(6 if options.quick else 60)
        results += rows
        goals += found
    if "drain" in options.sections:
        row = _drain(20, 60) if options.quick else _drain(100, 1_400)
        results.append(row)
        goals.append(goal("drain_sessions_per_s", row["sessions"] / row["seconds"], "sessions/s", least=1_000))
        goals.append(goal("drain_left", row["left"], "sessions", most=0))
        goals.append(goal("drain_agents_lost", row["agents"] - row["agents_back"], "agents", most=0))
    for each in results:
        print(
            "  ".join(
                f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in each.items()
            )
        )
    return finish("bench handover", results, goals, file=options.json, strict=options.strict)


def _goals_of_gaps(rows: Sequence[Row]) -> list[Goal]:
    found = [goal(f"handover_{each}", sum(row[each] for row in rows), "events", most=0) for each in FAULTS]
    return [
        goal("handover_gap_p99_ms", max(row["gap_p99_ms"] for row in rows), "ms", most=100),
        goal("handover_gap_p50_ms", max(row["gap_p50_ms"] for row in rows), "ms"),
        goal("pause_without_handover_p50_ms", max(row["pause_p50_ms"] for row in rows), "ms"),
        *found,
    ]


# Pause of a stream ---------------------------------------------------------------------------------------------------


def _gap(model: Model, moves: int, what: str = "session") -> Row:
    progress(f"pause of a stream: {model}, {moves} moves of a {what}")
    own = ("--admin", ADMINISTRATOR)
    with (
        tempfile.TemporaryDirectory() as directory,
        cluster(Path(directory), SIZE, *own, model=model, more_users=[ADMINISTRATOR]) as servers,
    ):
        return {
            "section": "gap",
            "of": what,
            "model": model,
            "moves": moves,
            **asyncio.run(_moved(servers, moves, what)),
        }


async def _moved(servers: Cluster, moves: int, what: str) -> Row:
    """Move a session, or the channel group of its subject, from server to server while events come."""
    streams, subject = Streams(PER_S), servers.led[2][0]
    async with contextlib.AsyncExitStack() as stack:
        subscriber = await stack.enter_async_context(connected(servers.places[0], "subscriber0"))
        publisher = await stack.enter_async_context(connected(servers.places[1], "publisher0"))
        subscription = await stack.enter_async_context(subscriber.subscribe(subject))
        operator = await stack.enter_async_context(connected(servers.places[1], ADMINISTRATOR, Operator.SESSION))
        begins: list[float] = []

        async def publish(number: int) -> None:
            await publisher.publish(subject, {"Number": number})

        async with reading(partial(streams.read, subscription)), streams.publishing(publish):
            await asyncio.sleep(1.0)
            for number in range(moves):
                begins.append(time.monotonic())
                target = f"s{(number + 1) % SIZE + 1}"
                if what == "session":
                    await subscriber.operator.move(subscriber.uri, "default", target)
                else:
                    await operator.operator.move_group(subject, target)
                await asyncio.sleep(begins[-1] + 2 * AROUND_S - time.monotonic())
    times = streams.times()
    gaps = [pause_ms(times, begin, begin + AROUND_S) for begin in begins]
    pauses = [pause_ms(times, begin + AROUND_S, begin + 2 * AROUND_S) for begin in begins]
    return {
        "gap_p50_ms": median(gaps),
        "gap_p99_ms": percentile(gaps, 0.99),
        "pause_p50_ms": median(pauses),
        "pause_p99_ms": percentile(pauses, 0.99),
        **streams.faults(),
    }


# Drain ---------------------------------------------------------------------------------------------------------------


def _drain(agents: int, away: int) -> Row:
    """Drain a server with sessions of connected agents, and of others that are away."""
    users = [f"user{number}" for number in range(agents + away)]
    with (
        tempfile.TemporaryDirectory() as directory,
        cluster(Path(directory), SIZE, "--admin", ADMINISTRATOR, more_users=(*users, ADMINISTRATOR)) as servers,
    ):
        found = asyncio.run(_drained(servers.places[0], users, agents))
    return {"section": "drain", "sessions": len(users), "agents": agents, **found}


async def _drained(place: Place, users: Sequence[str], agents: int) -> Row:
    async with contextlib.AsyncExitStack() as stack:
        progress(f"drain: {len(users)} sessions, {agents} of them with an agent")
        connecting = asyncio.Semaphore(OPENING)

        async def begin(user: str, *, stays: bool) -> Agent:
            async with connecting, contextlib.AsyncExitStack() as own:
                agent = await own.enter_async_context(connected(place, user))
                await own.enter_async_context(agent.subscribe("News", f"Number == {len(user)}", keep=True))
                if stays:
                    await stack.enter_async_context(own.pop_all())
                return agent

        connected_agents = await asyncio.gather(*(begin(user, stays=True) for user in users[:agents]))
        await asyncio.gather(*(begin(user, stays=False) for user in users[agents:]))
        operator = await stack.enter_async_context(connected(place, ADMINISTRATOR, session=Operator.SESSION))
        began_s = time.monotonic()
        left = (await operator.operator.drain(on=True)).sessions
        while left and time.monotonic() < began_s + DRAIN_S_MAX:
            await asyncio.sleep(0.02)
            left = (await operator.operator.drain()).sessions
        seconds = time.monotonic() - began_s
        while (back := _connected(connected_agents)) < agents and time.monotonic() < began_s + DRAIN_S_MAX:
            await asyncio.sleep(0.02)
        back_s = time.monotonic() - began_s
    return {"seconds": seconds, "left": left, "agents_back": back, "agents_back_s": back_s}


def _connected(agents: Sequence[Agent]) -> int:
    return sum(agent.status == "CONNECTED" for agent in agents)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./do bench handover",
        description=__doc__,
        epilog="Example: ./do bench handover --quick --sections gap",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--sections", nargs="+", choices=SECTIONS, default=SECTIONS, help="sections to measure (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="few moves and sessions: half a minute, rough figures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report to FILE")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a goal is not met")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
