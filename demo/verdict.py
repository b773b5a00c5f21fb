"""The result of a run: the output of the batch job in the form of ``--json``, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from demo.network import SERVER, SPARK
from demo.users import User
from harness.reporting import goal

FAULTS: Final = ("lost", "repeated", "out_of_order", "unexpected")
"""Counts that have to be zero."""

ENGINE_NAMES: Final = {"broker": "the server", "spark": "Spark", "domain": "the servers"}

_COUNTS: Final = ("expected", "delivered", *FAULTS, "notified", "moves", "healed")


def make_result(
    job: Mapping[str, Any],
    users: Sequence[User],
    *,
    first_row: int,
    rows: int,
    events: int,
    engine: str,
    address_mode: str,
    killed: Iterable[str],
    trouble: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the result; ``job`` is the output of the batch job, ``killed`` names each process that was killed,
    ``trouble`` has a line for each other failure. ``events`` is the number of events of all ``rows``.

    A run is good when every event was published once, nothing was lost, repeated, out of order or unexpected, no table
    of the lake rejected a record of the servers, and there was no trouble.
    """
    found = {line["user"]: line for line in job["travellers"]}
    travellers = [_traveller(user, found.get(user.uri, {})) for user in users]
    names = list(killed)
    quarantined = job["quarantined_own_records"]
    return {
        "travellers": travellers,
        "published": job["published"],
        "slice": {"first_row": first_row, "rows": rows, "events": events},
        "engine": engine,
        "subjects": [_subject(line) for line in job["subjects"]],
        "address_changes": sum(line["moves"] for line in travellers),
        "kills": {
            "agent": sum(name not in (SERVER, SPARK) for name in names),
            "server": names.count(SERVER),
            "spark": names.count(SPARK),
        },
        "healing_ms": _healing(job["totals"]),
        "address_mode": address_mode,
        "trouble": list(trouble),
        "quarantined_own_records": quarantined,
        "goals": [goal("quarantined_own_records", quarantined, "records", most=0)],
        "good": not trouble
        and not quarantined
        and job["published"] == events
        and all(line["good"] for line in travellers),
    }


def verdict(result: Mapping[str, Any]) -> str:
    """Return the verdict on the run in one line."""
    totals = {name: sum(line[name] for line in result["travellers"]) for name in ("delivered", "expected", *FAULTS)}
    moved = result.get("handovers", {}).get("between_domains")
    walked = "" if moved is None else f"; {moved} move{'' if moved == 1 else 's'} of sessions between domains"
    if result["good"]:
        counts = f"{totals['delivered']} of {totals['expected']}"
        return f"good: {counts} delivered, none lost, repeated or out of order{walked}"
    wrong = [f"{totals[name]} {name.replace('_', ' ')}" for name in FAULTS if totals[name]]
    if result["published"] != result["slice"]["events"]:
        wrong.append(f"{result['published']} of {result['slice']['events']} events in the log")
    if result["quarantined_own_records"]:
        wrong.append(f"{result['quarantined_own_records']} records in the quarantine of the lake")
    wrong += result["trouble"]
    return f"NOT good: {', '.join(wrong) or 'the counts do not add up'}{walked}"


class Headline(NamedTuple):
    """One of the four numbers that sum up a run."""

    number: int
    caption: str
    good: bool = True


def headline(result: Mapping[str, Any]) -> list[Headline]:
    """Return the four main numbers: deliveries, faults, moves, and kills or what waited for a domain."""
    lines = result["travellers"]
    delivered, expected = (sum(line[name] for line in lines) for name in ("delivered", "expected"))
    faults = sum(line[name] for line in lines for name in FAULTS)
    median = result["healing_ms"]["p50"]
    healed = "" if median is None else f", half of them healed within {median:.0f} ms"
    if cuts := result.get("cuts"):
        waited, cut_s = sum(cut["waited"] for cut in cuts), sum(cut["ms"] for cut in cuts) / 1_000
        caption = f"waited while {cuts[0]['domain']} was cut off for {cut_s:.0f} s"
        last = Headline(waited, caption, all(cut["is_complete"] for cut in cuts))
    else:
        last = _kills(result["kills"])
    return [
        Headline(delivered, f"of {expected} notifications delivered", delivered == expected),
        Headline(faults, "lost, repeated, out of order or unexpected", not faults),
        Headline(result["address_changes"], f"changes of address{healed}"),
        last,
    ]


def _kills(kills: Mapping[str, int]) -> Headline:
    spark = f", Spark {kills['spark']}" if kills["spark"] else ""
    return Headline(sum(kills.values()), f"kill -9: server {kills['server']}, travellers {kills['agent']}{spark}")


def _traveller(user: User, line: Mapping[str, Any]) -> dict[str, Any]:
    counts = {name: int(line.get(name, 0)) for name in _COUNTS}
    return {
        "user": user.uri,
        "subscriptions": [text for _, text in user.subscriptions],
        "subjects": [subject for subject, _ in user.subscriptions],
        **counts,
        "away_s": round(float(line.get("away_s", 0.0)), 3),
        "healing_ms": _healing(line),
        "good": counts["delivered"] == counts["expected"] and not any(counts[name] for name in FAULTS),
    }


def _subject(line: Mapping[str, Any]) -> dict[str, Any]:
    latency_ms = {name: line[f"latency_{name}_ms"] for name in ("p50", "p95", "max")}
    return {**{name: line[name] for name in ("subject", "engine", "published", "takings")}, "latency_ms": latency_ms}


def _healing(line: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: line.get(f"healing_{name}_ms") for name in ("p50", "p95", "max")}
