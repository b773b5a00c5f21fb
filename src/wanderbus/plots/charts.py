"""Parts of charts: axes, bars, whiskers and legends in an area where quantities rise from 0."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from wanderbus.plots.shapes import rect, text

TICKS_MAX: Final = 6

_GRID_COLOUR: Final = "#d0d7de"
_GRID_WIDTH: Final = 0.6
_SWATCH: Final = 12


class Area(NamedTuple):
    """Part of a picture in which the height ``most`` is at ``top``, and 0 at ``floor``."""

    left: float
    right: float
    top: float
    floor: float
    most: float

    def y(self, value: float) -> float:
        """Return the position of ``value``."""
        return self.floor - value / self.most * (self.floor - self.top)

    def middle(self, place: int, places: int) -> float:
        """Return the middle of one of equally wide places, which are numbered from 0."""
        return self.left + (place + 0.5) * (self.right - self.left) / max(places, 1)


def axis(
    area: Area, steps: int, label: Callable[[float], str], *, label_x: float, colour: str = _GRID_COLOUR
) -> list[str]:
    """Return lines across the area at equal distances, from 0 to the most, each with its label at ``label_x``."""
    parts = []
    for step in range(steps + 1):
        value = area.most * step / steps
        parts.append(rect(area.left, area.y(value), area.right - area.left, _GRID_WIDTH, colour))
        parts.append(text(label_x, area.y(value) + 4, label(value)))
    return parts


def bar(area: Area, x: float, width: float, value: float, colour: str, title: str = "") -> str:
    """Return a bar from the floor to ``value``, with its left side at ``x``."""
    return rect(x, area.y(value), width, area.floor - area.y(value), colour, title)


def whisker(
    area: Area, x: float, width: float, least: float, most: float, colour: str, title: str = "", *, beyond: float = 0.0
) -> str:
    """Return a range of values as a thin bar with its left side at ``x``, longer by ``beyond`` at each end."""
    top, bottom = area.y(most) - beyond, area.y(least) + beyond
    return rect(x, top, width, bottom - top, colour, title)


def legend(x: float, y: float, entries: Iterable[tuple[str, str]], *, apart: float) -> list[str]:
    """Return a coloured square and words for each entry (words, colour), side by side."""
    parts = []
    for place, (words, colour) in enumerate(entries):
        left = x + place * apart
        parts += [rect(left, y, _SWATCH, _SWATCH, colour), text(left + 18, y + 11, words)]
    return parts


def ticks(limit: float) -> Sequence[float]:
    """Return round numbers from 0 up to ``limit``, at most :data:`TICKS_MAX`."""
    power = 10.0**-6
    while True:
        for factor in (1, 2, 5):
            if limit / (factor * power) < TICKS_MAX - 1e-6:
                return [n * factor * power for n in range(int(limit / (factor * power) + 1e-9) + 1)]
        power *= 10.0
