"""Plot of a mix, in the style of the paper's figure 1: a column for each number of tuples, over subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from wanderbus.evaluation.merging.methods import Method
from wanderbus.evaluation.merging.mixes import Mix
from wanderbus.evaluation.merging.summary import PUBLISHED, MergingSummary, Spread
from wanderbus.evaluation.merging.workload import SUBSCRIPTIONS
from wanderbus.plots.charts import Area, axis, legend, whisker
from wanderbus.plots.shapes import Point, document, line, rect, text

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

    value: Callable[[MergingSummary], Spread | float | None]
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


def merging_plot(mix: Mix, summaries: Sequence[MergingSummary]) -> str:
    """Return the picture of one mix; whiskers are the least and the most of the replications."""
    tuples = sorted({each.cell.tuples for each in summaries})
    colours = [*((str(each), _COLOURS[each]) for each in Method), ("published", _PUBLISHED)]
    parts = [text(_LEFT, 24, f"Merging, {mix.name}: {mix.about}", size=15), *legend(_LEFT, 38, colours, apart=110)]
    parts.append(text(_LEFT, 68, "over the number of subscriptions"))
    for row, (title, series) in enumerate(_ROWS):
        for column, count in enumerate(tuples):
            corner = _LEFT + column * _PANEL_WIDTH, _TOP + row * _PANEL_HEIGHT
            own = [each for each in summaries if each.cell.tuples == count]
            published = PUBLISHED.get(count) if series == (_PRECISION,) else None
            parts += _panel(corner, f"{count} tuples: {title}", series, own, published)
    return document(_LEFT + len(tuples) * _PANEL_WIDTH, _TOP + len(_ROWS) * _PANEL_HEIGHT, parts)


def _panel(
    corner: Point,
    title: str,
    series: Sequence[_Series],
    summaries: Sequence[MergingSummary],
    published: tuple[float, float] | None,
) -> list[str]:
    """Return one pair of axes with all lines: subscriptions, and another quantity from 0 up."""
    left, top = corner[0], corner[1] + 20
    drawn = [
        (each, method, points)
        for each in series
        for method in each.methods
        if (points := _points(each, method, summaries))
    ]
    most = max([spread.most for _, _, points in drawn for _, spread in points], default=1.0) or 1.0
    area = Area(left, left + _INNER_WIDTH, top, top + _INNER_HEIGHT, most)
    subscriptions = max(each.cell.subscriptions for each in summaries)

    def x(count: float) -> float:
        return left + count / subscriptions * _INNER_WIDTH

    parts = [text(left, top - 8, title), *axis(area, 2, lambda value: f"{value:.4g}", label_x=left - 40)]
    parts.append(text(left + _INNER_WIDTH - 24, area.floor + 14, f"{subscriptions:g}"))
    for each, method, points in drawn:
        colour = _COLOURS[method]
        parts.append(line([(x(count), area.y(spread.mean)) for count, spread in points], colour, dashed=each.dashed))
        for count, spread in points:
            label = f"{count}: {spread.mean:.4g}"
            parts.append(whisker(area, x(count) - 1, 2, spread.least, spread.most, colour, label, beyond=1))
    if published is not None and any(each.cell.subscriptions == SUBSCRIPTIONS for each in summaries):
        parts.append(_published_range(area, x(SUBSCRIPTIONS) + 5, *published))
    return parts


def _published_range(area: Area, x: float, least: float, most: float) -> str:
    height = max(area.y(least) - area.y(most), 2.0)
    return rect(x, area.y(most), 6, height, _PUBLISHED, f"published: {least:g} to {most:g} %")


def _points(series: _Series, method: Method, summaries: Sequence[MergingSummary]) -> list[tuple[int, Spread]]:
    """Return the points of a line from few subscriptions to many."""
    points = []
    for each in sorted(summaries, key=lambda each: each.cell.subscriptions):
        value = series.value(each)
        if each.cell.method is method and value is not None:
            spread = value if isinstance(value, Spread) else Spread(value, value, value)
            points.append((each.cell.subscriptions, spread))
    return points
