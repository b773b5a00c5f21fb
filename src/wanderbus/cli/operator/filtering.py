"""``wanderbus filtering``: events that each phase has examined and held back (SPEC N-01)."""

from __future__ import annotations

from typing import Final

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting
from wanderbus.cli.operator.listings import Columns, Watch, aligned, show
from wanderbus.operator_rows import PhaseInfo


@visiting
def filtering(*, connection: ConnectionOptions, watch: Watch = None, json: AsJson = False) -> None:
    """Show how many events each phase has examined, and held back, since the server was started.

    "publisher" are the agents that filter themselves, as they report; "channel" are the events of channels that this
    server leads, and of its publishers in decentralised channels: an event is held back if nobody gets it.
    "destination" are the events that other servers have sent here. Needs the role of operator.

    Example: wanderbus filtering --user sip:olga@localhost
    """
    show(connection, lambda operator: operator.filtering(), _table, watch, json)


def _table(rows: list[PhaseInfo]) -> str:
    return "\n".join(aligned(rows, _COLUMNS))


_COLUMNS: Final[Columns] = {
    "phase": lambda row: row.phase,
    "examined": lambda row: f"{row.examined:,}",
    "held back": lambda row: f"{row.held_back:,}",
}
