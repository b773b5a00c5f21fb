"""Sections of the report, each from the figures of an analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from wanderbus.event_text import escaped
from wanderbus.pipeline.analytics.analysis import STRIPS, Analysis, Ranking
from wanderbus.pipeline.analytics.coverings import FILTERS_MAX
from wanderbus.pipeline.analytics.report.charts import curves, grouped_bars, ranked_bars, strips
from wanderbus.pipeline.analytics.report.tables import (
    Heading,
    count,
    device,
    device_name,
    duration,
    number,
    table,
    time,
    word,
)

LOSS: Final = (
    "A match is one notification for one subscription, and the counts are the broker's own. Missing are numbers of "
    "notifications that no record has, repeated those that two have: both are 0 unless something was lost or written "
    "twice. Matches were given up if somebody purged or discarded them, or unsubscribed while they waited. Blocked "
    "matches were forbidden by a restriction, and never generated."
)
REJECTED: Final = (
    "The figures of this page miss what is in these records. Their reasons are in the table quarantine of the lake; "
    "after an update, 'wanderbus pipeline backfill TABLE --lake LAKE --force' makes a table again."
)
LATENCY: Final = (
    "Publish to accept: from the publisher's clock to the server's, if the publisher gave a time; clocks that differ "
    "change it. Accept to match: 0, unless an engine beside the broker matches. Device away: the time in which the "
    "device was DISCONNECTED. Until taken: the rest of the time until the application acknowledged. It contains the "
    "writing to disk, the sending and the work of the application: the log records neither the time at which an event "
    "became durable nor that at which it was sent. Total: all of these."
)
HEALING: Final = (
    "A move begins when the server learns of the address: the time before, in which only the device knows of it, is "
    "not in the log. It has healed with the first match that the device acknowledges afterwards, counted from the "
    "move, or from the match if that came later."
)
SLOW: Final = "Devices in the order of the time until they acknowledge, times away not counted."
COVERAGE: Final = (
    "A filter covers another one if it is proved to match every event that the other one matches. Of filters that are "
    "equal in meaning, one is enough."
)

PARTS_SHOWN: Final = {
    "accepting": "publish to accept",
    "matching": "accept to match",
    "away": "device away",
    "acknowledging": "until taken",
    "total": "total",
}
BARS: Final = 10

_USER: Final = word("user", "user", is_long=True)
_SESSION: Final = word("session", "session")
_DEVICE: Final = device("device", "device")
_OUTCOMES: Final = (
    count("matches", "generated"),
    count("delivered", "delivered"),
    count("dropped", "dropped", is_fault=True),
    count("given up", "given_up"),
    count("waiting", "queued"),
)
_PERCENTILES: Final = (
    count("taken", "acknowledgements"),
    time("half within", "p50_ms"),
    time("95 % within", "p95_ms"),
    time("99 % within", "p99_ms"),
    time("longest", "max_ms"),
)


def loss(found: Analysis) -> str:
    """Return loss and duplicates: the counts of each session, and drops by reason."""
    headings = (
        *(_USER, _SESSION, *_OUTCOMES),
        count("blocked", "restricted"),
        count("missing", "missing", is_fault=True),
        count("repeated", "repeated", is_fault=True),
    )
    totals = found.totals
    words = (
        f"{_quiet(LOSS)}<p>{number(totals.repeated_events)} of {number(totals.events)} events were accepted twice. "
        f"{number(totals.redelivered)} matches were sent again to a later life of an agent, marked as such.</p>"
    )
    return words + table(found.sessions, headings, "No session had a match.")


def dropped(found: Analysis) -> str:
    """Return drops by reason, and where they happened."""
    given_up = f"{number(found.totals.given_up)} matches were given up on request." if found.totals.given_up else ""
    if not found.reasons.rows:
        return f"<p>Nothing was dropped. {given_up}</p>"
    values = [(escaped(row["reason"]), float(row["dropped"])) for row in found.reasons.rows[:BARS]]
    plot = ranked_bars(values, "dropped matches by reason", _counted)
    headings = (_USER, _SESSION, word("subject", "subject"), word("reason", "reason"), count("dropped", "dropped"))
    return f"<div class='plots'>{plot}</div>{_quiet(given_up)}" + table(found.drops, headings, "")


def rejected(found: Analysis) -> str:
    """Return the records that tables of the lake rejected."""
    rows = [{"table": name, "records": records} for name, records in sorted(found.rejected.items())]
    headings = (word("table", "table"), count("records", "records", is_fault=True))
    return _quiet(REJECTED if rows else "") + table(Ranking(rows), headings, "No table rejected a record.")


def latency(found: Analysis) -> str:
    """Return the percentiles of the parts of latency, for the server, subjects, users and devices."""
    server = {row["part"]: row for row in found.latencies["server"].rows}
    if not server:
        return "<p>No device has acknowledged a match.</p>"
    names = ("p50_ms", "p95_ms", "p99_ms")
    shown = {
        words: [server[part][name] if part in server else None for name in names] for part, words in _SHORT.items()
    }
    plot = grouped_bars(
        shown, ("half", "95 %", "99 %"), "time of each part, within which it ended, on a logarithmic scale", duration
    )
    part = Heading("part", lambda row: PARTS_SHOWN[row["part"]], is_word=True)
    parts = [
        f"<div class='plots'>{plot}</div>",
        _quiet(LATENCY),
        table(found.latencies["server"], (part, *_PERCENTILES), ""),
    ]
    scopes: Mapping[str, Sequence[Heading]] = {
        "subject": (word("subject", "subject", is_long=True),),
        "user": (_USER,),
        "device": (_USER, _DEVICE),
    }
    for scope, own in scopes.items():
        ranking = found.latencies[scope]
        parts.append(
            f"<details><summary>By {scope}</summary>{table(ranking, (*own, part, *_PERCENTILES), '')}</details>"
        )
    return "".join(parts)


_SHORT: Final = {"accepting": "accept", "matching": "match", "away": "away", "acknowledging": "take", "total": "total"}


def depth(found: Analysis) -> str:
    """Return the depth of queues over time."""
    span = _span(found)
    if not found.depth or span is None:
        return "<p>No match waited.</p>"
    server = {"all queues": _points(found.depth, found.depth_bucket_us)}
    own: dict[str, list[tuple[int, float]]] = {}
    for row in found.depths:
        points = own.setdefault(escaped(f"{row['user']} {row['session']}"), [])
        points += _points([row], found.depth_bucket_us)
    first = curves(server, span, "matches that wait, in all queues, over time (UTC)")
    return f"<div class='plots'>{first}{curves(own, span, 'in the deepest queues')}</div>"


def _points(rows: Sequence[Mapping[str, Any]], bucket_us: int) -> list[tuple[int, float]]:
    return [
        point
        for row in rows
        for point in ((row["from_us"], row["depth_max"]), (row["from_us"] + bucket_us, row["depth"]))
    ]


def healing(found: Analysis) -> str:
    """Return the changes of address and the time until they healed."""
    totals = found.totals
    if not totals.moves:
        return "<p>No device changed its address.</p>"
    words = (
        f"<p>{number(totals.moves)} changes of address, {number(totals.healed)} with an acknowledgement before the "
        f"next one: half within {duration(totals.healing_p50_ms)}, 95 % within {duration(totals.healing_p95_ms)}, the "
        f"longest {duration(totals.healing_max_ms)}.</p>{_quiet(HEALING)}"
    )
    headings = (
        *(_USER, _DEVICE, word("from", "former"), word("to", "address")),
        Heading("healed after", lambda row: duration(_ms(row["healing_us"]))),
    )
    return words + table(found.moves, headings, "")


def away(found: Analysis) -> str:
    """Return the times in which devices were away."""
    span = _span(found)
    if not found.absences or span is None:
        return "<p>No device was away.</p>"
    spans: dict[str, list[tuple[int, int, str]]] = {}
    for row in found.absences:
        end = row["to_us"] if row["to_us"] is not None else span[1]
        words = f"{escaped(row['reason'])}, {duration((end - row['from_us']) / 1_000)}"
        name = escaped(f"{row['user']} {device_name(row['device'])}")
        spans.setdefault(name, []).append((row["from_us"], end, words))
    plot = strips(spans, span, f"times away of up to {STRIPS} devices, those that were away longest, over time (UTC)")
    headings = (
        *(_USER, _DEVICE, count("times away", "absences")),
        Heading("sum", lambda row: duration(row["away_us"] / 1_000)),
        Heading("away at the end", lambda row: "yes" if row["is_away"] else "no"),
    )
    rows = Ranking([row for row in found.devices.rows if row["absences"]], found.devices.is_cut)
    return f"<div class='plots'>{plot}</div>" + table(rows, headings, "")


def devices(found: Analysis) -> str:
    """Return the counts of each device."""
    headings = (
        *(_USER, _DEVICE, count("published", "events"), count("accepted twice", "repeated_events", is_fault=True)),
        *(count("taken", "taken"), count("sent again", "redelivered"), time("95 % taken within", "taking_p95_ms")),
        *(count("moves", "moves"), time("half healed within", "healing_p50_ms")),
    )
    return table(found.devices, headings, "No device published or took anything.")


def slow(found: Analysis) -> str:
    """Return the devices that take longest to acknowledge, times away not counted."""
    headings = (_USER, _DEVICE, count("taken", "taken"), time("95 % within", "taking_p95_ms"))
    return _quiet(SLOW) + table(Ranking(found.slow.rows[:BARS]), headings, "No device has acknowledged a match.")


def hot(found: Analysis) -> str:
    """Return the subjects with the most events."""
    if not found.subjects.rows:
        return "<p>Nothing was published.</p>"
    values = [(escaped(row["subject"]), float(row["events"])) for row in found.subjects.rows[:BARS]]
    headings = (
        *(word("subject", "subject", is_long=True), count("events", "events")),
        *(count("most in 1 s", "events_in_peak_s"), *_OUTCOMES),
    )
    return f"<div class='plots'>{ranked_bars(values, 'events by subject', _counted)}</div>" + table(
        found.subjects, headings, ""
    )


def never(found: Analysis) -> str:
    """Return the live subscriptions that never matched."""
    totals = found.totals
    words = (
        f"<p>{number(totals.never_matched)} of {number(totals.live)} live subscriptions have never matched, blocked "
        "matches included. Those with events saw events of their subject, and none that their filter takes.</p>"
    )
    headings = (
        *(word("filter", "expression", is_long=True), word("subject", "subject"), _USER, word("subscription", "id")),
        count("events seen", "events_seen"),
    )
    return words + table(found.never, headings, "")


def coverage(found: Analysis) -> str:
    """Return the filters of live subscriptions that others cover."""
    headings = (
        *(word("filter", "covering_expression", is_long=True), count("subscriptions", "covering_subscriptions")),
        Heading("relation", lambda row: "equals" if row["is_equal"] else "covers", is_word=True),
        *(word("other filter", "covered_expression", is_long=True), count("with that", "covered_subscriptions")),
        word("subject", "subject"),
    )
    words = COVERAGE
    if found.totals.uncompared:
        words += (
            f" {number(found.totals.uncompared)} filters were not compared with all others of their subject: of each "
        )
        words += (
            f"subject, the {FILTERS_MAX} filters that most subscriptions have are, each with a bounded amount of work; "
        )
        words += "see the table uncompared_filters."
    return _quiet(words) + table(found.coverings, headings, "No filter of a live subscription covers another one.")


def _quiet(words: str) -> str:
    return f"<p class='quiet'>{words}</p>"


def _span(found: Analysis) -> tuple[int, int] | None:
    return None if found.first_us is None or found.last_us is None else (found.first_us, found.last_us)


def _counted(value: float) -> str:
    return number(round(value))


def _ms(value_us: int | None) -> float | None:
    return None if value_us is None else value_us / 1_000
