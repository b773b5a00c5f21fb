"""Messages between servers of a domain for the published merging workload, and hops of operations (SPEC J-09, R-06).

Eight servers have 200 subscriptions at random; the type of an event is its schema. Each subscription is made, events
are published at random servers, and each subscription is removed. *Flooding* sends every event to every other server
and nothing for subscriptions. Acknowledgements count on both sides: a message for each event and server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from bench.domain_model import ModelDomain, Traffic
from harness.reporting import Goal, goal, progress
from wanderbus import protocol
from wanderbus.channels.interest.interest_set import MODES, InterestMode
from wanderbus.channels.own_channels import Merging
from wanderbus.evaluation.merging.mixes import REFERENCE, Mix
from wanderbus.evaluation.merging.workload import SUBSCRIPTIONS, Trial, Workload, workload
from wanderbus.event import Event
from wanderbus.filters import parse

Row = Mapping[str, Any]

SERVERS: Final = 8
TUPLES: Final = (2, 3, 4)
EVENTS_PER_CHANGE: Final = (1, 10, 100, 1_000)
COMPARED: Final = 10
"""Events for each subscription change in the goal."""

_SELECTIVE: Final = Mix.named("equality-rich")


class Case(NamedTuple):
    """Workload and setting of one run."""

    tuples: int = 3
    mode: InterestMode = "perfect"
    mix: Mix = REFERENCE
    subscriptions: int = SUBSCRIPTIONS
    servers: int = SERVERS
    seed: int = 1


class Phases(NamedTuple):
    """Traffic of one run in its phases, and what it is compared with."""

    case: Case
    subscribing: Traffic
    publishing: Traffic
    unsubscribing: Traffic
    events: int
    needed: int
    """Pairs of an event and another server with a subscription that it matches."""
    remote: int
    """Subscriptions at a server that does not lead their channel."""
    table: int
    """Subscriptions of servers at leaders, when all of their users' are there."""
    hops: dict[str, int]
    """Most messages in sequence, by operation."""


def cases(quick: bool) -> Iterator[Case]:
    """Yield the cases of the tables."""
    for tuples in TUPLES:
        for seed in range(1, 2 if quick else 4):
            yield Case(tuples, seed=seed)
    for mode in MODES:
        if mode != "perfect":
            yield Case(mode=mode)
    for tuples in TUPLES:
        yield Case(tuples, mix=_SELECTIVE)
    if not quick:
        for mode in MODES:
            yield Case(mode=mode, subscriptions=10 * SUBSCRIPTIONS)


def measured(quick: bool) -> list[Row]:
    """Run all cases; return a row for each."""
    rows: list[Row] = []
    for case in cases(quick):
        progress(f"messages: {case.mix.name}, {case.tuples} tuples, {case.mode}, {case.subscriptions} subscriptions")
        rows.append(row_of(run(case, 200 if quick else 1_000)))
    return rows


def run(case: Case, events: int) -> Phases:
    """Run one case."""
    load, draw = workload(case.mix, case.tuples, case.seed, case.subscriptions), Random(case.seed)
    domain = ModelDomain(case.servers, Merging(case.mode))
    servers = list(domain.servers)
    per_agent = 500
    agents = [
        [domain.agent(name, f"{name}-{number}") for number in range(1 + case.subscriptions // per_agent)]
        for name in servers
    ]
    at = [draw.randrange(case.servers) for _ in load.subscriptions]
    links = [agents[place][number // per_agent] for number, place in enumerate(at)]
    remote = sum(
        domain.leader(_subject(each.schema)) != servers[place]
        for each, place in zip(load.subscriptions, at, strict=True)
    )
    hops = dict.fromkeys(("subscribe", "unsubscribe", "publish", "deliver"), 0)
    made: list[tuple[int, str]] = []
    for each, link in zip(load.subscriptions, links, strict=True):
        request = domain.subscribe(link, _subject(each.schema), each.text)
        domain.run()
        identity, answered = domain.answered(link, request)
        made.append((link, identity))
        hops["subscribe"] = max(hops["subscribe"], answered)
    subscribing, domain.traffic = domain.traffic, Traffic()
    table = sum(status.subscriptions for server in domain.servers.values() for status in server.leaders.statuses())
    needed = 0
    wanted = _wanted_at(load, at)
    for trial in load.trials(events, draw):
        place = draw.randrange(case.servers)
        needed += sum(other != place for other in wanted(trial))
        _publish(domain, agents, place, trial, hops)
    publishing, domain.traffic = domain.traffic, Traffic()
    for link, identity in made:
        hops["unsubscribe"] = max(hops["unsubscribe"], domain.unsubscribe(link, identity))
    return Phases(case, subscribing, publishing, domain.traffic, events, needed, remote, table, hops)


def _publish(domain: ModelDomain, agents: list[list[int]], place: int, trial: Trial, hops: dict[str, int]) -> None:
    for answers in domain.answers.values():
        answers.clear()
    domain.publish(agents[place][0], msgspec.structs.replace(trial.event, subject=_subject(trial.schema)))
    domain.run()
    for answers in domain.answers.values():
        for message, sequence in answers:
            name = "publish" if isinstance(message, protocol.PublishAccepted) else "deliver"
            hops[name] = max(hops[name], sequence)


def _wanted_at(load: Workload, at: Sequence[int]) -> Callable[[Trial], set[int]]:
    """Return the function that returns the servers with a subscription that an event matches."""
    filters = [(each.schema, place, parse(each.text)) for each, place in zip(load.subscriptions, at, strict=True)]

    def wanted(trial: Trial) -> set[int]:
        own = (each for each in filters if each[0] == trial.schema)
        return {place for _, place, interest in own if interest.matches(trial.event)}

    return wanted


def row_of(phases: Phases) -> Row:
    """Return the figures of a run: messages and bytes of each operation, and the ratio to flooding."""
    case, others = phases.case, phases.case.servers - 1
    changes = 2 * case.subscriptions
    signalling = (phases.subscribing.total() + phases.unsubscribing.total()) / changes
    event = phases.publishing.total() / phases.events
    flooded = 2.0 * others
    return {
        "mix": case.mix.name,
        "tuples": case.tuples,
        "mode": case.mode,
        "subscriptions": case.subscriptions,
        "servers": case.servers,
        "seed": case.seed,
        "subscribe_messages": phases.subscribing.total() / case.subscriptions,
        "subscribe_bytes": phases.subscribing.total_bytes() / case.subscriptions,
        "unsubscribe_messages": phases.unsubscribing.total() / case.subscriptions,
        "unsubscribe_bytes": phases.unsubscribing.total_bytes() / case.subscriptions,
        "uncovered_messages": 2.0 * phases.remote / case.subscriptions,
        "event_messages": event,
        "event_bytes": phases.publishing.total_bytes() / phases.events,
        "needed_vs_flooding": phases.needed / phases.events / others,
        "table": phases.table,
        "remote": phases.remote,
        "vs_flooding": {str(each): (signalling + each * event) / (each * flooded) for each in EVENTS_PER_CHANGE},
        "hops": phases.hops,
    }


def covered_messages() -> int:
    """Return the messages for subscriptions that an earlier one of the same server covers, in all modes together."""
    messages = 0
    for mode in MODES:
        domain = ModelDomain(3, Merging(mode))
        first, second = domain.agent("s1", "first"), domain.agent("s1", "second")
        subjects = [f"Type.{number}" for number in range(6)]
        for subject in subjects:
            for expression in ("Price < 25", "Stock == PETR4"):
                domain.subscribe(first, subject, expression)
        domain.run()
        domain.traffic = Traffic()
        covered = ("Price < 25", "Price < 7", "Price < 20 and Volume > 3", "Stock == PETR4 and Price > 90")
        requests = [domain.subscribe(second, subject, each) for subject in subjects for each in covered]
        domain.run()
        for request in requests:
            domain.unsubscribe(second, domain.answered(second, request)[0])
        messages += domain.traffic.total()
    return messages


def hops_of(sizes: Sequence[int] = (2, 8, 32)) -> list[Row]:
    """Return the hops of operations on one subject and on every subject, for each number of servers."""
    rows: list[Row] = []
    for size in sizes:
        progress(f"hops: {size} servers")
        domain = ModelDomain(size)
        servers = list(domain.servers)
        here = domain.agent(servers[0], "here")
        led_elsewhere = next(each for each in map(_subject, range(1_000)) if domain.leader(each) == servers[-1])
        for subject in (led_elsewhere, "*"):
            for concurrent in (1, 20):
                requests = [domain.subscribe(here, subject, f"N < {number}") for number in range(concurrent)]
                domain.run()
                found = [domain.answered(here, request) for request in requests]
                domain.publish(here, Event(led_elsewhere, {"N": -1}))
                domain.run()
                removed = [domain.unsubscribe(here, identity) for identity, _ in found]
                publish, deliver = (_last_hops(domain, here, each) for each in _KINDS)
                rows.append(
                    {
                        "servers": size,
                        "subject": "one" if subject != "*" else subject,
                        "at_once": concurrent,
                        "subscribe": max(hops for _, hops in found),
                        "unsubscribe": max(removed),
                        "publish": publish,
                        "deliver": deliver,
                    }
                )
    return rows


_KINDS: Final = (protocol.PublishAccepted, protocol.Notify)


def _last_hops(domain: ModelDomain, link: int, kind: type[protocol.BrokerMessage]) -> int:
    return next(hops for message, hops in reversed(domain.answers[link]) if isinstance(message, kind))


def goals_of(rows: Sequence[Row], hops: Sequence[Row], covered: int) -> list[Goal]:
    """Return the goals; the ratio is that of the most likely reading, mean of all tuples and seeds."""
    usual = [
        each
        for each in rows
        if each["mix"] == REFERENCE.name and each["mode"] == "perfect" and each["subscriptions"] == SUBSCRIPTIONS
    ]
    selective = [each for each in rows if each["mix"] == _SELECTIVE.name]
    most = {name: max(each[name] for each in hops) for name in ("subscribe", "unsubscribe", "publish", "deliver")}
    most["subscribe"] = max(most["subscribe"], *(each["hops"]["subscribe"] for each in rows))
    return [
        goal("covered_subscribe_messages", covered, "messages", most=0),
        goal("messages_vs_flooding", _mean(_compared(each) for each in usual), "ratio", most=0.2),
        goal("messages_vs_flooding_selective", _mean(_compared(each) for each in selective), "ratio"),
        goal("needed_vs_flooding", _mean(each["needed_vs_flooding"] for each in usual), "ratio"),
        goal("subscribe_hops_max", most["subscribe"], "messages", most=4),
        goal("unsubscribe_hops_max", most["unsubscribe"], "messages"),
        goal("publish_hops_max", most["publish"], "messages"),
        goal("deliver_hops_max", most["deliver"], "messages"),
    ]


def _compared(row: Row) -> float:
    found: float = row["vs_flooding"][str(COMPARED)]
    return found


def _mean(values: Iterator[float]) -> float:
    gathered = list(values)
    return sum(gathered) / len(gathered)


def _subject(schema: int) -> str:
    return f"Type.{schema}"
