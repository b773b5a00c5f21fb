"""Notifications of events of other domains: how long each was under way, and how many waited at each moment.

A *crossing* is a notification of an event that another domain published than that which has the session of the
traveller at that moment; its siblings are those of the same domain. Both are computed from the evidence, as the audit
is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np

from demo.log_audit import Walk, domain_of
from demo.traveller_results import Taken

Lines = Sequence[Mapping[str, Any]]
PublishTimes = Mapping[tuple[str, int], int]


IN_FORCE_US: Final = 500_000
"""Time after which a cut is certainly in force."""


class Delivery(NamedTuple):
    """A notification that is due: two domains, and times in microseconds.

    ``place`` has the session of its traveller as the event is published, ``origin`` publishes it. ``taken_us`` is None
    if the traveller never got it.
    """

    place: str
    origin: str
    published_us: int
    taken_us: int | None

    @property
    def crosses(self) -> bool:
        """Return whether the event is of another domain."""
        return self.place != self.origin

    @property
    def ms(self) -> float | None:
        """Return the time from publishing to the commit of the traveller, in milliseconds."""
        return None if self.taken_us is None else (self.taken_us - self.published_us) / 1_000


class Stays:
    """Domains that have the session of a user, one after another, by its walks in the order of time."""

    def __init__(self, user: str, walks: Iterable[Walk] = ()) -> None:
        own = [walk for walk in walks if walk["user"] == user]
        self._begin_us = [int(walk["imported_us"]) for walk in own]
        self._domains = [home_of(user), *(domain_of(walk["target"]) for walk in own)]

    def at(self, at_us: int) -> str:
        """Return the domain that has the session at a moment."""
        return self._domains[bisect_right(self._begin_us, at_us)]

    def between(self, from_us: int, to_us: int) -> Sequence[str]:
        """Return the domains that have it from one moment to another."""
        return self._domains[bisect_right(self._begin_us, from_us) : bisect_right(self._begin_us, to_us) + 1]


def deliveries(
    evidence: Mapping[str, Lines], published_us: PublishTimes, origin_of: Mapping[int, str], walks: Sequence[Walk] = ()
) -> list[Delivery]:
    """Return the notifications that are due, in the order of publishing; ``origin_of`` has the domain of each row.

    An event that no log has was never published: the audit counts it.
    """
    taken: dict[tuple[str, str, int], int] = {}
    for line in sorted(evidence["taken"], key=lambda line: int(line["seq"])):
        taken.setdefault((line["user"], line["subject"], line["row"]), line["at_us"])
    stays = {user: Stays(user, walks) for user in {line["user"] for line in evidence["expected"]}}
    found = [
        Delivery(stays[user].at(at_us), origin_of[row], at_us, taken.get((user, subject, row)))
        for user, subject, row in ((line["user"], line["subject"], line["row"]) for line in evidence["expected"])
        if (at_us := published_us.get((subject, row))) is not None
    ]
    return sorted(found, key=lambda each: each.published_us)


def home_of(user: str) -> str:
    """Return the domain of a user."""
    return user.rpartition("@")[2]


def misnamed(stays: Stays, taken: Iterable[Taken], origin_of: Mapping[int, str], published_us: PublishTimes) -> int:
    """Return how many notifications of a user name another domain than that which published the event.

    One that names none is of a domain that had the session after the event was published, until it was taken.
    """
    count = 0
    for each in taken:
        since_us = published_us.get((each.subject, each.row), each.at_us)
        named = [each.origin] if each.origin else stays.between(since_us, each.at_us)
        count += origin_of.get(each.row) not in named
    return count


def waiting(crossings: Iterable[Delivery], end_us: int) -> list[tuple[int, int]]:
    """Return how many notifications wait from each moment on at which that changes, up to ``end_us``."""
    changes: list[tuple[int, int]] = []
    for each in crossings:
        changes.append((each.published_us, 1))
        if each.taken_us is not None:
            changes.append((each.taken_us, -1))
    changes.sort()
    counts = accumulate(change for _, change in changes)
    found = [(at_us, count) for (at_us, _), count in zip(changes, counts, strict=True)]
    return [*found, (end_us, found[-1][1])] if found else []


def domain_result(domain: str, servers: Sequence[str], every: Sequence[Delivery], published: int) -> dict[str, Any]:
    """Return the figures of a domain: its own events, and what the sessions there got of it and of others."""
    own, others = _parts(each for each in every if each.place == domain)
    return {
        "domain": domain,
        "servers": list(servers),
        "published": published,
        "own": _figures(own),
        "foreign": _figures(others),
    }


def cut_result(cut: Mapping[str, Any], every: Sequence[Delivery]) -> dict[str, Any]:
    """Return the figures of the time in which a domain was cut off: what waited, and how long it did afterwards.

    ``caught_up_ms`` is the time from the end of the cut until everything had come that was published before that end
    and crosses to or from the domain. ``passed`` are notifications that came all the same.
    """
    touched = [each for each in every if each.crosses and cut["who"] in (each.place, each.origin)]
    late = [each for each in touched if each.published_us < cut["to_us"]]
    last_us = max((each.taken_us for each in late if each.taken_us is not None), default=cut["to_us"])
    return {
        "domain": cut["who"],
        "ms": (cut["to_us"] - cut["from_us"]) / 1_000,
        "waited": sum(_overlaps(each, cut) for each in late),
        "waiting_max": most_waiting(touched),
        "caught_up_ms": max(0, last_us - cut["to_us"]) / 1_000,
        "passed": sum(_passed(each, cut) for each in touched),
        "is_complete": all(each.taken_us is not None for each in late),
    }


def most_waiting(crossings: Iterable[Delivery]) -> int:
    """Return the largest number of notifications that waited at one moment."""
    return max((count for _, count in waiting(crossings, 0)), default=0)


def _overlaps(each: Delivery, cut: Mapping[str, Any]) -> bool:
    """Return whether a notification was published during a cut, and came after it or never."""
    return each.published_us >= cut["from_us"] and (each.taken_us is None or each.taken_us >= cut["to_us"])


def _passed(each: Delivery, cut: Mapping[str, Any]) -> bool:
    """Return whether a notification was published while a cut was certainly in force, and came before its end."""
    is_during = cut["from_us"] + IN_FORCE_US <= each.published_us < cut["to_us"]
    return is_during and each.taken_us is not None and each.taken_us < cut["to_us"]


def _parts(every: Iterable[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
    """Return the notifications of events of the own domain, and those of other domains."""
    own: list[Delivery] = []
    others: list[Delivery] = []
    for each in every:
        (others if each.crosses else own).append(each)
    return own, others


def _figures(several: Sequence[Delivery]) -> dict[str, Any]:
    times_ms = [each.ms for each in several if each.ms is not None]
    found = map(float, np.percentile(times_ms, [50, 95, 100])) if times_ms else (None,) * 3
    return {
        "due": len(several),
        "delivered": len(times_ms),
        "waiting_max": most_waiting(several),
        "latency_ms": dict(zip(("p50", "p95", "max"), found, strict=True)),
    }
