"""``wanderbus pipeline compact``: small files of a lake become large ones (SPEC T-03)."""

from __future__ import annotations

from typing import Annotated

import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.output import print_json, print_line, print_progress
from wanderbus.cli.pipeline.lake_options import Lake, Lineage, Tables, chosen_tables
from wanderbus.cli.pipeline.spark_options import Cores, Environment, Master, SparkPlace, needing_packages, session

_MIB = 1 << 20


def compact(
    lake: Lake,
    tables: Tables = None,
    file_mib: Annotated[int, typer.Option("--file-mib", min=1, help="Size that files grow to, in MiB.")] = 128,
    lineage: Lineage = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    json: AsJson = False,
) -> None:
    """Merge the small files of each partition; the rows stay the same, and versions before stay readable.

    A run does so by itself when a partition has more than 32 small files.

    Example: wanderbus pipeline compact events notifications --lake lake
    """
    with needing_packages("the pipeline"):
        from wanderbus.pipeline.operation.lake_lock import check_lock, lake_lock

        wanted = chosen_tables(lake, tables)
    check_lock(lake)
    with session("wanderbus-compact", "the pipeline", SparkPlace(cores, master, environment)) as spark:
        from wanderbus.pipeline.lake import compact as compacted
        from wanderbus.pipeline.lineage import LineageRun, recorded

        run = LineageRun(lake, "compact", tables=wanted, inputs=wanted, copy=lineage)
        found = {}
        with lake_lock(lake), recorded(run):
            for table in wanted:
                print_progress(f"compacting {table.name}")
                found[table.name] = compacted(spark, lake, table, file_bytes=file_mib * _MIB)
    if json:
        print_json({name: each._asdict() for name, each in found.items()})
    else:
        for name, each in found.items():
            print_line(f"{name}: {each.removed} files became {each.added}" if each.removed else f"{name}: as it was")
