"""Plot of the costs of each way over the number of domains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wanderbus.evaluation.federation.experiment import Topology, Way
from wanderbus.evaluation.federation.summary import FederationSummary
from wanderbus.plots.charts import Area, axis, legend
from wanderbus.plots.shapes import Point, document, line, text

_COLOURS: Final[Mapping[Way, str]] = {
    Way.MULTICAST: "#6e7781",
    Way.RENDEZVOUS: "#1f6feb",
    Way.TREE: "#1a7f37",
    Way.FLOODING: "#d1242f",
}
_LEFT, _TOP = 60, 80
_PANEL_WIDTH, _PANEL_HEIGHT = 340, 220
_INNER_WIDTH, _INNER_HEIGHT = 250, 150

_PANELS: Final[Sequence[tuple[str, Callable[[FederationSummary], float]]]] = (
    ("updates of a move", lambda each: each.updates),
    ("kB of a move", lambda each: each.kilobytes),
    ("filters in the tables of a domain, mean", lambda each: each.table_mean),
    ("messages of an event", lambda each: each.event_messages),
    ("km of an event", lambda each: each.event_km),
    ("kB of a start of all domains", lambda each: each.start_kilobytes),
)


def federation_plot(topology: Topology, summaries: Sequence[FederationSummary]) -> str:
    """Return lines of all costs over the number of domains, with one topology."""
    own = [each for each in summaries if each.cell.topology is topology]
    parts = [text(_LEFT, 24, f"Federation, topology: {topology}; over the number of domains", size=15)]
    parts += legend(_LEFT, 38, [(str(each), _COLOURS[each]) for each in Way], apart=110)
    for place, (title, value) in enumerate(_PANELS):
        corner = _LEFT + place % 2 * _PANEL_WIDTH, _TOP + place // 2 * _PANEL_HEIGHT
        lines = {way: [(each.cell.domains, value(each)) for each in own if each.cell.way is way] for way in Way}
        parts += _panel(corner, title, lines)
    return document(_LEFT + 2 * _PANEL_WIDTH, _TOP + -(-len(_PANELS) // 2) * _PANEL_HEIGHT, parts)


def _panel(corner: Point, title: str, lines: Mapping[Way, Sequence[Point]]) -> list[str]:
    """Return one pair of axes, both from 0 up, with the line of each way."""
    left, top = corner[0], corner[1] + 20
    points = [point for several in lines.values() for point in several]
    widest = max([x for x, _ in points], default=1.0) or 1.0
    area = Area(left, left + _INNER_WIDTH, top, top + _INNER_HEIGHT, max([y for _, y in points], default=1.0) or 1.0)
    parts = [text(left, top - 8, title), *axis(area, 2, lambda value: f"{value:.3g}", label_x=left - 44)]
    parts.append(text(left + _INNER_WIDTH - 24, area.floor + 14, f"{widest:g}"))
    for way, several in lines.items():
        if several:
            parts.append(line([(left + x / widest * _INNER_WIDTH, area.y(y)) for x, y in several], _COLOURS[way]))
    return parts
