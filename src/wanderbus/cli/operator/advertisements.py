"""``wanderbus advertisements``: what the devices at a server declare that they will publish (SPEC A-17, K-07)."""

from __future__ import annotations

from typing import Final

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting
from wanderbus.cli.operator.listings import Columns, Watch, aligned, show
from wanderbus.operator_rows import AdvertisementInfo

NONE: Final = "No device at this server has an advertisement."


@visiting
def advertisements(*, connection: ConnectionOptions, watch: Watch = None, json: AsJson = False) -> None:
    """Show the advertisements of the devices at a server: what each will publish.

    Where advertisements are required, one that "counts" lets its events be published: the server knows what all others
    want of them. Where they are optional, none counts. Needs the role of operator.

    Example: wanderbus advertisements --user sip:olga@localhost
    """
    show(connection, lambda operator: operator.advertisements(), _table, watch, json)


def _table(rows: list[AdvertisementInfo]) -> str:
    return "\n".join(aligned(rows, _COLUMNS)) if rows else NONE


_COLUMNS: Final[Columns] = {
    "user": lambda row: row.user,
    "device": lambda row: row.device,
    "subject": lambda row: row.subject,
    "filter": lambda row: row.expression or "all events",
    "counts": lambda row: "yes" if row.counts else "no",
}
