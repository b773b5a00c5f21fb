"""``wanderbus pipeline backfill``: a silver table made again of the bronze records (SPEC T-03)."""

from __future__ import annotations

from typing import Annotated

import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.output import print_error, print_json, print_line
from wanderbus.cli.pipeline.lake_options import Lake, Lineage, chosen_tables
from wanderbus.cli.pipeline.spark_options import Cores, Environment, Master, SparkPlace, needing_packages, session
from wanderbus.cli.pipeline.task_progress import task_progress


def backfill(
    table: Annotated[str, typer.Argument(help="Silver table, as events.", show_default=False)],
    lake: Lake,
    force: Annotated[bool, typer.Option("--force", help="Swap also if rows differ.")] = False,
    lineage: Lineage = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    json: AsJson = False,
) -> None:
    """Make a silver table again of the bronze records, compare it with the present one, and swap it in.

    So events of the past get the columns of attributes that were declared later. If rows are missing, added or changed,
    the difference is reported, and nothing is swapped without --force: exit status 1. Versions before stay readable.

    Example: wanderbus pipeline backfill events --lake lake
    """
    with needing_packages("the pipeline"):
        from wanderbus.pipeline.operation.lake_lock import check_lock, lake_lock

        chosen_tables(lake, [table])
    check_lock(lake)
    with session("wanderbus-backfill", "the pipeline", SparkPlace(cores, master, environment)) as spark:
        from wanderbus.pipeline.lineage import LineageRun, recorded
        from wanderbus.pipeline.operation.backfill import backfill as backfilled
        from wanderbus.pipeline.session import plain_errors
        from wanderbus.pipeline.tables import RECORDS, named

        run = LineageRun(lake, "backfill", tables=[named(table)], inputs=[RECORDS], copy=lineage)
        with lake_lock(lake), recorded(run), plain_errors(), task_progress(spark):
            found = backfilled(spark, lake, table, is_forced=force)
            run.is_aborted = not (found.is_swapped or found.is_equal)
    if json:
        print_json(found)
    elif found.is_equal:
        print_line(f"{table}: {found.rebuilt.rows} rows, the same as before; nothing to swap")
    elif found.is_swapped:
        print_line(f"{table}: {found.rebuilt.rows} rows instead of {found.present.rows}, swapped")
    if not (found.is_swapped or found.is_equal):
        if not json:
            print_error(
                f"{table} differs, and is left as it is: it has {found.present.rows} rows with checksum "
                f"{found.present.checksum}, made again {found.rebuilt.rows} with {found.rebuilt.checksum}; "
                "--force swaps it"
            )
        raise typer.Exit(1)
