"""Benchmark of sessions and channel groups that move between the servers of a domain, and of servers that restart.

Three servers run as processes, in network namespaces with a delay between them, which takes root; agents are in this
process. The pause is the longest one between two events of a stream of 100 a second around a move, beside the longest
one in as much time without a move. Other sections: the rate of a drain, and on loopback, without a delay, a session in
which 64 MiB wait, and a rolling restart beside that of a NATS cluster.
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
from bench.broker_peer import reading
from bench.domain_servers import Cluster, cluster
from bench.sections import print_results, section_options
from bench.streams import Streams, pause_ms
from harness.reporting import Goal, finish, goal, median, percentile, progress
from harness.server_hosts import missing
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
LOOK_S: Final = 0.1
DELAY_MS: Final = 20.0


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status."""
    options = _options(arguments)
    delay_s = options.delay_ms / 1e3
    results: list[Row] = []
    goals: list[Goal] = []
    if "gap" in options.sections:
        rows = [_gap(model, 6 if options.quick else 60, delay_s) for model in ("ordered", "decentralised")]
        results += rows
        goals += _goals_of_gaps(rows, delay_s)
    if "queue" in options.sections:
        row, found = long_queue.measure((8 if options.quick else 64) * 2**20)
        results.append(row)
        goals += found
    if "group" in options.sections:
        row = _gap("ordered", 6 if options.quick else 60, delay_s, "channel group")
        results.append(row)
        goals.append(goal("group_move_gap_p99_ms", row["gap_p99_ms"], "ms", most=250))
        goals += [goal(f"group_move_{each}", row[each], "events", most=0) for each in FAULTS]
    if "restart" in options.sections:
        rows, found = rolling_restart.measure(*((6, 0) if options.quick else (60, 440)))
        results += rows
        goals += found
    if "drain" in options.sections:
        row = _drain(*((20, 480) if options.quick else (500, 9_500)), delay_s)
        results.append(row)
        goals.append(goal("drain_sessions_per_s", row["sessions"] / row["seconds"], "sessions/s", least=1_000))
        goals.append(goal("drain_left", row["left"], "sessions", most=0))
        goals.append(goal("drain_agents_lost", row["agents"] - row["agents_back"], "agents", most=0))
    print_results(results)
    return finish("bench handover", results, goals, file=options.json, strict=options.strict)


def _goals_of_gaps(rows: Sequence[Row], delay_s: float) -> list[Goal]:
    found = [goal(f"handover_{each}", sum(row[each] for row in rows), "events", most=0) for each in FAULTS]
    return [
        goal("handover_gap_p99_ms", max(row["gap_p99_ms"] for row in rows), "ms", most=100 + 4e3 * delay_s),
        goal("handover_gap_p50_ms", max(row["gap_p50_ms"] for row in rows), "ms"),
        goal("pause_without_handover_p50_ms", max(row["pause_p50_ms"] for row in rows), "ms"),
        *found,
    ]


# Pause of a stream ---------------------------------------------------------------------------------------------------


def _gap(model: Model, moves: int, delay_s: float, what: str = "session") -> Row:
    progress(f"pause of a stream: {model}, {moves} moves of a {what}")
    own = ("--admin", ADMINISTRATOR)
    with (
        tempfile.TemporaryDirectory() as directory,
        cluster(Path(directory), SIZE, *own, model=model, more_users=[ADMINISTRATOR], delay_s=delay_s) as servers,
    ):
        return {
            "section": "gap",
            "delay_ms": 1e3 * delay_s,
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


def _drain(agents: int, away: int, delay_s: float) -> Row:
    """Drain a server with sessions of connected agents, and of others that are away, where an event waits in each."""
    users, others = (
        [f"{kind}{number}" for number in range(count)] for kind, count in (("user", agents), ("away", away))
    )
    progress(f"drain: {agents + away} sessions, {agents} of them with an agent")
    own = ("--admin", ADMINISTRATOR)
    with (
        tempfile.TemporaryDirectory() as directory,
        cluster(
            Path(directory), SIZE, *own, more_users=(*users, ADMINISTRATOR), away=others, delay_s=delay_s
        ) as servers,
    ):
        found = asyncio.run(_drained(servers, users))
    sessions = agents + away
    processor_ms = 1e3 * found["processor_s"] / sessions
    return {
        "section": "drain",
        "delay_ms": 1e3 * delay_s,
        "sessions": sessions,
        "agents": agents,
        **found,
        "servers_processor_ms_per_session": processor_ms,
    }


async def _drained(servers: Cluster, users: Sequence[str]) -> Row:
    place, agents = servers.places[0], len(users)
    async with contextlib.AsyncExitStack() as stack:
        connecting = asyncio.Semaphore(OPENING)

        async def begin(user: str) -> Agent:
            async with connecting, contextlib.AsyncExitStack() as own:
                agent = await own.enter_async_context(connected(place, user))
                await own.enter_async_context(agent.subscribe("News", f"Number == {len(user)}", keep=True))
                await stack.enter_async_context(own.pop_all())
                return agent

        connected_agents = await asyncio.gather(*map(begin, users))
        operator = await stack.enter_async_context(connected(place, ADMINISTRATOR, session=Operator.SESSION))
        before_s, began_s = servers.processor_s(), time.monotonic()
        left = (await operator.operator.drain(on=True)).sessions
        while left and time.monotonic() < began_s + DRAIN_S_MAX:
            await asyncio.sleep(LOOK_S)
            left = (await operator.operator.drain()).sessions
        seconds = time.monotonic() - began_s
        used_s = servers.processor_s() - before_s
        while (back := _connected(connected_agents)) < agents and time.monotonic() < began_s + DRAIN_S_MAX:
            await asyncio.sleep(0.02)
        back_s = time.monotonic() - began_s
    return {"seconds": seconds, "left": left, "agents_back": back, "agents_back_s": back_s, "processor_s": used_s}


def _connected(agents: Sequence[Agent]) -> int:
    return sum(agent.status == "CONNECTED" for agent in agents)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = section_options(
        "handover",
        __doc__,
        SECTIONS,
        quick="few moves and sessions: half a minute, rough figures",
        example="Example: ./do bench handover --quick --sections gap\nExample: ./do bench handover --delay-ms 0",
    )
    reason = missing()
    parser.add_argument(
        "--delay-ms",
        type=float,
        metavar="MS",
        default=DELAY_MS if reason is None else 0.0,
        help="time between servers in each direction; 0 for servers on loopback (default: %(default)g"
        + (")" if reason is None else f", because {reason})"),
    )
    options = parser.parse_args(arguments)
    if options.delay_ms < 0 or (options.delay_ms and reason is not None):
        parser.error(f"argument --delay-ms: {reason or 'a delay is not negative'}; 0 is for servers on loopback")
    return options


if __name__ == "__main__":
    sys.exit(main())
