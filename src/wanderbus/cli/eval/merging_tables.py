"""Terminal tables of ``wanderbus eval merging``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from wanderbus.evaluation.merging.growth import Growth
from wanderbus.evaluation.merging.measuring import Weight
from wanderbus.evaluation.merging.methods import Method
from wanderbus.evaluation.merging.mixes import Mix
from wanderbus.evaluation.merging.summary import SHOWN, SOURCE, MergingSummary, Spread
from wanderbus.evaluation.merging.workload import SUBSCRIPTIONS

_PUBLISHED: Final = f"published: of {SUBSCRIPTIONS} subscriptions; {SOURCE}"


def sizes_table(mix: Mix, summaries: Sequence[MergingSummary]) -> Table:
    """Return the number of merged filters by number of subscriptions of ``mix``, and the final precision."""
    counts = sorted({each.cell.subscriptions for each in summaries})
    table = _table(
        f"{mix.name}: {mix.about}\nmerged filters by number of subscriptions",
        "for the most subscriptions, in %: filters saved, precision (min-max), recall\n" + _PUBLISHED,
        *("tuples", "method", *map(str, counts), "fewer", "precision", "publ.", "recall"),
    )
    for row in _rows(summaries):
        last = row[-1]
        table.add_row(
            *_head(last),
            *(f"{each.filters:.0f}" for each in row),
            f"{last.reduction_percent:.1f}",
            _spread(last.precision_percent),
            SHOWN[last.cell.tuples] if last.published else "",
            "" if last.recall_percent is None else f"{last.recall_percent:g}",
            end_section=last.cell.method is Method.ADAPTIVE,
        )
    return table


def costs_table(mix: Mix, summaries: Sequence[MergingSummary]) -> Table:
    """Return bytes and times for the largest set of subscriptions of ``mix``."""
    table = _table(
        f"{mix.name}: costs of the most subscriptions",
        "pred.: comparisons in all filters; kB of XML, of each filter alone and of all as one stream, with gzip, and\n"
        "compressed size in %; upd.: subscriptions that changed the merged set/filters added or removed;\n"
        "match: to find all filters that an event matches; times of one processor",
        *("tuples", "method", "pred.", "each", "gzip", "%", "stream", "gzip", "%", "upd.", "match us", "merge ms"),
    )
    for row in _rows(summaries):
        last = row[-1]
        table.add_row(
            *_head(last),
            f"{last.predicates:.0f}",
            *_weight(last.xml_each),
            *_weight(last.xml_stream),
            f"{last.updates:.0f}/{last.propagated:.0f}",
            f"{last.match_us:.0f}",
            f"{last.merge_ms:.0f}",
            end_section=last.cell.method is Method.ADAPTIVE,
        )
    return table


def mixes_table(summaries: Sequence[MergingSummary]) -> Table:
    """Return the precision of imperfect merging for all mixes, and the published one."""
    most = max(each.cell.subscriptions for each in summaries)
    shown = [each for each in summaries if each.cell.method is Method.IMPERFECT and each.cell.subscriptions == most]
    tuples = sorted({each.cell.tuples for each in shown})
    table = _table(
        f"Precision of imperfect merging in %, {most} subscriptions: mean (min-max)",
        _PUBLISHED,
        *("mix", *(f"{each} tuples" for each in tuples)),
    )
    table.columns[0].justify = "left"
    if most == SUBSCRIPTIONS:
        table.add_row("published", *(SHOWN.get(each, "") for each in tuples), end_section=True)
    for mix in dict.fromkeys(each.cell.mix for each in shown):
        cells = {each.cell.tuples: each.precision_percent for each in shown if each.cell.mix == mix}
        table.add_row(mix, *(_spread(cells[each]) for each in tuples))
    return table


def growth_table(growths: Sequence[Growth]) -> Table:
    """Return the time of merging by number of filters."""
    sizes = growths[0].sizes
    table = _table(
        "ms of one processor by number of merged filters, one-sided, 3 tuples",
        "slope: of log(time) over log(size)",
        "method",
        *map(str, sizes),
        "slope",
    )
    for each in growths:
        table.add_row(each.method, *(f"{1e3 * seconds:.0f}" for seconds in each.merge_s), f"{each.slope:.2f}")
    return table


def _rows(summaries: Iterable[MergingSummary]) -> list[list[MergingSummary]]:
    """Return the summaries grouped by tuples and method, each group sorted by number of subscriptions."""
    rows: dict[tuple[int, Method], list[MergingSummary]] = {}
    for each in sorted(
        summaries, key=lambda each: (each.cell.tuples, list(Method).index(each.cell.method), each.cell.subscriptions)
    ):
        rows.setdefault((each.cell.tuples, each.cell.method), []).append(each)
    return list(rows.values())


def _table(title: str, caption: str, *headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=0, title=title, caption=caption)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _head(summary: MergingSummary) -> tuple[str, str]:
    return str(summary.cell.tuples), summary.cell.method


def _spread(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread.mean:.1f} ({spread.least:.3g}-{spread.most:.3g})"


def _weight(weight: Weight) -> tuple[str, str, str]:
    return f"{weight.plain_bytes / 1e3:.1f}", f"{weight.gzip_bytes / 1e3:.1f}", f"{weight.percent:.0f}"
