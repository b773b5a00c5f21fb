"""Audit of a run without Spark: what each traveller took, compared with what it was due.

The result has the form of that of :mod:`demo.audit`. Order is promised among the events of one subject, whose channel
has one leader; the publisher publishes the rows of a subject in their order. With several domains it is promised
among those of one subject and one domain.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from demo import SUBJECTS

Lines = Sequence[Mapping[str, Any]]

PublishTimes = Mapping[tuple[str, int], int]
"""Times of publishing, in microseconds, by subject and row."""

_US: Final = 1_000_000


def journeys(
    evidence: Mapping[str, Lines],
    published: int,
    published_us: PublishTimes,
    quarantined: int = 0,
    order_of: Mapping[tuple[str, int], Hashable] | None = None,
) -> dict[str, Any]:
    """Return the result of every traveller and of all together, from the lines of the evidence.

    ``published`` is the number of events that the publisher has an acknowledgement for, ``quarantined`` that of the
    records of the servers that tables of a lake reject, and ``published_us`` the times of publishing in the logs.
    Events for which ``order_of`` has the same are in order; without it, those of a subject.
    """
    users = sorted({line["user"] for line in evidence["expected"]})
    travellers = []
    for user in users:
        own = {name: [line for line in evidence[name] if line["user"] == user] for name in _FILES}
        travellers.append({"user": user, **_journey(own, published_us, order_of or {})})
    counts = {name: sum(line[name] for line in travellers) for name in (*_COUNTS, "away_s")}
    totals = {
        **counts,
        **_percentiles("healing", _healing_ms(evidence["moves"])),
        **_percentiles("latency", _latency_ms(evidence["taken"], published_us)),
    }
    return {
        "published": published,
        "quarantined_own_records": quarantined,
        "totals": totals,
        "travellers": travellers,
        "subjects": [_subject(subject, evidence["taken"], published_us) for subject in SUBJECTS],
    }


_FILES: Final = ("expected", "taken", "moves", "away")
_COUNTS: Final = (
    *("expected", "delivered", "lost", "repeated", "out_of_order", "unexpected"),
    *("notified", "moves", "healed"),
)


def _journey(
    lines: Mapping[str, Lines], published_us: PublishTimes, order_of: Mapping[tuple[str, int], Hashable]
) -> dict[str, Any]:
    due = {(line["subject"], line["row"]) for line in lines["expected"]}
    taken = [(line["subject"], line["row"]) for line in sorted(lines["taken"], key=lambda line: int(line["seq"]))]
    first = list(dict.fromkeys(taken))
    in_order: dict[Hashable, list[int]] = {}
    for event in first:
        in_order.setdefault(order_of.get(event, event[0]), []).append(event[1])
    healing_ms = _healing_ms(lines["moves"])
    return {
        "expected": len(due),
        "delivered": len(due & set(first)),
        "lost": len(due - set(first)),
        "repeated": len(taken) - len(first),
        "unexpected": len(set(first) - due),
        "out_of_order": sum(map(_behind, in_order.values())),
        "notified": len(taken),
        "moves": len(lines["moves"]),
        "healed": len(healing_ms),
        "away_s": sum(line["to_us"] - line["from_us"] for line in lines["away"]) / _US,
        **_percentiles("healing", healing_ms),
        **_percentiles("latency", _latency_ms(lines["taken"], published_us)),
    }


def _behind(rows: Iterable[int]) -> int:
    """Return how many rows come after a later one."""
    count, latest = 0, -1
    for row in rows:
        count += row < latest
        latest = max(latest, row)
    return count


def _healing_ms(moves: Lines) -> list[float]:
    return [(line["healed_us"] - line["moved_us"]) / 1_000 for line in moves if line["healed_us"] is not None]


def _latency_ms(taken: Lines, published_us: PublishTimes) -> list[float]:
    """Return the times from publishing to the first commit of each traveller."""
    first: dict[tuple[str, str, int], int] = {}
    for line in sorted(taken, key=lambda line: int(line["seq"])):
        first.setdefault((line["user"], line["subject"], line["row"]), line["at_us"])
    known = ((at_us, published_us.get((subject, row))) for (_, subject, row), at_us in first.items())
    return [(at_us - begin_us) / 1_000 for at_us, begin_us in known if begin_us is not None]


def _percentiles(measure: str, values: Sequence[float]) -> dict[str, float | None]:
    names = [f"{measure}_{name}_ms" for name in ("p50", "p95", "max")]
    if not values:
        return dict.fromkeys(names)
    return dict(zip(names, map(float, np.percentile(values, [50, 95, 100])), strict=True))


def _subject(subject: str, taken: Lines, published_us: PublishTimes) -> dict[str, Any]:
    of_subject = [line for line in taken if line["subject"] == subject]
    return {
        "subject": subject,
        "engine": "domain",
        "published": sum(of == subject for of, _ in published_us),
        "takings": len(of_subject),
        **_percentiles("latency", _latency_ms(of_subject, published_us)),
    }
