"""The plots of a report, as SVG to put inline: no file, no script, no font, readable on light and dark (SPEC T-08).

Ink is drawn in one colour and then replaced by ``currentColor``, so that the page's own text colour applies.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from wanderbus.pipeline.evidence import Away, Move, Taking

INK: Final = "#0f1e2d"
"""Stands for the page's text colour until :func:`_svg` has replaced it."""
BLUE: Final = "#3d85c6"
ORANGE: Final = "#e08a2e"
GREY: Final = "#8a8f98"

POINTS_MAX: Final = 2_000
"""Points of one line; beyond it every n-th is drawn, the last always."""

_STYLE: Final[dict[Any, Any]] = {
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "wanderbus",
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}
_WIDTH_IN = 8.0

_FIXED_SIZE = re.compile(r' (?:width|height)="[^"]*"')
_FONT_FAMILY = re.compile(r"font-family: [^;\"]*;? ?")
_NUMBERED_ID = re.compile(r' id="[A-Za-z0-9.]+_\d+"')
"""Names such as ``axes_1``, which several plots on a page would share and nothing refers to."""


def delivery_plot(
    takings: Sequence[Taking], moves: Sequence[Move], away: Sequence[Away], expected: int, span_us: tuple[int, int]
) -> str:
    """Draw how many different rows one traveller had over the run, its times away shaded, its moves marked.

    ``span_us`` is the whole run, the same for every traveller, so that the plots line up under one another.
    """
    start_us, end_us = span_us

    def seconds(at_us: int) -> float:
        return (at_us - start_us) / 1e6

    with rc_context(_STYLE):
        figure, axes = _figure(1.7)
        for period in away:
            axes.axvspan(seconds(period.from_us), seconds(period.to_us), color=GREY, alpha=0.28, linewidth=0)
        for move in moves:
            axes.axvline(seconds(move.moved_us), color=ORANGE, linewidth=1.0, alpha=0.9)
        if expected:
            axes.axhline(expected, color=INK, linewidth=0.7, linestyle=(0, (2, 3)), alpha=0.6)
        times, counts = _thinned(_first_times(takings))
        axes.step([seconds(at_us) for at_us in times], counts, where="post", color=BLUE, linewidth=1.8)
        axes.set_xlim(0, max(seconds(end_us), 1e-3))
        axes.set_ylim(0, max(expected, len({taking.row for taking in takings}), 1) * 1.08)
        axes.set_xlabel("seconds since the run began")
        axes.set_ylabel("delivered")
        return _svg(figure, "Notifications delivered over time")


def healing_plot(moves: Sequence[Move]) -> str:
    """Draw how the times from a move to the next sign of life are distributed; empty if no move healed."""
    healing_ms = [(move.healed_us - move.moved_us) / 1e3 for move in moves if move.healed_us is not None]
    if not healing_ms:
        return ""
    with rc_context(_STYLE):
        figure, axes = _figure(2.2)
        axes.hist(healing_ms, bins=min(40, max(8, len(healing_ms) // 3)), color=ORANGE, rwidth=0.9)
        axes.set_xlim(left=0)
        axes.set_xlabel("milliseconds from a change of address until healed")
        axes.set_ylabel("moves")
        return _svg(figure, "Distribution of healing times")


def latency_plot(buckets: Sequence[Mapping[str, Any]]) -> str:
    """Draw the deliveries per bucket of latency, on a logarithmic axis; empty if there is no bucket."""
    if not buckets:
        return ""
    with rc_context(_STYLE):
        figure, axes = _figure(2.2)
        edges = [(max(bucket["above_ms"], bucket["up_to_ms"] / 2), bucket["up_to_ms"]) for bucket in buckets]
        axes.bar(
            [low for low, _ in edges],
            [bucket["deliveries"] for bucket in buckets],
            width=[(high - low) * 0.92 for low, high in edges],
            align="edge",
            color=BLUE,
        )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.set_xlabel("milliseconds from publication to delivery, times away included")
        axes.set_ylabel("deliveries")
        return _svg(figure, "Distribution of latency")


def _figure(height_in: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    return figure, axes


def _first_times(takings: Sequence[Taking]) -> list[int]:
    first: dict[int, int] = {}
    for taking in takings:
        first[taking.row] = min(taking.at_us, first.get(taking.row, taking.at_us))
    return sorted(first.values())


def _thinned(times: list[int]) -> tuple[list[int], list[int]]:
    """Return times and running counts, with at most :data:`POINTS_MAX` points and the last one kept."""
    stride = max(1, -(-len(times) // POINTS_MAX))
    places = sorted({*range(0, len(times), stride), *([len(times) - 1] if times else [])})
    return [times[place] for place in places], [place + 1 for place in places]


def _svg(figure: Figure, label: str) -> str:
    """Return the figure as an ``svg`` element that takes the page's colour, width and font."""
    text = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(text, format="svg", transparent=True, metadata=no_metadata)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = _FONT_FAMILY.sub("", _NUMBERED_ID.sub("", svg))
    head, rest = svg.split(">", 1)
    return _FIXED_SIZE.sub("", head).replace("<svg", f'<svg role="img" aria-label="{label}"') + ">" + rest
