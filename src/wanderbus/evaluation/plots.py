"""Plots of the table of losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wanderbus.evaluation import svg
from wanderbus.evaluation.outcome import CellSummary
from wanderbus.evaluation.remedies import Remedied

_WIDTH: Final = 760
_HEIGHT: Final = 360
_LEFT: Final = 60
_FLOOR: Final = 290
_BAR: Final = 22
_PUBLISHED, _MEASURED, _MODEL = "#9aa5b1", "#1f6feb", "#d1242f"


def loss_plot(title: str, summaries: Sequence[CellSummary]) -> str:
    """Return bars of the loss of each cell, beside the published one; whiskers from least to most, the model a line."""
    values = [value for s in summaries for value in (s.most_percent, s.published_percent or 0.0, s.model_percent)]
    top = max([*values, 1.0])

    def y(percent: float) -> float:
        return _FLOOR - percent / top * (_FLOOR - 60)

    slot = (_WIDTH - _LEFT - 10) / max(len(summaries), 1)
    parts = [svg.text(_LEFT, 22, title, size=15), *_legend()]
    for step in range(5):
        level = top * step / 4
        parts += [
            svg.rect(_LEFT, y(level), _WIDTH - _LEFT - 10, 0.6, "#d0d7de"),
            svg.text(8, y(level) + 4, f"{level:.1f} %"),
        ]
    for place, summary in enumerate(summaries):
        middle = _LEFT + slot * (place + 0.5)
        if summary.published_percent is not None:
            parts.append(_bar(middle - _BAR - 1, y(summary.published_percent), _PUBLISHED, "published"))
        parts.append(_bar(middle + 1, y(summary.mean_percent), _MEASURED, f"{summary.mean_percent:.2f} %"))
        whisker = y(summary.most_percent)
        parts.append(svg.rect(middle + _BAR / 2, whisker, 1.5, y(summary.least_percent) - whisker, "#0a3069"))
        parts.append(svg.rect(middle - _BAR - 3, y(summary.model_percent) - 1, 2 * _BAR + 6, 2, _MODEL))
        parts += [
            svg.text(middle - 22, _FLOOR + 18, str(summary.cell.buffer)),
            svg.text(middle - 22, _FLOOR + 34, f"{summary.cell.period_s} s"),
        ]
    parts.append(svg.text(_LEFT, _HEIGHT - 8, "events that the broker keeps, and seconds between changes of address"))
    return svg.document(_WIDTH, _HEIGHT, parts)


def remedies_plot(found: Sequence[Remedied]) -> str:
    """Return bars of the mean loss with each remedy, no remedy first; whiskers from least to most, the model a line."""
    top = max([*(each.most_percent for each in found), 1.0])

    def y(percent: float) -> float:
        return _FLOOR - percent / top * (_FLOOR - 60)

    slot = (_WIDTH - _LEFT - 10) / max(len(found), 1)
    parts = [svg.text(_LEFT, 22, "Loss under random outages, with a larger buffer or a limited rate", size=15)]
    for step in range(5):
        level = top * step / 4
        parts += [
            svg.rect(_LEFT, y(level), _WIDTH - _LEFT - 10, 0.6, "#d0d7de"),
            svg.text(8, y(level) + 4, f"{level:.0f} %"),
        ]
    for place, each in enumerate(found):
        middle = _LEFT + slot * (place + 0.5)
        whisker = y(each.most_percent)
        parts += [
            _bar(middle - _BAR / 2, y(each.mean_percent), _MEASURED, f"{each.mean_percent:.2f} %"),
            svg.rect(middle, whisker, 1.5, y(each.least_percent) - whisker, "#0a3069"),
            svg.rect(middle - _BAR, y(each.model_percent) - 1, 2 * _BAR, 2, _MODEL),
            svg.text(middle - 22, _FLOOR + 18, f"{each.remedy.buffer}"),
            svg.text(middle - 22, _FLOOR + 34, f"{each.remedy.rate_per_s:g}/s"),
        ]
    parts.append(
        svg.text(_LEFT, _HEIGHT - 8, "events that the broker keeps, and events published a second; red: model")
    )
    return svg.document(_WIDTH, _HEIGHT, parts)


def _legend() -> list[str]:
    parts = []
    for place, (colour, words) in enumerate(((_PUBLISHED, "published"), (_MEASURED, "measured"), (_MODEL, "model"))):
        x = _LEFT + place * 100
        parts += [svg.rect(x, 34, 12, 12, colour), svg.text(x + 18, 45, words)]
    return parts


def _bar(x: float, top: float, colour: str, title: str) -> str:
    return svg.rect(x, top, _BAR - 2, _FLOOR - top, colour, title)
