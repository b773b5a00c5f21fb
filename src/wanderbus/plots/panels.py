"""Panels: small pairs of axes side by side, each with the lines of some kinds of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from wanderbus.plots.charts import Area, axis, legend
from wanderbus.plots.shapes import Point, document, line, text

_LEFT, _TOP = 60, 80
_WIDTH, _HEIGHT = 340, 220
_INNER_WIDTH, _INNER_HEIGHT = 250, 150
_COLUMNS: Final = 2

Kind = TypeVar("Kind")


def panels(
    title: str, colours: Mapping[Kind, str], several: Sequence[tuple[str, Mapping[Kind, Sequence[Point]]]]
) -> str:
    """Return a picture with a legend of the kinds, and a panel with a title for the lines of each quantity."""
    parts = [text(_LEFT, 24, title, size=15)]
    parts += legend(_LEFT, 38, [(str(each), colour) for each, colour in colours.items()], apart=110)
    for place, (name, lines) in enumerate(several):
        corner = _LEFT + place % _COLUMNS * _WIDTH, _TOP + place // _COLUMNS * _HEIGHT
        parts += _panel(corner, name, lines, colours)
    return document(_LEFT + _COLUMNS * _WIDTH, _TOP + -(-len(several) // _COLUMNS) * _HEIGHT, parts)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def _panel(corner: Point, title: str, lines: Mapping[Kind, Sequence[Point]], colours: Mapping[Kind, str]) -> list[str]:
    """Return one pair of axes, both from 0 up, with the line of each kind."""
    left, top = corner[0], corner[1] + 20
    points = [point for several in lines.values() for point in several]
    widest = max([x for x, _ in points], default=1.0) or 1.0
    area = Area(left, left + _INNER_WIDTH, top, top + _INNER_HEIGHT, max([y for _, y in points], default=1.0) or 1.0)
    parts = [text(left, top - 8, title), *axis(area, 2, _number, label_x=left - 44)]
    parts.append(text(left + _INNER_WIDTH - 24, area.floor + 14, f"{widest:g}"))
    for kind, several in lines.items():
        if several:
            parts.append(line([(left + x / widest * _INNER_WIDTH, area.y(y)) for x, y in several], colours[kind]))
    return parts
