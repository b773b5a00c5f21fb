"""Plots of the run with several domains: delivery times and waiting notifications over time, and the cut in both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from demo.crossings import Delivery, waiting
from demo.html_plots import Lines, band, flag, plot, row, time_scale

STYLE: Final = """
.cut { background: var(--bad); opacity: .22; } .domains h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
.domains + table { margin-top: 1.2rem; } .domains .area { height: 4.6rem; }
.domains .own polyline { stroke: var(--move); }
.key .own { height: 2px; background: var(--move); vertical-align: .25rem; }
.key .cut { opacity: .5; }
"""

SLICES: Final = 240
"""Points of a line at most; each is the highest of its slice of time."""

Points = Sequence[tuple[float, float]]


def domains(evidence: Mapping[str, Lines]) -> str:
    """Return two plots with a strip for each domain: delivery times, and notifications that wait, over time."""
    every = [Delivery(**line) for line in evidence["deliveries"]]
    if not evidence["taken"] or not every:
        return "<p>Nothing was delivered.</p>"
    x, seconds = time_scale(evidence)
    names = sorted({each.place for each in every})
    across = "".join(cut_bands(evidence, x))
    head = cut_flags(evidence, x)
    key = (
        "<ul class='key'><li><i class='line'></i>events of other domains</li><li><i class='own'></i>events of the own "
        "domain</li><li><i class='cut'></i>a domain cut off</li></ul>"
    )
    parts = {
        name: tuple(
            [each for each in every if each.place == name and each.crosses is crosses] for crosses in (True, False)
        )
        for name in names
    }
    unit = "seconds since the first event"
    times = [head, *_time_strips(parts, x, across)]
    counts = [head, *_waiting_strips(parts, x, across)]
    return (
        f"<div class='domains'>{key}<h3>Delivery time, by the moment of publishing</h3>"
        f"{plot('longest delivery time over time, for the sessions at each domain', times, seconds, unit)}"
        "<h3>Notifications that wait</h3>"
        f"{plot('notifications that wait over time, for the sessions at each domain', counts, seconds, unit)}</div>"
    )


def cut_bands(evidence: Mapping[str, Lines], x: Callable[[int], float]) -> list[str]:
    """Return the times in which a domain was cut off, as bands across a strip; none if there are no domains."""
    return [band(cut, "cut", f"{cut['who']} cut off", x) for cut in evidence.get("cuts", ())]


def cut_flags(evidence: Mapping[str, Lines], x: Callable[[int], float]) -> str:
    """Return a line above the strips for each cut."""
    return "".join(
        flag("flag", f"{cut['who']} cut off for {(cut['to_us'] - cut['from_us']) / 1e6:.1f} s", x(cut["from_us"]))
        for cut in evidence.get("cuts", ())
    )


def words(result: Mapping[str, Any]) -> str:
    """Return a table of the domains, and a sentence about each cut."""
    headings = (
        "domain",
        "servers",
        "published",
        "own events",
        "within, ms",
        "of others",
        "within, ms",
        "waited at most",
    )
    head = "".join(f"<th>{name}</th>" for name in headings)
    rows = []
    for line in result["domains"]:
        own, foreign = line["own"], line["foreign"]
        values = [line["domain"], str(len(line["servers"])), f"{line['published']:,}"]
        for part in (own, foreign):
            values += [f"{part['delivered']:,} of {part['due']:,}", _three(part["latency_ms"])]
        values.append(f"{foreign['waiting_max']:,}")
        cells = [f"<td data-is='{name}'>{escape(value)}</td>" for name, value in zip(headings, values, strict=True)]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>{''.join(map(_of_cut, result['cuts']))}"


def _of_cut(cut: Mapping[str, Any]) -> str:
    rest = (
        f"The last of them came {cut['caught_up_ms'] / 1_000:.1f} s after its end."
        if cut["is_complete"]
        else "<b class='bad'>Some of them never came.</b>"
    )
    return (
        f"<p class='quiet'>{escape(cut['domain'])} was cut off for {cut['ms'] / 1_000:.1f} s. {cut['waited']:,} "
        f"notifications to and from it waited for the end of the cut, up to {cut['waiting_max']:,} at one moment. "
        f"{rest} Times are those of half of the notifications, of 95 % of them, and of the slowest.</p>"
    )


def _three(times_ms: Mapping[str, float | None]) -> str:
    return " / ".join("—" if value is None else f"{value:,.0f}" for value in times_ms.values())


_Parts = Mapping[str, tuple[list[Delivery], ...]]


def _time_strips(parts: _Parts, x: Callable[[int], float], across: str) -> list[str]:
    """Return the strips of delivery times; all have the same scale."""
    points = {
        name: tuple(highest((x(each.published_us), each.ms) for each in part if each.ms is not None) for part in both)
        for name, both in parts.items()
    }
    longest = max((y for both in points.values() for part in both for _, y in part), default=0.0) or 1.0
    return [
        _strip(name, f"up to {max(y for part in both for _, y in part) / 1_000:.1f} s", both, longest, across)
        for name, both in points.items()
        if any(both)
    ]


def _waiting_strips(parts: _Parts, x: Callable[[int], float], across: str) -> list[str]:
    """Return the strips of waiting notifications; all have the same scale."""
    ends = [each.taken_us or each.published_us for both in parts.values() for part in both for each in part]
    points = {
        name: tuple(highest((x(at_us), float(count)) for at_us, count in waiting(part, max(ends))) for part in both)
        for name, both in parts.items()
    }
    most = max((y for both in points.values() for part in both for _, y in part), default=0.0) or 1.0
    return [
        _strip(name, f"up to {max((y for part in both for _, y in part), default=0.0):.0f}", both, most, across)
        for name, both in points.items()
    ]


def highest(points: Iterable[tuple[float, float]]) -> Points:
    """Return the highest point of each slice of time, in order; ``x`` is in per cent."""
    found: dict[int, tuple[float, float]] = {}
    for px, py in points:
        place = int(px * SLICES / 100)
        if place not in found or py > found[place][1]:
            found[place] = (px, py)
    return [found[place] for place in sorted(found)]


def _strip(name: str, note: str, both: tuple[Points, ...], limit: float, across: str) -> str:
    """Return the strip of a domain: a line for events of others, and one for its own."""
    lines = [
        f"<svg class='{kind}' viewBox='0 0 100 100' preserveAspectRatio='none'>"
        f"<polyline points='{_line(part, limit)}'/></svg>"
        for kind, part in zip(("foreign", "own"), both, strict=True)
        if part
    ]
    return row(name, note, f"<div class='area'>{across}{''.join(lines)}</div>")


def _line(points: Points, limit: float) -> str:
    return " ".join(f"{px:.2f},{100 - py / limit * 94:.1f}" for px, py in points)
