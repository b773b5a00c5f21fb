"""``wanderbus pipeline gold``: the gold tables of a lake (SPEC T-08)."""

from __future__ import annotations

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.output import print_json, print_line
from wanderbus.cli.pipeline.lake_options import Lake, Lineage, chosen_tables
from wanderbus.cli.pipeline.rejected import require_none_rejected
from wanderbus.cli.pipeline.spark_options import Cores, Environment, Master, SparkPlace, needing_packages, session
from wanderbus.cli.pipeline.task_progress import task_progress


def gold(
    lake: Lake,
    lineage: Lineage = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    json: AsJson = False,
) -> None:
    """Compute the gold tables of a lake: matches with their outcomes, latencies, counts, absences and more.

    Each table is replaced in one commit, so the tables can be read meanwhile, and versions before stay readable. The
    job that fills the lake must not run meanwhile. 'wanderbus report' needs no gold tables. Exit status 3 if tables of
    the lake rejected records of known kinds: rows are missing.

    Example: wanderbus pipeline gold --lake lake
    """
    with needing_packages("the pipeline"):
        from wanderbus.pipeline.operation.lake_lock import check_lock, lake_lock

        chosen_tables(lake, None)
    check_lock(lake)
    with session("wanderbus-gold", "the pipeline", SparkPlace(cores, master, environment)) as spark:
        from wanderbus.pipeline.analytics.gold_lake import store_gold
        from wanderbus.pipeline.lineage import LineageRun, recorded
        from wanderbus.pipeline.session import plain_errors
        from wanderbus.pipeline.tables import TABLES
        from wanderbus.pipeline.tables.gold import GOLD_TABLES

        inputs = [each for each in TABLES if each.name == "records" or each.layer == "silver"]
        run = LineageRun(lake, "gold", tables=GOLD_TABLES, inputs=inputs, copy=lineage)
        with lake_lock(lake), recorded(run), plain_errors(), task_progress(spark):
            run.counts = store_gold(spark, lake)
    if json:
        print_json({"stored": run.counts})
    else:
        for name, counts in run.counts.items():
            print_line(f"{name}: {counts.rows} rows")
    require_none_rejected(lake)
