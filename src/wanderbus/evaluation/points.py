"""Points of grids: one replication as text, with parameters and seed, so that any worker can run it (SPEC T-09).

A kind of point calls the function that runs one replication here too, so that a point anywhere equals a direct run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final, NamedTuple

import msgspec

from wanderbus.evaluation import simulated
from wanderbus.evaluation.federation import running as federating
from wanderbus.evaluation.federation.experiment import FederationJob
from wanderbus.evaluation.handover import running
from wanderbus.evaluation.handover.experiment import HandoverJob
from wanderbus.evaluation.merging import measuring
from wanderbus.evaluation.outcome import Outcome

Scalar = str | int | float | bool
Columns = dict[str, Scalar]


class PointKind(NamedTuple):
    """A kind of point: its function, and the columns that a table of its results has."""

    name: str
    run: Callable[[Any], Sequence[Any]]
    """Function from a job to the parts of its outcome."""
    job: Any
    part: Any
    """Types of a job and of a part."""
    parameters: Callable[[Any], Columns]
    seed: Callable[[Any], int]
    figures: Callable[[Any], Columns]
    timed: Callable[[Any], Any] = lambda part: part
    """Function that sets the measured times of a part, which differ between equal runs, to 0."""

    def encode(self, job: Any) -> str:
        """Return a job as text: the same text for the same parameters and seed."""
        return msgspec.json.encode(job).decode()

    def decode(self, point: str) -> Any:
        """Return the job of a text."""
        return msgspec.json.decode(point, type=self.job)

    def parts_of(self, texts: Sequence[str]) -> list[Any]:
        """Return the parts of an outcome from their texts."""
        return [msgspec.json.decode(each, type=self.part) for each in texts]

    def rows(self, point: str, texts: Sequence[str]) -> Iterator[Columns]:
        """Yield the rows of a point for a table of results: its parameters, its seed, and the figures of each part."""
        job = self.decode(point)
        for part in self.parts_of(texts):
            yield {**self.parameters(job), "seed": self.seed(job), **self.figures(part)}

    def shown(self, point: str) -> str:
        """Return the parameters and the seed of a point for people."""
        job = self.decode(point)
        return " ".join(f"{name}={value}" for name, value in {**self.parameters(job), "seed": self.seed(job)}.items())


def run_point(kind: str, point: str) -> list[str]:
    """Run a point of the kind with this name; return the parts of its outcome as texts."""
    found = KINDS[kind]
    return [msgspec.json.encode(part).decode() for part in found.run(found.decode(point))]


def run_all(kind: PointKind, jobs: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield the parts of the outcome of each job in their order, using every processor of this machine."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(kind.run, jobs)


def differing_figures(kind: PointKind, one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of figures in which two outcomes differ, measured times aside."""
    left, right = ([_flat(kind.timed(part)) for part in kind.parts_of(texts)] for texts in (one, other))
    shared = sum(
        bool(mine.get(name) != its.get(name))
        for mine, its in zip(left, right, strict=False)
        for name in mine.keys() | its.keys()
    )
    longer = max(left, right, key=len)
    alone: list[dict[str, Any]] = longer[min(len(left), len(right)) :]
    return shared + sum(map(len, alone))


def _flat(value: Any) -> dict[str, Any]:
    """Return all figures in nested results, each with its path."""
    found: dict[str, Any] = {}
    waiting: list[tuple[str, Any]] = [("", msgspec.to_builtins(value))]
    while waiting:
        path, each = waiting.pop()
        if isinstance(each, dict):
            waiting += [(f"{path}.{name}", inner) for name, inner in each.items()]
        elif isinstance(each, list | tuple):
            waiting += [(f"{path}.{place}", inner) for place, inner in enumerate(each)]
            found[f"{path}.length"] = len(each)
        else:
            found[path] = each
    return found


# Kinds ---------------------------------------------------------------------------------------------------------------


def _mobility_parameters(job: simulated.Job) -> Columns:
    cell, experiment, _ = job
    return {
        "buffer": cell.buffer,
        "period_s": cell.period_s,
        "outage": experiment.outage.value,
        "outage_s": experiment.outage_s,
        "rate_per_s": experiment.rate_per_s,
        "events": experiment.events,
    }


def _mobility_figures(outcome: Outcome) -> Columns:
    return {
        "published": outcome.published,
        "received": outcome.received,
        "dropped": outcome.dropped,
        "repeated": outcome.repeated,
        "unaccounted": outcome.unaccounted,
        "sample_lost": outcome.sample_lost,
        "loss_percent": outcome.loss_percent,
        "changes": outcome.changes,
        "outage_s_max": max((each.outage_s for each in outcome.measured), default=0.0),
        "healing_s_max": max((each.healing_s for each in outcome.measured), default=0.0),
    }


def _merging_parameters(job: measuring.Job) -> Columns:
    return {"mix": job.mix.name, "tuples": job.tuples, "precision_min": job.precision_min, "events": job.events}


def _merging_figures(part: measuring.MergedOutcome) -> Columns:
    counted = part.counted
    return {
        "subscriptions": part.subscriptions,
        "method": part.method.value,
        "filters": part.filters,
        "predicates": part.predicates,
        "wanted": counted.wanted,
        "unwanted": counted.unwanted,
        "missed": counted.missed,
        "updates": part.propagated.updates,
        "propagated": part.propagated.filters,
        "xml_each_gzip_bytes": part.xml_each.gzip_bytes,
        "xml_stream_gzip_bytes": part.xml_stream.gzip_bytes,
        "merge_ms": part.merge_ms,
        "match_us": part.match_us,
    }


def _handover_parameters(job: HandoverJob) -> Columns:
    return {
        "routing": job.routing.value,
        "movement": job.movement.value,
        "servers": job.servers,
        "source_percent": job.source_percent,
        "target_percent": job.target_percent,
        "users": job.users,
    }


def _handover_figures(outcome: running.HandoverOutcome) -> Columns:
    return {
        "walks": outcome.walks,
        "moves": outcome.moves,
        "events": outcome.events,
        "deliveries": outcome.deliveries,
        "lost": outcome.lost,
        "repeated": outcome.repeated,
        "out_of_order": outcome.out_of_order,
        "updates": outcome.updates,
        "answers": outcome.answers,
        "control": outcome.control,
        "control_bytes": outcome.control_bytes,
        "event_messages": outcome.event_messages,
        "pause_s_max": max((each.pause_s for each in outcome.handovers), default=0.0),
        "whole_s_max": max((each.whole_s for each in outcome.handovers), default=0.0),
        "group_moves": len(outcome.group_moves),
        "group_messages": outcome.group_messages,
    }


def _federation_parameters(job: FederationJob) -> Columns:
    return {"way": job.way.value, "topology": job.topology.value, "domains": job.domains, "users": job.users}


def _federation_figures(outcome: federating.FederationOutcome) -> Columns:
    figures = msgspec.structs.asdict(outcome)
    for name in ("way", "topology", "domains", "seed"):
        del figures[name]
    of_events = msgspec.structs.asdict(figures.pop("events"))
    return figures | {f"event_{name}": value for name, value in of_events.items()}


def _run_mobility(job: simulated.Job) -> list[Outcome]:
    return [simulated.run_one(job)]


MOBILITY: Final = PointKind(
    name="mobility",
    run=_run_mobility,
    job=simulated.Job,
    part=Outcome,
    parameters=_mobility_parameters,
    seed=lambda job: int(job[2]),
    figures=_mobility_figures,
)
"""Loss under mobility in virtual time, with imposed, no or random outages, for a buffer and a rate."""

MERGING: Final = PointKind(
    name="merging",
    run=measuring.run_one,
    job=measuring.Job,
    part=measuring.MergedOutcome,
    parameters=_merging_parameters,
    seed=lambda job: int(job.seed),
    figures=_merging_figures,
    timed=lambda part: msgspec.structs.replace(part, merge_ms=0.0, match_us=0.0),
)
"""Merging of random subscriptions by all methods; a part for each number of subscriptions and method."""

HANDOVER: Final = PointKind(
    name="handover",
    run=running.run_one,
    job=HandoverJob,
    part=running.HandoverOutcome,
    parameters=_handover_parameters,
    seed=lambda job: int(job.seed),
    figures=_handover_figures,
)
"""Handover of sessions and moves of channel groups, by one routing, movement, number of servers and saturation."""

FEDERATION: Final = PointKind(
    name="federation",
    run=federating.run_one,
    job=FederationJob,
    part=federating.FederationOutcome,
    parameters=_federation_parameters,
    seed=lambda job: int(job.seed),
    figures=_federation_figures,
)
"""Filters and events between domains, by one way, topology and number of domains."""

KINDS: Final[Mapping[str, PointKind]] = {each.name: each for each in (MOBILITY, MERGING, HANDOVER, FEDERATION)}
