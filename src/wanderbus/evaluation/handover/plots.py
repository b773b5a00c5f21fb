"""Plots of the comparison: updates over saturation, and costs over the number of servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wanderbus.evaluation.handover.experiment import Movement, Routing
from wanderbus.evaluation.handover.summary import HandoverSummary, diagonal
from wanderbus.plots.charts import Area, axis, legend
from wanderbus.plots.shapes import Point, document, line, text

_COLOURS: Final[Mapping[Routing, str]] = {
    Routing.RENDEZVOUS: "#1f6feb",
    Routing.UNCOVERED: "#6e7781",
    Routing.TREE: "#1a7f37",
    Routing.FLOODING: "#d1242f",
}
_LEFT, _TOP = 60, 80
_PANEL_WIDTH, _PANEL_HEIGHT = 340, 220
_INNER_WIDTH, _INNER_HEIGHT = 250, 150

Value = Callable[[HandoverSummary], float | None]

_OVER_SERVERS: Final[Sequence[tuple[str, Value]]] = (
    ("updates of a handover", lambda each: each.updates),
    ("other messages of a handover", lambda each: each.other_messages),
    ("kB of a handover", lambda each: each.kilobytes),
    ("pause, median, ms", lambda each: None if each.pause is None else each.pause.p50_ms),
    ("whole handover, median, ms", lambda each: None if each.whole is None else each.whole.p50_ms),
    ("messages of an event", lambda each: each.event_messages),
)


def saturation_plot(summaries: Sequence[HandoverSummary]) -> str:
    """Return lines of the updates of a handover over the saturation of source and target."""
    of_each = {routing: diagonal(summaries, routing) for routing in Routing}
    panel = _panel(
        (_LEFT, _TOP),
        "updates of a handover, over saturation in %",
        {
            routing: [(each.cell.source_percent, each.updates) for each in several if each.updates is not None]
            for routing, several in of_each.items()
        },
    )
    return document(_LEFT + 2 * _PANEL_WIDTH, _TOP + _PANEL_HEIGHT, [*_head("Handover and covering"), *panel])


def servers_plot(movement: Movement, summaries: Sequence[HandoverSummary]) -> str:
    """Return lines of all costs over the number of servers, with one movement."""
    parts = _head(f"Handover, movement: {movement}; over the number of servers")
    for place, (title, value) in enumerate(_OVER_SERVERS):
        corner = _LEFT + place % 2 * _PANEL_WIDTH, _TOP + place // 2 * _PANEL_HEIGHT
        lines: dict[Routing, list[Point]] = {routing: [] for routing in Routing}
        for each in summaries:
            if each.cell.movement is movement and (found := value(each)) is not None:
                lines[each.cell.routing].append((each.cell.servers, found))
        parts += _panel(corner, title, lines)
    return document(_LEFT + 2 * _PANEL_WIDTH, _TOP + -(-len(_OVER_SERVERS) // 2) * _PANEL_HEIGHT, parts)


def _head(title: str) -> list[str]:
    colours = [(str(each), _COLOURS[each]) for each in Routing]
    return [text(_LEFT, 24, title, size=15), *legend(_LEFT, 38, colours, apart=110)]


def _panel(corner: Point, title: str, lines: Mapping[Routing, Sequence[Point]]) -> list[str]:
    """Return one pair of axes, both from 0 up, with the line of each routing."""
    left, top = corner[0], corner[1] + 20
    points = [point for several in lines.values() for point in several]
    widest = max([x for x, _ in points], default=1.0) or 1.0
    area = Area(left, left + _INNER_WIDTH, top, top + _INNER_HEIGHT, max([y for _, y in points], default=1.0) or 1.0)
    parts = [text(left, top - 8, title), *axis(area, 2, lambda value: f"{value:.3g}", label_x=left - 44)]
    parts.append(text(left + _INNER_WIDTH - 24, area.floor + 14, f"{widest:g}"))
    for routing, several in lines.items():
        if several:
            drawn = [(left + x / widest * _INNER_WIDTH, area.y(y)) for x, y in several]
            parts.append(line(drawn, _COLOURS[routing]))
    return parts
