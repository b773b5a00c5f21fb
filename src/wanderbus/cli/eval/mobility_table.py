"""Terminal table of ``wanderbus eval mobility``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from wanderbus.evaluation.grid import APART, SOURCE, Experiment, Outage
from wanderbus.evaluation.outcome import CellSummary, Times


def mobility_table(form: str, experiment: Experiment, summaries: Sequence[CellSummary]) -> Table:
    """Return the cells of one experiment, each with the published loss and the loss of the model."""
    away = {
        Outage.IMPOSED: f"away for {experiment.outage_s:g} s at each change",
        Outage.OURS: "new address usable at once",
        Outage.RANDOM: f"away for {0.2 * experiment.outage_s:.2g} to {1.8 * experiment.outage_s:.3g} s at each change",
    }[experiment.outage]
    compared = any(each.published_percent is not None for each in summaries)
    runs = max((each.runs for each in summaries), default=0)
    table = Table(
        box=SIMPLE_HEAD,
        collapse_padding=True,
        title=f"Loss in %, {form}, {away}\n"
        f"{experiment.rate_per_s:g} events/s, {experiment.events} a sample, runs: {runs}",
        caption="cell: events kept/seconds between changes; outage, healing: p50/max"
        + (f"\npublished: {SOURCE}\n* does not fit its neighbours, no goal" if compared else ""),
    )
    for heading in ("cell", "publ.", "model", "mean±sd", "least-most", "diff.", "outage s", "heal ms"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in summaries:
        table.add_row(
            f"{each.cell}{'*' if compared and each.cell == APART else ''}",
            _percent(each.published_percent),
            _percent(each.model_percent),
            f"{each.mean_percent:.2f}±{each.deviation_percent:.2f}",
            f"{each.least_percent:.2f}-{each.most_percent:.2f}",
            "" if each.difference_points is None else f"{each.difference_points:+.2f}",
            _times(each.outages, "{:.2f}/{:.2f}", 1),
            _times(each.healings, "{:.0f}/{:.0f}", 1_000),
        )
    return table


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _times(times: Times | None, form: str, scale: float) -> str:
    return "" if times is None else form.format(times.p50_s * scale, times.max_s * scale)
