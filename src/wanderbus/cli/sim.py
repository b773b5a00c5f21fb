"""``wanderbus sim``: seeded simulations of the production state machines, with checks (DESIGN rule 3)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.progress import track

from wanderbus.cli.output import check_writable, machine, print_error, print_line, write_json
from wanderbus.errors import ConfigurationError
from wanderbus.simulation.domains.causal_scenario import CausalResult, CausalScenario, run_causal_seed
from wanderbus.simulation.domains.direct_scenario import DirectResult, DirectScenario, run_direct_seed
from wanderbus.simulation.domains.interest_scenario import InterestResult, InterestScenario, run_interest_seed
from wanderbus.simulation.domains.links_scenario import LinksResult, LinksScenario, run_links_seed
from wanderbus.simulation.domains.ordered_scenario import OrderedResult, OrderedScenario, run_ordered_seed
from wanderbus.simulation.moved_channels import MovedResult, MovedScenario, run_moved_seed
from wanderbus.simulation.nat.scenario import NATScenario, run_nat_seed
from wanderbus.simulation.relay.hostile_scenario import HostileRelayResult, HostileRelayScenario, run_hostile_relay_seed
from wanderbus.simulation.relay.scenario import RelayResult, RelayScenario, run_relay_seed
from wanderbus.simulation.restored.scenario import RestoreResult, RestoreScenario, run_restore_seed
from wanderbus.simulation.rudp.scenario import RudpResult, RudpScenario, run_rudp_seed
from wanderbus.simulation.sip.domains_scenario import DomainsScenario, run_domains_seed
from wanderbus.simulation.sip.scenario import HEAL_RTT_GOAL, SIPResult, SIPScenario, run_sip_seed
from wanderbus.simulation.system.history_scenario import HistoryScenario, run_history_seed
from wanderbus.simulation.system.scenario import Result, Scenario, run_seed
from wanderbus.simulation.weeks.scenario import WeeksResult, WeeksScenario, run_weeks_seed

AnyScenario = (
    type[Scenario]
    | type[SIPScenario]
    | type[RudpScenario]
    | type[RelayScenario]
    | type[HostileRelayScenario]
    | type[WeeksScenario]
    | type[CausalScenario]
    | type[InterestScenario]
    | type[LinksScenario]
    | type[OrderedScenario]
    | type[DirectScenario]
    | type[RestoreScenario]
    | type[MovedScenario]
)
AnyResult = (
    Result
    | SIPResult
    | RudpResult
    | RelayResult
    | HostileRelayResult
    | WeeksResult
    | CausalResult
    | InterestResult
    | LinksResult
    | OrderedResult
    | DirectResult
    | RestoreResult
    | MovedResult
)


class Layer(StrEnum):
    """Part of the system that is simulated."""

    BROKER = "broker"
    HISTORY = "history"
    SIP = "sip"
    DOMAINS = "domains"
    RUDP = "rudp"
    RELAY = "relay"
    HOSTILE_RELAY = "hostile-relay"
    NAT = "nat"
    WEEKS = "weeks"
    CAUSAL = "causal"
    INTEREST = "interest"
    LINKS = "links"
    ORDERED = "ordered"
    DIRECT = "direct"
    RESTORE = "restore"
    MOVED = "moved"


class _Kind(msgspec.Struct, frozen=True):
    """Scenario of one layer, its function for one seed, and its counters: field of the result to printed name."""

    scenario: AnyScenario
    run_seed: Callable[[int], AnyResult]
    counted: Mapping[str, str]


_KINDS: Final = {
    Layer.BROKER: _Kind(
        Scenario,
        run_seed,
        {
            "events": "events",
            "notifications": "notifications",
            "address_changes": "address changes",
            "agent_kills": "agents killed",
            "server_crashes": "server crashes",
            "datagrams": "datagrams",
        },
    ),
    Layer.HISTORY: _Kind(
        HistoryScenario,
        run_history_seed,
        {
            "events": "events",
            "notifications": "notifications",
            "address_changes": "address changes",
            "agent_kills": "agents killed",
            "server_crashes": "server crashes",
        },
    ),
    Layer.SIP: _Kind(
        SIPScenario,
        run_sip_seed,
        {
            "parties": "parties",
            "calls": "calls",
            "address_changes": "address changes",
            "kills": "parties killed",
            "server_restarts": "server restarts",
            "heals": "undisturbed moves measured",
            "datagrams": "datagrams",
        },
    ),
    Layer.DOMAINS: _Kind(
        DomainsScenario,
        run_domains_seed,
        {
            "parties": "parties",
            "calls": "calls",
            "address_changes": "address changes",
            "kills": "parties killed",
            "server_restarts": "server restarts",
            "datagrams": "datagrams",
        },
    ),
    Layer.RUDP: _Kind(
        RudpScenario,
        run_rudp_seed,
        {
            "connections": "connections",
            "messages": "messages",
            "moves": "announced moves",
            "rebindings": "others",
            "learnt": "of them challenged",
            "failures": "failures",
            "resets": "resets",
            "injected": "injected datagrams",
            "datagrams": "datagrams",
        },
    ),
    Layer.RELAY: _Kind(
        RelayScenario,
        run_relay_seed,
        {
            "messages": "messages",
            "moves": "announced moves",
            "rebindings": "others",
            "restarts": "relays killed",
            "learnt": "parties found elsewhere",
            "injected": "datagrams of strangers",
            "refused": "refused",
            "datagrams": "datagrams",
        },
    ),
    Layer.HOSTILE_RELAY: _Kind(
        HostileRelayScenario,
        run_hostile_relay_seed,
        {
            "messages": "messages",
            "failures": "failures",
            "harmed": "datagrams harmed",
            "flooded": "made up",
            "forged": "not opened",
            "learnt": "parties led elsewhere",
            "to_bystanders": "bytes to bystanders",
            "datagrams": "datagrams",
        },
    ),
    Layer.NAT: _Kind(
        NATScenario,
        run_nat_seed,
        {
            "events": "events",
            "notifications": "notifications",
            "address_changes": "address changes",
            "moves_into_nat": "of them into NATs",
            "moves_out_of_nat": "out of them",
            "moves_behind_firewall": "of them behind firewalls",
            "nat_restarts": "NATs restarted",
            "relay_restarts": "relays killed",
            "server_crashes": "server crashes",
            "relayed": "datagrams relayed",
            "filtered": "kept out by NATs",
            "dropped": "dropped by firewalls",
        },
    ),
    Layer.WEEKS: _Kind(
        WeeksScenario,
        run_weeks_seed,
        {
            "days": "days",
            "devices": "devices",
            "events": "events",
            "matches": "matches",
            "restricted": "restricted",
            "dropped": "dropped",
            "subscriptions": "subscriptions",
            "links": "links",
            "server_crashes": "server crashes",
            "clock_jumps": "clocks set",
            "engine_events": "matched by an engine",
            "detections": "compound events",
        },
    ),
    Layer.CAUSAL: _Kind(
        CausalScenario,
        run_causal_seed,
        {
            "events": "events",
            "deliveries": "deliveries",
            "replies": "replies",
            "crashes": "server crashes",
            "wipes": "of them with the disk",
            "partitions": "partitions",
            "joins": "servers joined",
            "leaves": "left",
            "moves": "sessions moved",
            "gaps": "gaps",
            "causal_violations": "causal violations",
        },
    ),
    Layer.INTEREST: _Kind(
        InterestScenario,
        run_interest_seed,
        {
            "servers": "access servers",
            "changes": "changes of filters",
            "covered": "covered subscriptions",
            "messages": "messages",
            "checks": "checks of a table",
            "kills": "servers killed",
            "cuts": "servers cut off",
        },
    ),
    Layer.LINKS: _Kind(
        LinksScenario,
        run_links_seed,
        {
            "openings": "links opened",
            "closings": "links closed",
            "messages": "messages",
            "crashes": "servers killed",
            "partitions": "partitions",
            "injected": "injected datagrams",
            "datagrams": "datagrams",
        },
    ),
    Layer.ORDERED: _Kind(
        OrderedScenario,
        run_ordered_seed,
        {
            "servers": "servers",
            "events": "events",
            "arrivals": "arrivals at other servers",
            "deliveries": "notifications",
            "subscriptions": "subscriptions",
            "crashes": "server crashes",
            "device_crashes": "devices killed",
            "breaks": "broken links",
            "partitions": "partitions",
            "full_disks": "full disks",
            "gaps": "gaps",
            "held_back": "events held back by publishers",
            "held_back_apart": "of channels led elsewhere",
            "pasts": "subscriptions that began in the past",
            "pasts_elsewhere": "of them at another server than the leader",
        },
    ),
    Layer.DIRECT: _Kind(
        DirectScenario,
        run_direct_seed,
        {
            "servers": "servers",
            "events": "events",
            "replies": "replies",
            "notifications": "notifications",
            "subscriptions": "subscriptions",
            "refused": "refused publishes",
            "advertisements": "advertisements",
            "not_advertised": "publishes without one",
            "crashes": "server crashes",
            "partitions": "partitions",
            "held_back": "events held back by publishers",
            "multicast": "changes of interest by multicast",
            "repaired": "of them repaired by links",
        },
    ),
    Layer.RESTORE: _Kind(
        RestoreScenario,
        run_restore_seed,
        {
            "servers": "servers",
            "events": "acknowledged events",
            "due": "due to subscriptions",
            "in_gaps": "of them in gaps",
            "restores": "servers restored from a copy",
            "noticed": "times noticed",
        },
    ),
    Layer.MOVED: _Kind(
        MovedScenario,
        run_moved_seed,
        {
            "servers": "servers",
            "changes": "changes of the file",
            "mistakes": "starts with a former file",
            "events": "events",
            "notifications": "notifications",
            "subscriptions": "subscriptions",
            "refused": "refused publishes",
            "crashes": "stops and crashes of servers",
        },
    ),
}

PROGRESS_EACH_S: Final = 5.0


def sim(
    layer: Annotated[
        Layer,
        typer.Option(
            help="broker: the whole system. history: the same, with subscriptions that begin in the past."
            " sip, domains: registration, calls and moves, in one domain or several."
            " rudp: reliable UDP. relay, hostile-relay: reliable UDP through a media relay, honest or malicious. nat:"
            " the whole system behind NATs, with a relay. weeks: the broker over weeks. causal: servers that"
            " send events to each other directly."
            " interest: filters between the servers of a domain. links: links between these."
            " ordered, direct: servers that share the channels of a domain, in either model."
            " moved: the same while the models and leaders of channels change."
        ),
    ] = Layer.BROKER,
    seeds: Annotated[int, typer.Option(min=1, help="Number of simulations.")] = 200,
    first_seed: Annotated[int, typer.Option(min=0, help="Seed of the first.")] = 1,
    seed: Annotated[int | None, typer.Option(min=0, help="Replay only this seed.", show_default=False)] = None,
    trace: Annotated[Path | None, typer.Option(help="With --seed: write a full trace to this file.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write results to this file.")] = None,
) -> None:
    """Simulate users who move, crash and lose the network, and check the guarantees of the system.

    The broker loses, repeats and reorders nothing. With SIP, in the end every user is registered at the current
    address, every session is CONNECTED on both sides, and no other state remains. Reliable UDP delivers every message
    once and in order, retransmits on schedule, and accepts nothing forged. The relay does the same through NATs and
    sends nothing to strangers; reliable UDP survives a malicious relay too. Behind NATs, the guarantees of the broker
    hold, and data take the relay only where there is no direct path. Over weeks, lifetimes, restrictions and queue
    bounds hold while users come and go, clocks are set and the broker crashes. Between servers, no event is delivered
    before its cause, no table lacks interest that counts, and links deliver in order and to servers only. An ordered
    domain delivers each event once, in the order of its channel, to all who subscribed before. Exit status 1 if a
    guarantee was broken; each failure prints the command that replays it.

    Example: wanderbus sim --seeds 50 --first-seed 1000
    """
    if trace is not None and seed is None:
        raise ConfigurationError("--trace needs --seed")
    for path in (trace, json):
        if path is not None:
            check_writable(path)
    started = time.monotonic()
    kind = _KINDS[layer]
    if seed is not None:
        results = [_replay(kind, seed, trace)]
    else:
        wanted = range(first_seed, first_seed + seeds)
        results = list(_with_progress(_in_parallel(kind, wanted), seeds))
    failed = [result for result in results if result.problems]
    _print_failures(failed, "" if layer is Layer.BROKER else f" --layer {layer}")
    summary = _summary(kind, results, time.monotonic() - started)
    counts = ", ".join(f"{summary[name]} {words}" for name, words in kind.counted.items())
    print_line(f"{summary['seeds']} seeds, {len(failed)} failed; {counts}, {summary['wall_s']} s")
    if json is not None:
        goals = _goals(results, len(failed))
        report = {"command": "sim", "layer": layer, "machine": machine(), "summary": summary}
        write_json(json, {**report, "results": results, "goals": goals})
    if failed:
        raise typer.Exit(1)


def _print_failures(failed: Sequence[AnyResult], option: str) -> None:
    for result in failed:
        for problem in result.problems:
            print_error(f"seed {result.seed}: {problem}")
        print_error(f"replay with: wanderbus sim{option} --seed {result.seed} --trace FILE")


def _replay(kind: _Kind, seed: int, trace: Path | None) -> AnyResult:
    scenario = kind.scenario(seed, keep_trace=trace is not None)
    result = scenario.run()
    if trace is not None:
        try:
            trace.write_text("".join(f"{line}\n" for line in scenario.world.trace or ()), encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{trace} cannot be written: {error.strerror}") from None
    return result


def _in_parallel(kind: _Kind, seeds: Iterable[int]) -> Iterator[AnyResult]:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(kind.run_seed, seeds, chunksize=4)


def _with_progress(results: Iterable[AnyResult], seeds: int) -> Iterator[AnyResult]:
    """Show progress: a bar on a terminal, elsewhere a line every :data:`PROGRESS_EACH_S` seconds."""
    if sys.stderr.isatty():
        yield from track(results, "simulating", seeds, console=Console(stderr=True), transient=True)
        return
    shown_at, failed = time.monotonic(), 0
    for number, result in enumerate(results, 1):
        if result.problems:
            failed += 1
            print(f"seed {result.seed}: {result.problems[0]}", file=sys.stderr, flush=True)
        if time.monotonic() - shown_at >= PROGRESS_EACH_S:
            shown_at = time.monotonic()
            print(f"{number} of {seeds} seeds, {failed} failed", file=sys.stderr, flush=True)
        yield result


def _summary(kind: _Kind, results: Sequence[AnyResult], wall_s: float) -> dict[str, float]:
    totals: dict[str, float] = {name: sum(getattr(result, name) for result in results) for name in kind.counted}
    return {"seeds": len(results), **totals, "wall_s": round(wall_s, 1)}


def _goals(results: Sequence[AnyResult], failed: int) -> list[dict[str, object]]:
    """Return the goals of the run, with the values that it reached."""
    if any(isinstance(result, Result) for result in results):
        return [{"name": "failed", "value": failed, "unit": "seeds", "goal": 0, "met": not failed}]
    goals: list[dict[str, object]] = [
        {"name": "worlds_failed", "value": failed, "unit": "seeds", "goal": 0, "met": not failed}
    ]
    if any(isinstance(result, SIPResult) for result in results):
        heals = [result.heal_rtt for result in results if isinstance(result, SIPResult) and result.heals]
        longest = max(heals, default=None)
        met = longest is not None and longest <= HEAL_RTT_GOAL
        goals.append({"name": "heal_rtt", "value": longest, "unit": "round trips", "goal": HEAL_RTT_GOAL, "met": met})
    return goals
