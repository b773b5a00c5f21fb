"""Terminal tables of ``wanderbus eval handover``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from wanderbus.evaluation.handover.counted_cases import CountedCase
from wanderbus.evaluation.handover.experiment import Movement, Routing
from wanderbus.evaluation.handover.summary import Durations, HandoverSummary


def cases_table(cases: Sequence[CountedCase]) -> Table:
    """Return the messages of the four cases, with real servers and in the model."""
    table = _table(
        "Messages of a handover in the four cases of covering; three servers, one subscription",
        "updates: messages to the channel; others: between source, target and all servers",
        *("target", "source", "updates", "others", "model: updates", "others"),
    )
    for each in cases:
        table.add_row(
            "covers it" if each.target_has_it else "has nothing",
            "needs it still" if each.source_needs_it else "needs nothing",
            *map(str, (each.servers.updates, each.servers.control, each.model.updates, each.model.control)),
        )
    return table


def saturation_table(servers: int, summaries: Sequence[HandoverSummary]) -> Table:
    """Return the updates of a handover, by saturation at the source, and at the target."""
    own = [each for each in summaries if each.cell.movement is Movement.ONCE and each.cell.servers == servers]
    targets = sorted({each.cell.target_percent for each in own})
    table = _table(
        f"Updates of a handover by saturation, {servers} servers",
        "columns: saturation at the target, in %; flooding has no updates",
        *("routing", "source %", *map(str, targets)),
    )
    for routing in (Routing.RENDEZVOUS, Routing.UNCOVERED, Routing.TREE):
        rows = [each for each in own if each.cell.routing is routing]
        for source in sorted({each.cell.source_percent for each in rows}):
            found = {each.cell.target_percent: each.updates for each in rows if each.cell.source_percent == source}
            table.add_row(str(routing), str(source), *(_number(found.get(each)) for each in targets))
    return table


def costs_table(movement: Movement, summaries: Sequence[HandoverSummary]) -> Table:
    """Return all costs of a handover with one movement, where source and target have one saturation."""
    own = [
        each
        for each in summaries
        if each.cell.movement is movement and each.cell.source_percent == each.cell.target_percent
    ]
    table = _table(
        f"Costs of a handover, movement: {movement}",
        "sat.: saturation in %; other: messages besides updates\n"
        "whole: until the session is served again; pause: without a server; both p50/max in ms\n"
        "event: messages of an event; bad: events lost, repeated or out of order",
        *("servers", "sat.", "routing", "updates", "other", "kB", "whole", "pause", "event", "bad"),
    )
    for each in own:
        cell = each.cell
        table.add_row(
            *(str(cell.servers), str(cell.source_percent), str(cell.routing)),
            *(_number(each.updates), _number(each.other_messages), _number(each.kilobytes)),
            *(_times(each.whole), _times(each.pause), _number(each.event_messages)),
            str(each.lost + each.repeated + each.out_of_order),
        )
    return table


def groups_table(summaries: Sequence[HandoverSummary]) -> Table:
    """Return the costs of the move of a channel group."""
    table = _table(
        "Costs of the move of a channel group to another leader",
        "rows: subscriptions of servers that the new leader gets; pause: without a leader, p50/max in ms",
        *("movement", "servers", "routing", "moves", "messages", "kB", "rows", "pause"),
    )
    for each in summaries:
        if each.group_moves:
            cell = each.cell
            table.add_row(
                *(str(cell.movement), str(cell.servers), str(cell.routing), str(each.group_moves)),
                *map(_number, (each.group_messages, each.group_kilobytes, each.group_rows)),
                _times(each.group_pause),
            )
    return table


def _table(title: str, caption: str, *headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, title=title, caption=caption)
    for heading in headings:
        is_name = heading in ("routing", "movement", "target", "source")
        table.add_column(heading, justify="left" if is_name else "right", no_wrap=True)
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _times(times: Durations | None) -> str:
    return "" if times is None else f"{times.p50_ms:.0f}/{times.max_ms:.0f}"
