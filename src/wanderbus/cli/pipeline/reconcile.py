"""``wanderbus pipeline reconcile``: proof that a lake has the event log (SPEC T-03)."""

from __future__ import annotations

import msgspec
import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.output import print_error, print_json, print_line
from wanderbus.cli.pipeline.lake_options import DataDirectories, Lake, chosen_tables, existing_logs
from wanderbus.cli.pipeline.rejected import STATUS, warn_of_rejected
from wanderbus.cli.pipeline.spark_options import Cores, Environment, Master, SparkPlace, needing_packages, session
from wanderbus.cli.pipeline.task_progress import task_progress


def reconcile(
    data_dir: DataDirectories,
    lake: Lake,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    json: AsJson = False,
) -> None:
    """Compare counts and checksums of each segment of the log with the lake, up to the end of the lake.

    Segments that were removed from the log are not compared. With several data directories, each log is compared. Exit
    status 1 if something differs, otherwise 3 if tables of the lake rejected records of known kinds.

    Example: wanderbus pipeline reconcile wanderbus-data --lake lake
    """
    logs = existing_logs(data_dir)
    with needing_packages("the pipeline"):
        chosen_tables(lake, None)
    with session("wanderbus-reconcile", "the pipeline", SparkPlace(cores, master, environment)) as spark:
        from wanderbus.pipeline.lake import reconcile as reconciled
        from wanderbus.pipeline.session import plain_errors

        with plain_errors(), task_progress(spark):
            segments = [each for log in logs for each in reconciled(spark, log, lake)]
    differing = [each for each in segments if each.differs]
    if json:
        print_json([{**msgspec.structs.asdict(each), "differs": each.differs} for each in segments])
    else:
        for each in differing:
            print_error(
                f"the segment at record {each.segment} differs: the log has {each.log.records} records with checksum "
                f"{each.log.checksum}, the lake {each.lake.records} with {each.lake.checksum}"
            )
        count = sum(each.log.records for each in segments)
        print_line(f"{len(segments)} segments, {count} records, {len(differing)} segments differ")
    is_incomplete = warn_of_rejected(lake)
    if differing or is_incomplete:
        raise typer.Exit(1 if differing else STATUS)
