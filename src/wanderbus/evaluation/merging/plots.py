"""Plot of a mix, in the style of the paper's figure 1: a column for each number of tuples, over subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from wanderbus.evaluation import svg
from wanderbus.evaluation.merging.methods import Method
from wanderbus.evaluation.merging.mixes import Mix
from wanderbus.evaluation.merging.summary import PUBLISHED, Spread, Summary
from wanderbus.evaluation.merging.workload import SUBSCRIPTIONS

_COLOURS: Final[Mapping[Method, str]] = {
    Method.UNMERGED: "#6e7781",
    Method.PERFECT: "#1f6feb",
    Method.IMPERFECT: "#d1242f",
    Method.ADAPTIVE: "#1a7f37",
}
_PUBLISHED: Final = "#bf8700"
_LEFT, _TOP = 50, 84
_PANEL_WIDTH, _PANEL_HEIGHT = 260, 170
_INNER_WIDTH, _INNER_HEIGHT = 190, 110


class _Series(msgspec.Struct, frozen=True):
    """One line of a panel."""

    value: Callable[[Summary], Spread | float | None]
    dashed: bool = False
    methods: tuple[Method, ...] = tuple(Method)


_FILTERS: Final = _Series(lambda each: each.filters)
_PRECISION: Final = _Series(lambda each: each.precision_percent, methods=(Method.IMPERFECT, Method.ADAPTIVE))
_EACH: Final = _Series(lambda each: each.xml_each.gzip_bytes / 1_000, dashed=True)
_STREAM: Final = _Series(lambda each: each.xml_stream.gzip_bytes / 1_000)
_MATCH: Final = _Series(lambda each: each.match_us)

_ROWS: Final = (
    ("filters", (_FILTERS,)),
    ("precision, %", (_PRECISION,)),
    ("gzip, kB: stream, and dashed each alone", (_STREAM, _EACH)),
    ("matching, us", (_MATCH,)),
)


def merging_plot(mix: Mix, summaries: Sequence[Summary]) -> str:
    """Return the picture of one mix; whiskers are the least and the most of the replications."""
    tuples = sorted({each.cell.tuples for each in summaries})
    parts = [svg.text(_LEFT, 24, f"Merging, {mix.name}: {mix.about}", size=15), *_legend()]
    for row, (title, series) in enumerate(_ROWS):
        for column, count in enumerate(tuples):
            panel = _Panel(_LEFT + column * _PANEL_WIDTH, _TOP + row * _PANEL_HEIGHT)
            own = [each for each in summaries if each.cell.tuples == count]
            parts += panel.draw(f"{count} tuples: {title}", series, own)
            if series == (_PRECISION,) and count in PUBLISHED:
                parts.append(panel.published(*PUBLISHED[count], own))
    return svg.document(_LEFT + len(tuples) * _PANEL_WIDTH, _TOP + len(_ROWS) * _PANEL_HEIGHT, parts)


class _Panel:
    """One pair of axes: subscriptions, and another quantity from 0 up."""

    def __init__(self, x: float, y: float) -> None:
        self._x = x
        self._floor = y + 20 + _INNER_HEIGHT
        self._top = self._most = 1.0

    def draw(self, title: str, series: Sequence[_Series], summaries: Sequence[Summary]) -> list[str]:
        """Return the axes and all lines."""
        drawn = [
            (each, method, points)
            for each in series
            for method in each.methods
            if (points := _points(each, method, summaries))
        ]
        spreads = [spread for _, _, points in drawn for _, spread in points]
        self._top = max([spread.most for spread in spreads], default=1.0) or 1.0
        self._most = max(each.cell.subscriptions for each in summaries)
        parts = [svg.text(self._x, self._floor - _INNER_HEIGHT - 8, title), *self._axes()]
        for each, method, points in drawn:
            parts += self._line(points, _COLOURS[method], dashed=each.dashed)
        return parts

    def published(self, least: float, most: float, summaries: Sequence[Summary]) -> str:
        """Return the published range as a bar, or nothing if it is outside the figure."""
        if not any(each.cell.subscriptions == SUBSCRIPTIONS for each in summaries):
            return ""
        (x, top), (_, floor) = self._at(SUBSCRIPTIONS, most), self._at(SUBSCRIPTIONS, least)
        return svg.rect(x + 5, top, 6, max(floor - top, 2.0), _PUBLISHED, f"published: {least:g} to {most:g} %")

    def _axes(self) -> list[str]:
        parts = []
        for level in (0.0, self._top / 2, self._top):
            _, y = self._at(0, level)
            parts += [svg.rect(self._x, y, _INNER_WIDTH, 0.6, "#d0d7de"), svg.text(self._x - 40, y + 4, f"{level:.4g}")]
        return [*parts, svg.text(self._x + _INNER_WIDTH - 24, self._floor + 14, f"{self._most:g}")]

    def _line(self, points: Sequence[tuple[int, Spread]], colour: str, *, dashed: bool) -> list[str]:
        parts = [svg.line([self._at(count, spread.mean) for count, spread in points], colour, dashed=dashed)]
        for count, spread in points:
            (x, top), (_, floor) = self._at(count, spread.most), self._at(count, spread.least)
            parts.append(svg.rect(x - 1, top - 1, 2, floor - top + 2, colour, f"{count}: {spread.mean:.4g}"))
        return parts

    def _at(self, subscriptions: float, value: float) -> tuple[float, float]:
        return (
            self._x + subscriptions / self._most * _INNER_WIDTH,
            self._floor - value / self._top * _INNER_HEIGHT,
        )


def _points(series: _Series, method: Method, summaries: Sequence[Summary]) -> list[tuple[int, Spread]]:
    """Return the points of a line from few subscriptions to many."""
    points = []
    for each in sorted(summaries, key=lambda each: each.cell.subscriptions):
        value = series.value(each)
        if each.cell.method is method and value is not None:
            spread = value if isinstance(value, Spread) else Spread(value, value, value)
            points.append((each.cell.subscriptions, spread))
    return points


def _legend() -> list[str]:
    parts = []
    for place, (words, colour) in enumerate(
        [*((str(each), _COLOURS[each]) for each in Method), ("published", _PUBLISHED)]
    ):
        x = _LEFT + place * 110
        parts += [svg.rect(x, 38, 12, 12, colour), svg.text(x + 18, 49, words)]
    return [*parts, svg.text(_LEFT, 68, "over the number of subscriptions")]
