"""Plots of the report: SVG in the colours of the page, of a width that a phone shows without shrinking its text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from wanderbus.pipeline.analytics.report.tables import number
from wanderbus.plots.charts import Area, axis, bar, ticks
from wanderbus.plots.shapes import figure, line, rect, text

COLOURS: Final = ("var(--one)", "var(--two)", "var(--three)", "var(--four)", "var(--five)")

WIDTH: Final = 360
_HEIGHT: Final = 190
_LEFT: Final = 58
_RIGHT: Final = 8
_LINE: Final = "var(--line)"
_CHARACTER: Final = 6.2
"""Width of a character of 11 points, to cut words that do not fit."""

_MARKS_MAX: Final = 5
"""Marks of an axis of time, whose words must not touch."""

_DAY_S: Final = 86_400
_STEPS_S: Final = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800),
    *(hours * 3_600 for hours in (1, 2, 3, 6, 12)),
    *(days * _DAY_S for days in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)),
)
"""Distances of the marks on an axis of time."""


def grouped_bars(
    groups: Mapping[str, Sequence[float | None]], names: Sequence[str], caption: str, label: Callable[[float], str]
) -> str:
    """Return bars in groups: one bar of each group for each of ``names``.

    The axis is logarithmic, a line for each power of ten; 0 and a missing value have no bar.
    """
    decades = [math.log10(value) for values in groups.values() for value in values if value]
    low = math.ceil(min(decades, default=0)) - 1
    area = Area(_LEFT, WIDTH - _RIGHT, 12, _HEIGHT - 26, max(1, math.ceil(max(decades, default=0)) - low))
    parts = axis(area, int(area.most), lambda decade: label(10 ** (low + decade)), label_x=2, colour=_LINE)
    width = (area.right - area.left) / max(len(groups), 1) / (len(names) + 1)
    for place, (group, values) in enumerate(groups.items()):
        middle = area.middle(place, len(groups))
        for number_, value in enumerate(values):
            x = middle + (number_ - len(names) / 2) * width
            title = f"{group}, {names[number_]}: {label(value or 0)}"
            height = math.log10(value) - low if value else 0
            parts.append(bar(area, x, width * 0.9, height, COLOURS[number_], title))
        parts.append(text(middle - len(group) * _CHARACTER / 2, _HEIGHT - 10, group, size=11))
    key = key_of(zip(names, COLOURS, strict=False))
    return _figure(figure(WIDTH, _HEIGHT, parts, caption), caption, key)


def ranked_bars(values: Sequence[tuple[str, float]], caption: str, label: Callable[[float], str]) -> str:
    """Return one bar from left to right for each name, the name above it."""
    most = max((value for _, value in values), default=0) or 1
    parts = []
    for place, (name, value) in enumerate(values):
        y = 4 + place * 30
        parts.append(text(2, y + 10, cut(f"{name} — {label(value)}", WIDTH - 4), size=11))
        parts.append(rect(2, y + 14, max(1.0, value / most * (WIDTH - 4)), 9, COLOURS[0], f"{name}: {label(value)}"))
    return _figure(figure(WIDTH, 8 + 30 * len(values), parts, caption), caption)


def curves(series: Mapping[str, Sequence[tuple[int, float]]], span_us: tuple[int, int], caption: str) -> str:
    """Return stepped lines over time; each point (µs, value) holds until the next one."""
    first_us, last_us = span_us
    width_us = max(last_us - first_us, 1)
    area = Area(_LEFT, WIDTH - _RIGHT, 12, _HEIGHT - 26, _top([value for own in series.values() for _, value in own]))
    parts = axis(area, 4, lambda value: number(round(value)), label_x=2, colour=_LINE)
    for place, (_, points) in enumerate(series.items()):
        steps: list[tuple[float, float]] = []
        for at_us, value in points:
            x = area.left + (min(max(at_us, first_us), last_us) - first_us) / width_us * (area.right - area.left)
            if steps:
                steps.append((x, steps[-1][1]))
            steps.append((x, area.y(value)))
        if steps:
            parts.append(line([*steps, (area.right, steps[-1][1])], COLOURS[place % len(COLOURS)]))
    parts += _time_axis(area, span_us)
    key = key_of(zip(series, COLOURS, strict=False)) if len(series) > 1 else ""
    return _figure(figure(WIDTH, _HEIGHT, parts, caption), caption, key)


def strips(spans: Mapping[str, Sequence[tuple[int, int, str]]], span_us: tuple[int, int], caption: str) -> str:
    """Return a strip for each name with its spans (from, to, words) over time."""
    first_us, last_us = span_us
    width_us = max(last_us - first_us, 1)
    area = Area(2, WIDTH - _RIGHT, 0, 0, 1)
    parts = []
    for place, (name, own) in enumerate(spans.items()):
        y = 4 + place * 32
        parts.append(text(2, y + 10, cut(name, WIDTH - 4), size=11))
        parts.append(rect(area.left, y + 14, area.right - area.left, 11, _LINE))
        for from_us, to_us, words in own:
            left, right = (
                area.left + (min(max(at_us, first_us), last_us) - first_us) / width_us * (area.right - area.left)
                for at_us in (from_us, to_us)
            )
            parts.append(rect(left, y + 14, max(right - left, 1.0), 11, COLOURS[1], words))
    floor = 8 + 32 * len(spans)
    parts += _time_axis(area._replace(floor=floor), span_us)
    return _figure(figure(WIDTH, floor + 26, parts, caption), caption)


def key_of(entries: Iterable[tuple[str, str]]) -> str:
    """Return the names of the colours."""
    return "".join(
        f"<span class='key'><b style='color:{colour}'>■</b>\u2002{escape(name)}</span> " for name, colour in entries
    )


def cut(words: str, width: float) -> str:
    """Return words, shortened to a width."""
    most = int(width / _CHARACTER)
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _top(values: Sequence[float]) -> float:
    """Return a round height above all values."""
    most = max(values, default=0) or 1
    marks = ticks(most)
    step = marks[1] if len(marks) > 1 else most
    return float(-(-most // (4 * step)) * 4 * step) if step else most


def _time_axis(area: Area, span_us: tuple[int, int]) -> list[str]:
    """Return marks at round times of the clock, in UTC."""
    first_s, last_s = (at_us / 1e6 for at_us in span_us)
    seconds = max(last_s - first_s, 1e-6)
    step_s = next((each for each in _STEPS_S if seconds / each < _MARKS_MAX), _STEPS_S[-1])
    form = "%d %b" if step_s >= _DAY_S else "%H:%M" if step_s >= 60 else "%H:%M:%S"
    parts = []
    for mark in range(math.ceil(first_s / step_s), math.floor(last_s / step_s) + 1):
        x = area.left + (mark * step_s - first_s) / seconds * (area.right - area.left)
        words = datetime.fromtimestamp(mark * step_s, UTC).strftime(form)
        left = min(max(x - len(words) * _CHARACTER / 2, 0), WIDTH - len(words) * _CHARACTER)
        parts += [rect(x, area.floor, 0.8, 4, "var(--ink)"), text(left, area.floor + 17, words, size=11)]
    return parts


def _figure(svg: str, caption: str, key: str = "") -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)} {key}</figcaption></figure>"
