"""Plot of the paper's figure 8: the sum over the number of consumers, a curve for each configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wanderbus.evaluation import svg
from wanderbus.evaluation.overhead.experiment import Configuration
from wanderbus.evaluation.overhead.summary import Summary

_COLOURS: Final[Mapping[Configuration, str]] = {
    Configuration.ECI: "#6e7781",
    Configuration.MOBILE: "#1f6feb",
    Configuration.RELAY_BESIDE: "#1a7f37",
    Configuration.RELAY_APART: "#d1242f",
}
_WIDTH, _HEIGHT = 760, 400
_LEFT, _RIGHT, _TOP, _FLOOR = 60, 740, 80, 350


def overhead_plot(title: str, summaries: Sequence[Summary]) -> str:
    """Return the plot; whiskers are the least and the greatest of the consumers' sums."""
    counts = sorted({each.consumers for each in summaries})
    most_s = max((each.most_s for each in summaries), default=1.0)

    def at(consumers: int, sum_s: float) -> tuple[float, float]:
        x = _LEFT + (counts.index(consumers) + 0.5) * (_RIGHT - _LEFT) / len(counts)
        return x, _FLOOR - sum_s / most_s * (_FLOOR - _TOP)

    parts = [svg.text(_LEFT, 24, title, size=15)]
    for quarter in range(5):
        level_s = most_s * quarter / 4
        y = _FLOOR - quarter * (_FLOOR - _TOP) / 4
        parts += [svg.rect(_LEFT, y, _RIGHT - _LEFT, 0.6, "#d0d7de"), svg.text(10, y + 4, f"{level_s:.1f} s")]
    for place, configuration in enumerate(Configuration):
        left = _LEFT + place * 170
        parts += [svg.rect(left, 40, 12, 12, _COLOURS[configuration]), svg.text(left + 18, 51, configuration.about)]
    for configuration, colour in _COLOURS.items():
        own = [each for each in summaries if each.configuration is configuration]
        parts.append(svg.line([at(each.consumers, each.sum_s) for each in own], colour))
        for each in own:
            (x, top), (_, floor) = at(each.consumers, each.most_s), at(each.consumers, each.least_s)
            label = f"{configuration.about}, {each.consumers} consumers: {each.sum_s:.3f} s"
            parts.append(svg.rect(x - 1.5, top - 1.5, 3, floor - top + 3, colour, label))
    parts += [svg.text(at(count, 0)[0] - 4, _FLOOR + 18, str(count)) for count in counts]
    parts.append(svg.text(_LEFT, _HEIGHT - 12, "number of consumers; sum of arrival less publication of a consumer"))
    return svg.document(_WIDTH, _HEIGHT, parts)
