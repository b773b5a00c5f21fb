"""Our reliable UDP beside bare UDP, TCP and TLS: messages per second one way, round trips, under loss and far away.

The two sides are processes with a processor each, on loopback. Bare UDP is an echo by asyncio alone, the best of a few
windows of time. A message counts once the receiving application has it; a sender sends as fast as it may. Round
trips are of an application that echoes, at 20 messages a second on each of some channels, all peers in turn. Loss is by
iptables, in network namespaces, both ways (needs root and is left out without). Everything runs in turn, several times;
figures are medians. Pairs that goals compare run more often, one right after the other: medians of their ratios count.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench import channel_jobs as jobs
from bench.channel_long_path import long_path_goals, long_paths, print_long_paths
from bench.channel_peers import (
    OWN_TCP,
    PEERS,
    RUDP_PLAIN,
    RUDP_PLAIN_UNBATCHED,
    RUDP_SEALED,
    RUDP_SEALED_UNBATCHED,
    TCP,
    TLS,
    UDP,
    Peer,
)
from harness.reporting import Goal, finish, goal, median, percentile, progress
from harness.two_hosts import FAR_ADDRESS, hosts
from harness.workers import Worker, WorkerError, processors
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.namespaces import missing

UNBATCHED_VS_ECHO_MIN: Final = 0.25
BATCHED_VS_UNBATCHED_MIN: Final = 3.0
LATENCY_P50_VS_UDP_MAX: Final = 1.3
ENCRYPTION_COST_MAX: Final = 0.25
LOSS_P99_VS_TCP_MAX: Final = 1.0

SMALL_BYTES: Final = 200
SIZES_BYTES: Final = (64, SMALL_BYTES, 1_000)
BULK_BYTES: Final = 1_000_000
BULK_MESSAGES: Final = 100
MANY: Final = 100
BEAT_PER_S: Final = 20.0
LOSS: Final = 0.01
FAR_RTT_S: Final = 0.02
LOOPBACK: Final = "127.0.0.1"
GOAL_LOAD: Final = jobs.Load(SMALL_BYTES)
GOAL_ROUNDS: Final = 4
GOAL_PEERS: Final = (RUDP_SEALED_UNBATCHED, RUDP_PLAIN_UNBATCHED, RUDP_SEALED, RUDP_PLAIN)


class Cell(NamedTuple):
    """One thing to measure."""

    peer: Peer
    loop: str
    load: jobs.Load


class Rate(NamedTuple):
    """Messages and bytes received per second, and the processor time that one message takes on each side."""

    messages_per_s: float
    mb_per_s: float
    sender_us: float
    receiver_us: float


class Times(NamedTuple):
    """Round trips of one peer."""

    peer: str
    under: str
    heard: int
    expected: int
    p50_ms: float
    p99_ms: float
    most_ms: float


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status."""
    options = _options(arguments)
    try:
        if options.profile:
            return write_profiles(options.profile)
        echoes, rates = throughput(options.runs, options.quick)
        quiet, lossy = round_trips(options.quick), lossy_round_trips(options.quick)
        far, far_rates = far_away(options.quick)
        batches = {} if options.quick else long_paths(options.runs)
    except WorkerError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"bare UDP echo: {median(echoes):,.0f} datagrams/s of {SMALL_BYTES} bytes")
    medians = {cell: Rate(*map(median, zip(*each, strict=True))) for cell, each in rates.items()}
    _print_rates(medians)
    for name, each in far_rates.items():
        print(f"{name} over {FAR_RTT_S * 1e3:.0f} ms: {each.messages_per_s:,.0f} messages/s of {SMALL_BYTES} bytes")
    times = [*quiet, *lossy, *far]
    _print_times(times)
    print_long_paths(batches)
    results: list[object] = [{"echo_per_s": echoes}, *_rate_rows(rates)]
    results += [{"peer": name, "rtt_s": FAR_RTT_S, "runs": [each._asdict()]} for name, each in far_rates.items()]
    results += [each._asdict() for each in times]
    results += [{"peer": name, "batch": batch._asdict(), "runs_s": runs} for (batch, name), runs in batches.items()]
    goals = [*_goals(echoes, rates, quiet, lossy), *long_path_goals(batches)]
    return finish("bench channel", results, goals, file=options.json, strict=options.strict)


# Messages per second -------------------------------------------------------------------------------------------------


def throughput(runs: int, quick: bool) -> tuple[list[float], dict[Cell, list[Rate]]]:
    """Return the echo's datagrams per second and the rates of every cell, run by run."""
    echoes: list[float] = []
    rates: dict[Cell, list[Rate]] = defaultdict(list)
    near, far = processors()
    with Worker(processor=far) as receiver, Worker(processor=near) as sender:
        for turn in range(runs):
            # The cells of the goals are measured more often than the others, and close to the echo.
            for _ in range(GOAL_ROUNDS):
                echoes.append(echo_per_s(receiver, sender))
                for cell in goal_cells():
                    rates[cell].append(rate(receiver, sender, cell))
            grid = list(cells(quick))
            for number, cell in enumerate(grid):
                if number % 8 == 0:
                    progress(f"run {turn + 1} of {runs}: {number} of {len(grid)} rates")
                rates[cell].append(rate(receiver, sender, cell))
    return echoes, dict(rates)


def goal_cells() -> Iterator[Cell]:
    """Yield the cells of the goals."""
    return (Cell(peer, "uvloop", GOAL_LOAD) for peer in GOAL_PEERS)


def cells(quick: bool) -> Iterator[Cell]:
    """Yield all other cells: sizes, one and many peers, both loops."""
    goals = set(goal_cells())
    for size in (SMALL_BYTES,) if quick else SIZES_BYTES:
        for many in (1, MANY):
            for peer in PEERS:
                cell = Cell(peer, "uvloop", jobs.Load(size, many))
                if cell not in goals:
                    yield cell
    for many in (1,) if quick else (1, MANY):
        yield from (Cell(peer, "asyncio", jobs.Load(SMALL_BYTES, many)) for peer in PEERS)
        for peer in (RUDP_SEALED, RUDP_PLAIN, OWN_TCP, TCP, TLS):
            yield Cell(peer, "uvloop", jobs.Load(BULK_BYTES, many, messages_each=1 if many > 1 else BULK_MESSAGES))


def rate(receiver: Worker, sender: Worker, cell: Cell, host: str = LOOPBACK, profiles: Path | None = None) -> Rate:
    """Let one side send and the other count; their profiles go to a directory if one is named."""
    files = [profiles / f"{cell.peer.name}, {side}.pstats" if profiles else None for side in ("receiver", "sender")]
    place = receiver.start(jobs.receive, cell.peer, host, cell.load, loop=cell.loop, profile=files[0]).receive()
    sender.start(jobs.send, cell.peer, place, cell.load, loop=cell.loop, profile=files[1]).receive()
    receiver.send("begin")
    sender.send("begin")
    received: jobs.Received = receiver.receive()
    sender.send("stop")
    given, used_s = sender.receive()
    per_s = received.messages / received.passed_s
    return Rate(
        per_s,
        per_s * cell.load.message_bytes / 1e6,
        1e6 * used_s / max(given, 1),
        1e6 * received.used_s / max(received.messages, 1),
    )


def echo_per_s(receiver: Worker, sender: Worker) -> float:
    """Return the bare echo's datagrams per second."""
    place = receiver.start(jobs.echo_datagrams, LOOPBACK).receive()
    best: float = sender.start(jobs.count_echoes, place, SMALL_BYTES, 4, 0.2).receive()
    receiver.send("stop")
    receiver.receive()
    return best


def write_profiles(directory: Path) -> int:
    """Write a profile of each side for each of the cells of the goals."""
    directory.mkdir(parents=True, exist_ok=True)
    near, far = processors()
    with Worker(processor=far) as receiver, Worker(processor=near) as sender:
        for cell in goal_cells():
            per_s = rate(receiver, sender, cell, profiles=directory).messages_per_s
            print(f"{cell.peer.name}: {per_s:,.0f} messages/s while profiled")
    print(f"for a look: python -m pstats '{directory}/{RUDP_SEALED.name}, sender.pstats'")
    return 0


# Round trips ---------------------------------------------------------------------------------------------------------


def round_trips(quick: bool) -> list[Times]:
    """Time round trips on loopback."""
    beat = jobs.Beat(SMALL_BYTES, BEAT_PER_S, 2, 8.0 if quick else 30.0)
    progress(f"round trips, {beat.lasting_s:.0f} s")
    near, far = processors()
    with Worker(processor=far) as echoing, Worker(processor=near) as asking:
        return _times(echoing, asking, [UDP, RUDP_SEALED, RUDP_PLAIN, OWN_TCP, TCP, TLS], LOOPBACK, beat, "loopback")


def lossy_round_trips(quick: bool) -> list[Times]:
    """Time round trips under packet loss; nothing if packet loss cannot be set up."""
    if reason := missing("iptables"):
        progress(f"no figures under loss: {reason}")
        return []
    beat = jobs.Beat(SMALL_BYTES, BEAT_PER_S, 25, 8.0 if quick else 25.0)
    progress(f"round trips while {LOSS:.0%} is lost each way, {beat.lasting_s:.0f} s")
    near, far = processors()
    try:
        with (
            hosts(loss=LOSS) as pair,
            Worker(namespace=pair.far, processor=far) as echoing,
            Worker(namespace=pair.near, processor=near) as asking,
        ):
            return _times(echoing, asking, [RUDP_SEALED, TCP], FAR_ADDRESS, beat, f"{LOSS:.0%} loss each way")
    except CannotRunError as error:
        progress(f"no figures under loss: {error}")
        return []


def far_away(quick: bool) -> tuple[list[Times], dict[str, Rate]]:
    """Measure with hosts that are far from each other: round trips under loss, then rates without."""
    if missing("iptables"):
        return [], {}
    beat = jobs.Beat(SMALL_BYTES, BEAT_PER_S, 15, 6.0 if quick else 20.0)
    under = f"{LOSS:.0%} loss each way, {FAR_RTT_S * 1e3:.0f} ms"
    progress(f"round trips, {under}, {beat.lasting_s:.0f} s")
    try:
        with (
            hosts(delay_s=FAR_RTT_S / 2) as pair,
            Worker(namespace=pair.far) as there,
            Worker(namespace=pair.near) as here,
        ):
            load = jobs.Load(SMALL_BYTES, warm_s=1.0, measured_s=1.0 if quick else 3.0)
            rates = {
                peer.name: rate(there, here, Cell(peer, "uvloop", load), FAR_ADDRESS) for peer in (RUDP_SEALED, TCP)
            }
            pair.lose(LOSS)
            return _times(there, here, [RUDP_SEALED, TCP], FAR_ADDRESS, beat, under), rates
    except CannotRunError as error:
        progress(f"no figures from far away: {error}")
        return [], {}


def _times(
    echoing: Worker, asking: Worker, peers: Sequence[Peer], host: str, beat: jobs.Beat, under: str
) -> list[Times]:
    places = echoing.start(jobs.echo, peers, host).receive()
    taken: list[list[float]] = asking.start(jobs.time_echoes, peers, places, beat).receive()
    echoing.send("stop")
    echoing.receive()
    expected = beat.channels * int(beat.lasting_s * beat.per_s)
    return [
        Times(
            peer.name,
            under,
            len(each),
            expected,
            percentile(each, 0.5) * 1e3,
            percentile(each, 0.99) * 1e3,
            max(each, default=math.nan) * 1e3,
        )
        for peer, each in zip(peers, taken, strict=True)
    ]


# Output --------------------------------------------------------------------------------------------------------------


def _goals(
    echoes: Sequence[float], rates: dict[Cell, list[Rate]], quiet: Sequence[Times], lossy: Sequence[Times]
) -> list[Goal]:
    per_s = {cell.peer: [each.messages_per_s for each in rates[cell]] for cell in goal_cells()}
    unbatched, batched = per_s[RUDP_SEALED_UNBATCHED], per_s[RUDP_SEALED]
    costs = {
        "unbatched": 1 - _ratio(unbatched, per_s[RUDP_PLAIN_UNBATCHED]),
        "batched": 1 - _ratio(batched, per_s[RUDP_PLAIN]),
    }
    p50 = {times.peer: times.p50_ms for times in quiet}
    p99 = {times.peer: times.p99_ms for times in lossy} or {RUDP_SEALED.name: math.nan, TCP.name: math.nan}
    return [
        goal("unbatched_vs_echo", _ratio(unbatched, echoes), "ratio", least=UNBATCHED_VS_ECHO_MIN),
        goal("batched_vs_unbatched", _ratio(batched, unbatched), "ratio", least=BATCHED_VS_UNBATCHED_MIN),
        goal("latency_p50_vs_udp", p50[RUDP_SEALED.name] / p50[UDP.name], "ratio", most=LATENCY_P50_VS_UDP_MAX),
        goal("encryption_cost", max(costs.values()), "share", most=ENCRYPTION_COST_MAX),
        *(goal(f"encryption_cost_{name}", cost, "share") for name, cost in costs.items()),
        goal("loss_p99_vs_tcp", p99[RUDP_SEALED.name] / p99[TCP.name], "ratio", most=LOSS_P99_VS_TCP_MAX),
    ]


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of the ratios of consecutive measurements."""
    return median(one / other for one, other in zip(ours, theirs, strict=True))


def _print_rates(medians: dict[Cell, Rate]) -> None:
    print(f"{'':34}{'loop':9}{'bytes':>9}{'peers':>6}{'messages/s':>12}{'MB/s':>8}{'µs sender':>11}{'receiver':>10}")
    for (peer, loop, load), each in sorted(
        medians.items(), key=lambda item: (item[0].loop, item[0].load, item[0].peer)
    ):
        print(
            f"{peer.name:34}{loop:9}{load.message_bytes:>9,}{load.peers:>6}{each.messages_per_s:>12,.0f}"
            f"{each.mb_per_s:>8.1f}{each.sender_us:>11,.1f}{each.receiver_us:>10,.1f}"
        )


def _print_times(times: Sequence[Times]) -> None:
    for each in times:
        print(
            f"round trip, {each.under}, {each.peer}: p50 {each.p50_ms:.3f} ms, p99 {each.p99_ms:.3f} ms, "
            f"most {each.most_ms:.1f} ms ({each.heard:,} of {each.expected:,})"
        )


def _rate_rows(rates: dict[Cell, list[Rate]]) -> Iterator[dict[str, object]]:
    for (peer, loop, load), runs in rates.items():
        yield {"peer": peer.name, "loop": loop, "load": load._asdict(), "runs": [each._asdict() for each in runs]}


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./do bench channel", description=__doc__)
    parser.add_argument("--runs", type=int, help="number of runs; their median counts (default: 3; 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="a part of the measurements, in 1.5 minutes instead of 13")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file as JSON")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a goal is not met")
    parser.add_argument(
        "--profile", type=Path, metavar="DIRECTORY", help="write profiles to this directory instead of measuring"
    )
    options = parser.parse_args(arguments)
    options.runs = options.runs or (1 if options.quick else 3)
    return options
