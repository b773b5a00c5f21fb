"""Plots of the comparison: updates over saturation, and costs over the number of servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from wanderbus.evaluation.handover.experiment import Movement, Routing
from wanderbus.evaluation.handover.summary import HandoverSummary, diagonal
from wanderbus.plots.panels import panels
from wanderbus.plots.shapes import Point

_COLOURS: Final[Mapping[Routing, str]] = {
    Routing.RENDEZVOUS: "#1f6feb",
    Routing.UNCOVERED: "#6e7781",
    Routing.TREE: "#1a7f37",
    Routing.FLOODING: "#d1242f",
}

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
    lines = {
        routing: [(each.cell.source_percent, each.updates) for each in several if each.updates is not None]
        for routing, several in of_each.items()
    }
    return panels("Handover and covering", _COLOURS, [("updates of a handover, over saturation in %", lines)])


def servers_plot(movement: Movement, summaries: Sequence[HandoverSummary]) -> str:
    """Return lines of all costs over the number of servers, with one movement."""
    found: list[tuple[str, Mapping[Routing, Sequence[Point]]]] = []
    for title, value in _OVER_SERVERS:
        lines: dict[Routing, list[Point]] = {routing: [] for routing in Routing}
        for each in summaries:
            if each.cell.movement is movement and (y := value(each)) is not None:
                lines[each.cell.routing].append((each.cell.servers, y))
        found.append((title, lines))
    return panels(f"Handover, movement: {movement}; over the number of servers", _COLOURS, found)
