"""Counts of domains that share events: messages, filters in tables, and calls of functions for an event."""

from __future__ import annotations

import cProfile
import pstats
import statistics
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import wanderbus
from bench.domain_servers import filling
from bench.federation_model import TYPE, ModelFederation
from harness.reporting import Goal, goal
from wanderbus.channels.interest.interest_set import Wanted
from wanderbus.evaluation.federation.experiment import TYPES, FederationJob, Topology, Way, delay_of
from wanderbus.evaluation.federation.network import FederatedDomains, name_of, number_of, senders_of
from wanderbus.evaluation.federation.running import SETTLED_S
from wanderbus.evaluation.handover.fabric import Fabric
from wanderbus.federation.methods.rendezvous_choice import RendezvousChoice
from wanderbus.federation.routing_messages import Method
from wanderbus.filters import parse
from wanderbus.simulation.world import World

Row = Mapping[str, Any]

METHODS: Final[tuple[Method, ...]] = ("multicast", "rendezvous")
"""Methods that servers have."""

SIZES: Final = (2, 3, 4)
CHANGES: Final = 12
EVENTS: Final = 60
BURST: Final = 20
"""Events that are published at once."""

GROWTH_SIZES: Final = (12, 36)
"""Numbers of domains between which tables are compared; in both, some neither send a type nor are its rendezvous."""

FILTERS: Final = 12
"""Filters of each domain in that comparison, none of which covers another one."""


# Messages ------------------------------------------------------------------------------------------------------------


def messages() -> list[Row]:
    """Return messages and bytes between domains of a change of a subscription and of an event, for each method."""
    return [_messages(method, size) for method in METHODS for size in SIZES]


def _messages(method: Method, size: int) -> Row:
    """Count in a federation whose last domain subscribes, while the first one publishes."""
    federation = ModelFederation(size, method)
    reader = federation.device(size - 1, "reader")
    publisher = federation.device(0, "publisher")
    federation.forget_counts()
    for number in range(CHANGES):
        reader.subscribe(TYPE, f"n == {number}")
        federation.wait()
    subscribed = _per(federation, CHANGES)
    reader.subscribe(TYPE, "n == 1 and Filling == 'x'")
    federation.wait()
    reader.unsubscribe(list(reader.asked)[-1])
    federation.wait()
    covered = federation.messages.total()
    federation.forget_counts()
    alone = _published(federation, publisher, 1)
    together = _published(federation, publisher, BURST)
    for identity in list(reader.asked)[:CHANGES]:
        reader.unsubscribe(identity)
        federation.wait()
    return {
        "method": method,
        "domains": size,
        "subscribe": subscribed,
        "covered_subscribe": covered,
        "unsubscribe": _per(federation, CHANGES),
        "event": alone,
        "event_of_burst": together,
    }


def _published(federation: ModelFederation, publisher: Any, burst: int) -> Row:
    federation.publish(publisher, EVENTS, burst=burst, values=CHANGES, filling=filling())
    return _per(federation, EVENTS)


def _per(federation: ModelFederation, times: int) -> Row:
    """Return messages and bytes of each of so many operations, and begin to count again."""
    found = {
        "messages": federation.messages.total() / times,
        "bytes": federation.bytes.total() / times,
        "kinds": dict(federation.messages),
    }
    federation.forget_counts()
    return found


# Tables --------------------------------------------------------------------------------------------------------------


def tables() -> list[Row]:
    """Return the filters at a domain, with its own, for two numbers of domains and each method.

    *Ordinary* domains receive all types; they send none, and are the rendezvous of none.
    """
    return [table_row(way, size) for way in (Way.RENDEZVOUS, Way.MULTICAST) for size in GROWTH_SIZES]


def table_row(way: Way, size: int) -> Row:
    """Return the filters at a domain among so many."""
    world, job = World(1), FederationJob(way, Topology.RANDOM, size, seed=1)
    domains = FederatedDomains(job, Fabric(world, delay_of(job, world.random)))
    for domain in range(size):
        added: dict[Hashable, Wanted] = {
            number: (TYPES[number % len(TYPES)], parse(f"user == {domain} and value == {number}"))
            for number in range(FILTERS)
        }
        domains.change(domain, added, ())
    world.run(world.now + SETTLED_S)
    held = [FILTERS + each for each in domains.table_sizes()]
    busy = {each for one in TYPES for each in senders_of(one, size)}
    choice = RendezvousChoice(map(name_of, range(size)))
    busy |= {number_of(name) for one in TYPES if (name := choice.of(one)) is not None}
    ordinary = [filters for domain, filters in enumerate(held) if domain not in busy]
    return {
        "way": str(way),
        "domains": size,
        "ordinary_domains": len(ordinary),
        "filters_at_ordinary": statistics.mean(ordinary),
        "filters_at_all": statistics.mean(held),
    }


# Calls ---------------------------------------------------------------------------------------------------------------


def calls() -> list[Row]:
    """Return the calls of functions for an event that a user of its domain gets, in a domain alone and in others."""
    cases: Mapping[str, tuple[int, str | None]] = {
        "no federation": (1, None),
        "a foreign domain that wants nothing": (2, None),
        "a foreign domain that wants other events": (2, "n < 0"),
        "a foreign domain that wants it": (2, ""),
    }
    return [{"case": case, "calls_per_event": _calls(domains, wanted)} for case, (domains, wanted) in cases.items()]


def _calls(domains: int, wanted: str | None) -> float:
    """Return the calls at the server of the publisher; ``wanted`` is what a user of the other domain wants."""
    federation = ModelFederation(domains)
    if wanted is not None:
        federation.device(1, "reader").subscribe(TYPE, wanted)
    federation.device(0, "local").subscribe(TYPE, "")
    publisher = federation.device(0, "publisher")
    federation.publish(publisher, BURST, burst=BURST)
    profile = cProfile.Profile()
    with profile:
        federation.publish(publisher, EVENTS, burst=BURST)
    return calls_of(profile) / EVENTS


def calls_of(profile: cProfile.Profile) -> int:
    """Return the calls that functions of the package have made in a profile, without those of the simulation."""
    package = Path(wanderbus.__file__).parent
    own = {str(each) for each in package.rglob("*.py") if "simulation" not in each.relative_to(package).parts}
    stats: Mapping[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    return sum(made[1] for *_, callers in stats.values() for (file, *_), made in callers.items() if file in own)


# Goals ---------------------------------------------------------------------------------------------------------------


def messages_goals(rows: Sequence[Row]) -> list[Goal]:
    """Return messages and bytes of each operation as figures, and that a covered subscription costs none."""
    goals = [
        goal("federated_covered_subscribe_messages", sum(r["covered_subscribe"] for r in rows), "messages", most=0)
    ]
    for row in rows:
        for operation in ("subscribe", "unsubscribe", "event", "event_of_burst"):
            for unit in ("messages", "bytes"):
                name = f"{operation}_{unit}_{row['method']}_{row['domains']}"
                goals.append(goal(name, row[operation][unit], unit))
    return goals


def tables_goals(rows: Sequence[Row]) -> list[Goal]:
    """Return how much the table of an ordinary domain grows with three times as many domains."""
    ways = dict.fromkeys(row["way"] for row in rows)
    found = {way: [row["filters_at_ordinary"] for row in rows if row["way"] == way] for way in ways}
    growth = {way: last / first for way, (first, last) in found.items()}
    return [
        goal("table_growth_per_domain", growth[str(Way.RENDEZVOUS)], "ratio", most=1.1),
        goal("table_growth_per_domain_multicast", growth[str(Way.MULTICAST)], "ratio"),
    ]


def calls_goals(rows: Sequence[Row]) -> list[Goal]:
    """Return how many calls an event costs more because there is a foreign domain."""
    none, nothing, other, wanted = (row["calls_per_event"] for row in rows)
    return [
        goal("federation_idle_calls_vs_none", nothing / none, "ratio", most=1.02),
        goal("federation_unmatched_calls_vs_none", other / none, "ratio"),
        goal("federation_both_domains_calls_vs_none", wanted / none, "ratio"),
    ]
