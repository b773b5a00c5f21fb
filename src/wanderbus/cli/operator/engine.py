"""``wanderbus engine``: the matching engine beside the server, and how far behind it is (SPEC T-06)."""

from __future__ import annotations

from typing import Final

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting
from wanderbus.cli.operator.listings import Columns, Watch, aligned, show, span
from wanderbus.operator_rows import EngineInfo

NONE: Final = "The broker matches every event itself."


@visiting
def engine(*, connection: ConnectionOptions, watch: Watch = None, json: AsJson = False) -> None:
    """Show the matching engine beside the server: whether it answers, and how many records it is behind.

    Events for it wait in the log while it is away. Needs the role of operator.

    Example: wanderbus engine --user sip:olga@localhost

    Example: wanderbus engine --watch 2 --user sip:olga@localhost
    """
    show(connection, lambda operator: operator.engine(), _table, watch, json)


def _table(rows: list[EngineInfo]) -> str:
    if not rows:
        return NONE
    lines = aligned(rows, _COLUMNS)
    lines += [f"  it does not answer: {row.reason}" for row in rows if row.reason]
    lines += [f"  until its events are matched: {', '.join(row.remaining)}" for row in rows if row.remaining]
    return "\n".join(lines)


_COLUMNS: Final[Columns] = {
    "engine": lambda row: row.engine,
    "state": lambda row: row.state,
    "away": lambda row: "" if row.away_s is None else span(row.away_s),
    "records behind": lambda row: f"{row.records_behind:,}",
    "matched below": lambda row: f"{row.matched_below:,}",
    "subjects": lambda row: ", ".join(row.subjects),
}
