"""Sections of the report about sessions and channel groups that went from server to server (SPEC T-08)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from wanderbus.pipeline.analytics.analysis import Analysis
from wanderbus.pipeline.analytics.report.charts import grouped_bars
from wanderbus.pipeline.analytics.report.tables import Heading, count, duration, number, table, time, word

ABOUT: Final = (
    "The gap of a handover is the time in which its devices got nothing: from the moment at which the former server "
    "gave the session up, or from the event if that came later, to the first acknowledgement at the next server. A "
    "session none of whose devices was connected has no gap. The clocks of two servers are compared."
)
ABOUT_GROUPS: Final = (
    "Publishes to a channel group wait from the moment at which all servers are prepared until the next server leads. "
    "If the leader is gone, no pause is recorded. A group stays where it is if a server cannot prepare in time. "
    "The clocks of two servers are compared."
)
CAUSES: Final[Mapping[str, str]] = {
    "user": "its user",
    "asked": "another user",
    "drain": "drain of the server",
    "network": "network of a device",
    "": "not recorded",
}
_BARS: Final[Mapping[str, str]] = {"user": "user", "asked": "asked", "drain": "drain", "network": "network", "": "?"}

_USER: Final = word("user", "user", is_long=True)
_CAUSE: Final = Heading("wanted by", lambda row: CAUSES.get(row["cause"] or "", str(row["cause"])), is_word=True)
_OUTCOME: Final = Heading("outcome", lambda row: str(row["outcome"]).replace("_", " "), is_word=True)
_GAP: Final = Heading("gap", lambda row: duration(_ms(row["gap_us"])))
_STEPS: Final = (
    Heading("until ready", lambda row: _between(row, "awaited_us", "fenced_us")),
    Heading("until there", lambda row: _between(row, "fenced_us", "imported_us")),
    Heading("until done", lambda row: _between(row, "imported_us", "done_us")),
)


def handovers(found: Analysis) -> str:
    """Return the handovers: their counts, gaps and sizes by cause, and those with the longest gaps."""
    totals = found.totals
    if not found.handovers.rows:
        return "<p>No session went to another server.</p>"
    words = (
        f"<p>{number(totals.handovers)} handovers moved {number(totals.handover_notifications)} notifications in "
        f"{_bytes(totals.handover_bytes)}. Gaps: half within {duration(totals.handover_gap_p50_ms)}, 99 % within "
        f"{duration(totals.handover_gap_p99_ms)}, the longest {duration(totals.handover_gap_max_ms)}.</p>"
    )
    of_cause = (
        *(_CAUSE, count("handovers", "handovers"), count("withdrawn", "withdrawn"), count("under way", "under_way")),
        *(time("half within", "gap_p50_ms"), time("99 % within", "gap_p99_ms"), time("longest", "gap_max_ms")),
        *(count("notifications", "notifications"), Heading("size", lambda row: _bytes(row["bytes"]))),
    )
    of_each = (
        *(_USER, word("session", "session"), word("from", "source"), word("to", "target"), _CAUSE, _OUTCOME),
        *(*_STEPS, _GAP),
        _if_known("notifications"),
        Heading("size", lambda row: _bytes(row["bytes"])),
    )
    return (
        f"{_plot(found)}<p class='quiet'>{ABOUT}</p>{words}{table(found.causes, of_cause, '')}"
        f"<h3>Longest gaps</h3>{table(found.handovers, of_each, '')}"
    )


def group_moves(found: Analysis) -> str:
    """Return the moves of channel groups: how long publishes waited, and the steps of each."""
    totals = found.totals
    if not found.group_moves.rows:
        return "<p>No channel group was moved to another leader.</p>"
    words = (
        f"<p>{number(totals.group_moves)} channel groups got another leader. Publishes waited: half within "
        f"{duration(totals.group_pause_p50_ms)}, 99 % within {duration(totals.group_pause_p99_ms)}, the longest "
        f"{duration(totals.group_pause_max_ms)}.</p>"
    )
    of_each = (
        *(count("group", "channel_group"), word("from", "source"), word("to", "target"), count("epoch", "epoch")),
        Heading("kind", lambda row: "forced" if row["is_forced"] else "planned", is_word=True),
        _OUTCOME,
        Heading("until prepared", lambda row: _between(row, "begun_us", "paused_us")),
        Heading("until given up", lambda row: _between(row, "paused_us", "moved_us")),
        Heading("until led", lambda row: _between(row, "moved_us", "adopted_us")),
        Heading("pause", lambda row: duration(_ms(row["pause_us"]))),
        *map(_if_known, ("waited", "publishers")),
    )
    return f"<p class='quiet'>{ABOUT_GROUPS}</p>{words}{table(found.group_moves, of_each, '')}"


def _if_known(name: str) -> Heading:
    """Return a column of counts that no log may have."""
    return Heading(name, lambda row: "—" if row[name] is None else number(row[name]))


def _plot(found: Analysis) -> str:
    names = ("gap_p50_ms", "gap_p99_ms", "gap_max_ms")
    rows = [row for row in found.causes.rows if row["gap_max_ms"] is not None]
    if not rows:
        return ""
    groups = {_BARS.get(row["cause"], str(row["cause"])): [row[name] for name in names] for row in rows}
    caption = "gap of handovers, within which it ended, by who wanted them, on a logarithmic scale"
    return f"<div class='plots'>{grouped_bars(groups, ('half', '99 %', 'longest'), caption, duration)}</div>"


def _between(row: Mapping[str, Any], begin: str, end: str) -> str:
    if row[begin] is None or row[end] is None:
        return "—"
    return duration((row[end] - row[begin]) / 1_000)


def _bytes(size: int | None) -> str:
    if size is None:
        return "—"
    return f"{number(size)} bytes" if size < 10_000 else f"{size / 1_000:,.0f} kB"


def _ms(value_us: int | None) -> float | None:
    return None if value_us is None else value_us / 1_000
