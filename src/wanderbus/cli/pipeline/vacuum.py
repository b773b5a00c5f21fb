"""``wanderbus pipeline vacuum``: removal of the files that no kept version of a lake needs (SPEC T-03)."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.output import print_json, print_line, print_progress
from wanderbus.cli.pipeline.lake_options import Lake, Tables, chosen_tables
from wanderbus.cli.pipeline.spark_options import needing_packages

HOURS: Final = 168
HOURS_MIN: Final = 24
"""Safe minimum: a batch, a query or a compaction that reads older files would lose them."""


def vacuum(
    lake: Lake,
    tables: Tables = None,
    hours: Annotated[
        int, typer.Option("--hours", min=HOURS_MIN, help="Keep the versions of this time, and the files of jobs.")
    ] = HOURS,
    json: AsJson = False,
) -> None:
    """Remove the files that no kept version needs, and those of killed jobs; versions before cannot be read any more.

    It may run while a job fills the lake. A query that takes longer than --hours would lose its files.

    Example: wanderbus pipeline vacuum --lake lake --hours 720
    """
    with needing_packages("the pipeline"):
        from wanderbus.pipeline.lake import vacuum as vacuumed

        wanted = chosen_tables(lake, tables)
    found = {}
    for table in wanted:
        print_progress(f"vacuuming {table.name}")
        found[table.name] = vacuumed(lake, table, retention_hours=hours)
    if json:
        print_json(found)
    else:
        for name, count in found.items():
            print_line(f"{name}: {count} files removed")
