"""Audit of the logs of all servers, without Spark: notifications and handovers of each user over all logs.

The fold is that of the gold tables (decision 0145): it follows a session from server to server, also in other domains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from harness.user_entries import first_servers, followed, published_in, records_of
from wanderbus.pipeline.analytics.handovers import Handover
from wanderbus.pipeline.analytics.user_fold import Fate

Walk = dict[str, Any]
"""A handover of a user's session: {"user", "source", "target", "cause", "fenced_us", "imported_us", "gap_us"}."""

LOST: Final = ("dropped", "handed_over")
"""Outcomes of matches that the user does not get."""


class LogAudit(NamedTuple):
    """The walks of all users in the order of time, and what is wrong, in a line for each user and fault."""

    walks: Sequence[Walk]
    faults: Sequence[str]
    published_us: Mapping[tuple[str, int], int]
    """Time at which each event was published, by subject and row. An event that has come from another domain has the
    time of its publisher there, too."""

    homes: Mapping[str, str]
    """First server of each user's sessions."""


def audit_logs(logs: Mapping[str, Path], due: Mapping[str, int]) -> LogAudit:
    """Follow the sessions of the users through ``logs``, which are by server; ``due`` are notifications by user.

    Servers of several domains are called ``DOMAIN/SERVER``.
    """
    written = {server: records_of(log) for server, log in logs.items()}
    times: dict[tuple[str, int], int] = {}
    for event, at_us in (each for log in written.values() for each in published_in(log)):
        if isinstance(row := event.get("Row"), int):
            times[event.subject, row] = min(at_us, times.get((event.subject, row), at_us))
    walks: list[Walk] = []
    faults: list[str] = []
    for user, expected in due.items():
        taken, handovers, _ = followed(user, written)
        fates = [each for each in taken if isinstance(each, Fate)]
        walks += [_walk(user, each) for each in handovers if each.imported_us is not None]
        faults += _faults(user, expected, fates)
        faults += [
            f"the session of {user} never came from {each.source} to {each.target}"
            for each in handovers
            if each.fenced_us is not None and each.imported_us is None
        ]
    return LogAudit(sorted(walks, key=lambda walk: int(walk["imported_us"])), faults, times, first_servers(written))


def between_domains(walks: Iterable[Walk]) -> list[Walk]:
    """Return the walks from one domain to another."""
    return [walk for walk in walks if domain_of(walk["source"]) != domain_of(walk["target"])]


def domain_of(server: str) -> str:
    """Return the domain of a server ``DOMAIN/SERVER``."""
    return server.partition("/")[0]


def summary(walks: Sequence[Walk]) -> dict[str, Any]:
    """Return the number of walks, also by cause, and the percentiles of their gaps."""
    gaps_ms = [walk["gap_us"] / 1_000 for walk in walks if walk["gap_us"] is not None]
    found = map(float, np.percentile(gaps_ms, [50, 95, 100])) if gaps_ms else (None,) * 3
    causes = Counter(walk["cause"] for walk in walks)
    return {"moved": len(walks), "causes": dict(causes), "gap_ms": dict(zip(("p50", "p95", "max"), found, strict=True))}


def _faults(user: str, expected: int, fates: Sequence[Fate]) -> Iterable[str]:
    notified = len({(fate.match.session, fate.match.number) for fate in fates})
    if notified != expected:
        yield f"the logs have {notified} notifications of {user}, {expected} are due"
    outcomes = Counter(fate.outcome for fate in fates)
    for outcome in LOST:
        if outcomes[outcome]:
            yield f"the logs have {outcomes[outcome]} matches of {user} as {outcome.replace('_', ' ')}"


def _walk(user: str, handover: Handover) -> Walk:
    gap_us = None
    if handover.taken_us is not None and handover.fenced_us is not None:
        gap_us = max(0, handover.taken_us - max(handover.fenced_us, handover.matched_us or 0))
    names = ("source", "target", "cause", "fenced_us", "imported_us")
    return {"user": user, **{name: getattr(handover, name) for name in names}, "gap_us": gap_us}
