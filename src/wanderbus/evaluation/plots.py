"""Plots of the table of losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wanderbus.evaluation.outcome import CellSummary
from wanderbus.evaluation.remedies import Remedied
from wanderbus.plots.charts import Area, axis, bar, legend, whisker
from wanderbus.plots.shapes import document, rect, text

_WIDTH: Final = 760
_HEIGHT: Final = 360
_LEFT: Final = 60
_FLOOR: Final = 290
_BAR: Final = 22
_PUBLISHED, _MEASURED, _MODEL, _RANGE = "#9aa5b1", "#1f6feb", "#d1242f", "#0a3069"


def loss_plot(title: str, summaries: Sequence[CellSummary]) -> str:
    """Return bars of the loss of each cell, beside the published one; whiskers from least to most, the model a line."""
    area = _area([v for s in summaries for v in (s.most_percent, s.published_percent or 0.0, s.model_percent)])
    colours = [("published", _PUBLISHED), ("measured", _MEASURED), ("model", _MODEL)]
    parts = [text(_LEFT, 22, title, size=15), *legend(_LEFT, 34, colours, apart=100)]
    parts += axis(area, 4, lambda percent: f"{percent:.1f} %", label_x=8)
    for place, each in enumerate(summaries):
        middle = area.middle(place, len(summaries))
        if each.published_percent is not None:
            parts.append(bar(area, middle - _BAR - 1, _BAR - 2, each.published_percent, _PUBLISHED, "published"))
        parts += [
            bar(area, middle + 1, _BAR - 2, each.mean_percent, _MEASURED, f"{each.mean_percent:.2f} %"),
            whisker(area, middle + _BAR / 2, 1.5, each.least_percent, each.most_percent, _RANGE),
            rect(middle - _BAR - 3, area.y(each.model_percent) - 1, 2 * _BAR + 6, 2, _MODEL),
            text(middle - 22, _FLOOR + 18, str(each.cell.buffer)),
            text(middle - 22, _FLOOR + 34, f"{each.cell.period_s} s"),
        ]
    parts.append(text(_LEFT, _HEIGHT - 8, "events that the broker keeps, and seconds between changes of address"))
    return document(_WIDTH, _HEIGHT, parts)


def remedies_plot(found: Sequence[Remedied]) -> str:
    """Return bars of the mean loss with each remedy, no remedy first; whiskers from least to most, the model a line."""
    area = _area([each.most_percent for each in found])
    parts = [text(_LEFT, 22, "Loss under random outages, with a larger buffer or a limited rate", size=15)]
    parts += axis(area, 4, lambda percent: f"{percent:.0f} %", label_x=8)
    for place, each in enumerate(found):
        middle = area.middle(place, len(found))
        parts += [
            bar(area, middle - _BAR / 2, _BAR - 2, each.mean_percent, _MEASURED, f"{each.mean_percent:.2f} %"),
            whisker(area, middle, 1.5, each.least_percent, each.most_percent, _RANGE),
            rect(middle - _BAR, area.y(each.model_percent) - 1, 2 * _BAR, 2, _MODEL),
            text(middle - 22, _FLOOR + 18, f"{each.remedy.buffer}"),
            text(middle - 22, _FLOOR + 34, f"{each.remedy.rate_per_s:g}/s"),
        ]
    parts.append(text(_LEFT, _HEIGHT - 8, "events that the broker keeps, and events published a second; red: model"))
    return document(_WIDTH, _HEIGHT, parts)


def _area(percents: Sequence[float]) -> Area:
    return Area(_LEFT, _WIDTH - 10, 60, _FLOOR, max([*percents, 1.0]))
