"""Terminal tables of ``wanderbus eval overhead``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from wanderbus.evaluation.overhead.experiment import Experiment
from wanderbus.evaluation.overhead.summary import Step, Summary


def sums_table(experiment: Experiment, summaries: Sequence[Summary]) -> Table:
    """Return the consumers' sums of latencies, by number of consumers and configuration."""
    table = Table(
        box=SIMPLE_HEAD,
        collapse_padding=True,
        title=f"{experiment.rate_per_s:g} events/s, {experiment.events} a sample, "
        f"runs: {max((each.runs for each in summaries), default=0)}",
        caption="sum and average of a consumer's latencies (arrival minus publication)",
    )
    for heading in ("consumers", "configuration", "sum s", "average ms", "p50", "p95", "max"):
        table.add_column(heading, justify="left" if heading == "configuration" else "right", no_wrap=True)
    for each in summaries:
        table.add_row(
            str(each.consumers),
            f"{each.configuration} {each.configuration.about}",
            f"{each.sum_s:.3f}",
            *(f"{ms:.2f}" for ms in (each.mean_ms, each.p50_ms, each.p95_ms, each.max_ms)),
            end_section=each.configuration == summaries[-1].configuration,
        )
    return table


def steps_table(differences: Sequence[Step]) -> Table:
    """Return the extra latency of each configuration over the previous one."""
    table = Table(box=SIMPLE_HEAD, title="slower by, ms an event", caption="mean of the rounds, and its standard error")
    kinds = list(dict.fromkeys((each.lower, each.upper) for each in differences))
    for heading in ("consumers", *(f"{lower} to {upper}" for lower, upper in kinds)):
        table.add_column(heading, justify="right", no_wrap=True)
    for consumers in dict.fromkeys(each.consumers for each in differences):
        own = {(each.lower, each.upper): each for each in differences if each.consumers == consumers}
        table.add_row(str(consumers), *(f"{own[kind].mean_ms:+.3f} ± {own[kind].error_ms:.3f}" for kind in kinds))
    return table
