"""Plot of the paper's figure 8: the sum over the number of consumers, a curve for each configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wanderbus.evaluation.overhead.experiment import Configuration
from wanderbus.evaluation.overhead.summary import OverheadSummary
from wanderbus.plots.charts import Area, axis, legend, whisker
from wanderbus.plots.shapes import document, line, text

_COLOURS: Final[Mapping[Configuration, str]] = {
    Configuration.ECI: "#6e7781",
    Configuration.MOBILE: "#1f6feb",
    Configuration.RELAY_BESIDE: "#1a7f37",
    Configuration.RELAY_APART: "#d1242f",
}
_WIDTH, _HEIGHT = 760, 400
_LEFT, _RIGHT, _TOP, _FLOOR = 60, 740, 80, 350


def overhead_plot(title: str, summaries: Sequence[OverheadSummary]) -> str:
    """Return the plot; whiskers are the least and the greatest of the consumers' sums."""
    counts = sorted({each.consumers for each in summaries})
    area = Area(_LEFT, _RIGHT, _TOP, _FLOOR, max((each.most_s for each in summaries), default=1.0))
    middles = {count: area.middle(place, len(counts)) for place, count in enumerate(counts)}
    parts = [text(_LEFT, 24, title, size=15), *axis(area, 4, lambda value_s: f"{value_s:.1f} s", label_x=10)]
    parts += legend(_LEFT, 40, [(each.about, _COLOURS[each]) for each in Configuration], apart=170)
    for configuration, colour in _COLOURS.items():
        own = [each for each in summaries if each.configuration is configuration]
        parts.append(line([(middles[each.consumers], area.y(each.sum_s)) for each in own], colour))
        for each in own:
            label = f"{configuration.about}, {each.consumers} consumers: {each.sum_s:.3f} s"
            x = middles[each.consumers] - 1.5
            parts.append(whisker(area, x, 3, each.least_s, each.most_s, colour, label, beyond=1.5))
    parts += [text(middle - 4, _FLOOR + 18, str(count)) for count, middle in middles.items()]
    parts.append(text(_LEFT, _HEIGHT - 12, "number of consumers; sum of arrival less publication of a consumer"))
    return document(_WIDTH, _HEIGHT, parts)
