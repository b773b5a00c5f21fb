"""One self-contained HTML page about a run: figures per traveller, and plots of the evidence (SPEC T-08)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import Environment

from wanderbus.pipeline import plots
from wanderbus.pipeline.evidence import Away, Line, Move, Taking, read_lines

PLOTS_MAX: Final = 40
"""Travellers that get a plot of their own; every one is in the table."""


class Column(NamedTuple):
    """A column of the table; a figure above zero in a ``defect`` column is marked."""

    name: str
    title: str
    defect: bool = False


COLUMNS: Final = (
    Column("user", "traveller"),
    Column("expected", "expected"),
    Column("delivered", "delivered"),
    Column("lost", "lost", defect=True),
    Column("repeated", "repeated", defect=True),
    Column("out_of_order", "out of order", defect=True),
    Column("unexpected", "unexpected", defect=True),
    Column("notified", "notified"),
    Column("moves", "moves"),
    Column("away_s", "away, s"),
    Column("healing_p50_ms", "healing p50, ms"),
    Column("healing_p95_ms", "p95, ms"),
    Column("healing_max_ms", "max, ms"),
)


def write_report(result: Mapping[str, Any], evidence_dir: Path, path: Path) -> None:
    """Write the report of ``result`` (a :class:`JourneysResult` as a dict) and its evidence to ``path``.

    The page refers to nothing outside itself. Raises ``StorageError`` if the evidence cannot be read, ``OSError`` if
    the page cannot be written.
    """
    environment = Environment(autoescape=True)
    environment.filters["shown"] = shown
    template = environment.from_string(Path(__file__).with_name("report.html.j2").read_text(encoding="utf-8"))
    page = template.render(_context(result, evidence_dir))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def shown(figure: str | int | float | None) -> str:
    """Return ``figure`` as the table shows it: thousands apart, one digit after the point, a dash for none."""
    match figure:
        case None:
            return "\u2013"
        case float():
            return f"{figure:,.1f}"
        case int():
            return f"{figure:,}"
        case _:
            return figure


def verdict(totals: Mapping[str, Any]) -> str:
    """Return the run in one sentence: what went wrong, or that nothing did."""
    defects = [column for column in COLUMNS if column.defect and totals[column.name]]
    if defects:
        return "Not as it should be: " + ", ".join(f"{totals[c.name]:,} {c.title}" for c in defects) + "."
    if not totals["expected"]:
        return "Nothing was expected and nothing came."
    return f"All {totals['expected']:,} expected notifications were delivered once and in order."


def _context(result: Mapping[str, Any], evidence_dir: Path) -> dict[str, Any]:
    takings = read_lines(evidence_dir, "taken", Taking)
    moves = read_lines(evidence_dir, "moves", Move)
    away = read_lines(evidence_dir, "away", Away)
    takings_of, moves_of, away_of = _by_user(takings), _by_user(moves), _by_user(away)

    def plot(user: str, expected: int) -> str:
        return plots.delivery_plot(takings_of[user], moves_of[user], away_of[user], expected, span_us)

    span_us = _span_us(takings, moves, away)
    travellers = result["travellers"]
    return {
        **{name: result[name] for name in ("subject", "published", "totals", "travellers")},
        "columns": COLUMNS,
        "verdict": verdict(result["totals"]),
        "sound": not any(result["totals"][column.name] for column in COLUMNS if column.defect),
        "colours": {"delivered": plots.BLUE, "moved": plots.ORANGE, "away": plots.GREY},
        "plots": [{"user": t["user"], "svg": plot(t["user"], t["expected"])} for t in travellers[:PLOTS_MAX]],
        "left_out": max(0, len(travellers) - PLOTS_MAX),
        "healing": plots.healing_plot(moves),
        "latency": plots.latency_plot(result.get("latency", ())),
    }


def _by_user(lines: Iterable[Line]) -> defaultdict[str, list[Line]]:
    grouped: defaultdict[str, list[Line]] = defaultdict(list)
    for line in lines:
        grouped[line.user].append(line)
    return grouped


def _span_us(takings: list[Taking], moves: list[Move], away: list[Away]) -> tuple[int, int]:
    """Return the first and the last moment that the evidence speaks of."""
    times = list(
        chain(
            (taking.at_us for taking in takings),
            (move.moved_us for move in moves),
            chain.from_iterable((period.from_us, period.to_us) for period in away),
        )
    )
    return (min(times), max(times)) if times else (0, 0)
