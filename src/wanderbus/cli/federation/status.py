"""``wanderbus federation status``: links to foreign domains, and the events that went and came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting
from wanderbus.cli.operator.listings import Columns, aligned
from wanderbus.cli.output import print_json, print_lines, run_async
from wanderbus.event_text import escaped
from wanderbus.operator_rows import DomainInfo

_COLUMNS: Final[Columns] = {
    "domain": lambda row: row.domain,
    "link": lambda row: _link(row),
    "filters": lambda row: row.filters if row.is_settled else f"{row.filters}+",
    "sent": lambda row: row.sent,
    "published": lambda row: row.published,
    "waiting": lambda row: row.waiting,
    "repeated": lambda row: row.repeated,
    "refused": lambda row: row.refused + row.not_received,
    "lost": lambda row: row.lost,
    "visitors": lambda row: escaped(row.visitors),
}


@visiting
def status(*, connection: ConnectionOptions, json: AsJson = False) -> None:
    """Show a line for each foreign domain, as the gateway that is asked sees it; above them, what is wrong.

    Needs the role of operator elsewhere than at the gateway's own computer. Exit status 1 if a domain lacks a link.
    Columns: the domain; whether this gateway has the link to it, directly or through other domains, or stands by for
    another gateway; its filters at the
    servers of the own domain, with + while some do not count yet; events that were sent to it; and of those that came
    from it, those that were published here, wait to be, had come before, were refused for good or are of a type that is
    not received, or were lost there; and the service for its users who call here. Counts begin with each start of the
    gateway.

    Example: wanderbus federation status --data-dir data
    """

    async def ask() -> list[DomainInfo]:
        async with connection.visitor() as agent:
            return [row async for row in agent.operator.foreign_domains()]

    rows = run_async(ask())
    for row in rows if json else ():
        print_json(row)
    if not json:
        print_lines("\n".join(shown(rows)))
    if any(lacks_link(row) for row in rows):
        raise typer.Exit(1)


def shown(rows: Sequence[DomainInfo]) -> list[str]:
    """Return the lines about the foreign domains of a gateway: what is wrong, and a table."""
    return [*_problems(rows), *aligned(rows, _COLUMNS)] if rows else ["this server is no gateway to other domains"]


def _link(row: DomainInfo) -> str:
    if row.is_linked:
        return f"through {', '.join(map(escaped, row.through))}" if row.through else "yes"
    return "no" if row.is_in_turn else "standby"


def _problems(rows: Sequence[DomainInfo]) -> Iterator[str]:
    for awaited in {row.awaited for row in rows if row.awaited}:
        yield f"other domains are told nothing yet: the interest of {' and '.join(awaited)} is not known here"
    for row in rows:
        if lacks_link(row):
            reason = escaped(row.trouble) or "none of its gateways has answered yet"
            yield f"{escaped(row.domain)} has no link: {reason}"
        if row.is_linked and row.order.startswith("asked"):
            yield f"no causal order with {escaped(row.domain)}: it is {row.order} alone"
        if row.unordered:
            yield f"{row.unordered} events of {escaped(row.domain)} went on without their causes, which were late"
        if row.lost:
            yield f"{escaped(row.domain)} has lost {row.lost} events before they were sent; its bounds are too low"


def lacks_link(row: DomainInfo) -> bool:
    """Return whether a gateway has no link to a foreign domain, and should have one."""
    return not row.is_linked and (row.is_in_turn or bool(row.trouble))
