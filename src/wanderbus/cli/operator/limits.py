"""``wanderbus limits``: users and addresses that reached a limit of the server: which, how often and why."""

from __future__ import annotations

import fnmatch
from collections.abc import AsyncIterator
from typing import Annotated, Final

import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting
from wanderbus.cli.operator.listings import Columns, Watch, aligned, show, span
from wanderbus.client.operator import Operator
from wanderbus.operator_rows import BoundInfo, LimitInfo

NOBODY: Final = "Nobody is being limited."

Whom = Annotated[
    str | None,
    typer.Argument(
        metavar="PARTY", help="Only this user or address, or those of a pattern with * and ?.", show_default=False
    ),
]


@visiting
def limits(
    party: Whom = None,
    *,
    connection: ConnectionOptions,
    limit: Annotated[str | None, typer.Option(help="Only this limit, or those of a pattern with * and ?.")] = None,
    settings: Annotated[
        bool, typer.Option("--settings", help="List every limit and its value instead, reached or not.")
    ] = False,
    watch: Watch = None,
    json: AsJson = False,
) -> None:
    """List users and addresses that reached a limit: which limit, how often, since when and why.

    Lists only you; with the role of operator everybody. The server counts from its start.

    Example: wanderbus limits --limit "flood.*" --user sip:olga@localhost

    Example: wanderbus limits "192.0.2.*" --json --user sip:olga@localhost

    Example: wanderbus limits --settings --user sip:olga@localhost
    """

    async def reached(operator: Operator) -> AsyncIterator[LimitInfo]:
        async for row in operator.limits():
            if _matches(row.limit, limit) and _is_party(row.party, party):
                yield row

    async def bounds(operator: Operator) -> AsyncIterator[BoundInfo]:
        async for row in operator.bounds():
            if _matches(row.limit, limit):
                yield row

    if settings:
        show(connection, bounds, _bounds_table, watch, json)
    else:
        show(connection, reached, _table, watch, json)


def _is_party(party: str, pattern: str | None) -> bool:
    return _matches(party, pattern) or _matches(party.removeprefix("sip:"), pattern)


def _matches(text: str, pattern: str | None) -> bool:
    return pattern is None or fnmatch.fnmatchcase(text, pattern)


def _table(rows: list[LimitInfo]) -> str:
    """Return the rows, the latest first, and a summary line."""
    if not rows:
        return NOBODY
    latest = sorted(rows, key=lambda row: float("inf") if row.last_s is None else row.last_s)
    count = sum(row.count for row in rows)
    parties, names = {row.party for row in rows}, {row.limit for row in rows}
    sums = f"{_number(len(parties), 'party', 'parties')} limited {_number(count, 'time', 'times')}"
    return "\n".join([*aligned(latest, _COLUMNS), "", f"{sums} by {_number(len(names), 'limit', 'limits')}."])


def _bounds_table(rows: list[BoundInfo]) -> str:
    return "\n".join(aligned(rows, _BOUNDS))


def _number(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def _value(row: LimitInfo | BoundInfo) -> object:
    return f"{row.value:,}" if isinstance(row.value, int | float) else row.value


_BOUNDS: Final[Columns] = {"limit": lambda row: row.limit, "value": _value}

_COLUMNS: Final[Columns] = {
    **_BOUNDS,
    "party": lambda row: row.party,
    "count": lambda row: f"{row.count:,}",
    "since": lambda row: span(row.since_s),
    "last": lambda row: span(row.last_s),
    "reason": lambda row: row.reason,
}
