"""``wanderbus pipeline run``: the job that brings a lake up to the event log (SPEC T-03)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.output import log_to_stderr, print_json, print_line
from wanderbus.cli.pipeline.lake_options import DataDirectories, Lake, Lineage, existing_logs
from wanderbus.cli.pipeline.progress_lines import ProgressLines, progress_line
from wanderbus.cli.pipeline.rejected import require_none_rejected
from wanderbus.cli.pipeline.spark_options import (
    Cores,
    Environment,
    Master,
    SparkPlace,
    let_job_report,
    needing_packages,
    session,
)
from wanderbus.cli.pipeline.stopping_signals import stopping_signals
from wanderbus.cli.pipeline.subject_parents import EventDomain, parents_given
from wanderbus.errors import ConfigurationError

if TYPE_CHECKING:
    from wanderbus.pipeline.lake import LakeCounts

EVERY_S = 5.0


def run(
    data_dir: DataDirectories,
    lake: Lake,
    once: Annotated[bool, typer.Option("--once", help="End at the present end of the logs.")] = False,
    every: Annotated[
        float | None, typer.Option("--every", min=0.1, metavar="SECONDS", help=f"Pause between batches; {EVERY_S:g}.")
    ] = None,
    rows_per_batch: Annotated[
        int | None, typer.Option("--rows-per-batch", min=1, help="Bound of one batch; unless given, all there is.")
    ] = None,
    lineage: Lineage = None,
    event_domain: EventDomain = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    json: AsJson = False,
) -> None:
    """Bring a lake up to the event log of a server, or of all servers of a domain, once or until it is stopped.

    SIGINT and SIGTERM end it after the present batch, with status 0 unless it is --once; a second one ends it at
    once. It may be killed anywhere: the next run continues without a gap or a repetition. One job at a time changes a
    lake. Progress goes to standard error: the offset, records per second, and the records that the log has beyond.
    Exit status 3 if tables of the lake rejected records of known kinds, now or before: rows are missing.

    A lake takes further logs only together with one that it has, so it does not get those of other servers by mistake.

    Example: wanderbus pipeline run wanderbus-data --lake lake --once

    Example: wanderbus pipeline run wanderbus-data --lake lake --every 10 --rows-per-batch 1000000

    Example: wanderbus pipeline run wanderbus-domain --lake lake --once

    Example: wanderbus pipeline run s1/wanderbus-data s2/wanderbus-data --lake lake
    """
    if once and every is not None:
        raise ConfigurationError("--once ends at the present end of the logs; give it without --every")
    logs = existing_logs(data_dir)
    parents = parents_given(event_domain, logs)
    log_to_stderr(verbose=False)
    let_job_report()
    with needing_packages("the pipeline"):
        from wanderbus.pipeline.lake.quarantine import rejected_records
        from wanderbus.pipeline.operation.lake_lock import check_lock
    check_lock(lake)
    with (
        stopping_signals("the present batch", is_endless=not once) as stop,
        session("wanderbus-pipeline", "the pipeline", SparkPlace(cores, master, environment)) as spark,
    ):
        from wanderbus.pipeline.operation.run import PipelineRun

        lines = ProgressLines()
        job = PipelineRun(
            spark,
            logs,
            lake,
            parents=parents,
            every_s=None if once else every or EVERY_S,
            rows_per_batch=rows_per_batch,
            lineage_copy=lineage,
            on_progress=lambda found: lines.show(progress_line(found)),
            stop=stop,
        )
        counts = job.run()
    rejected = rejected_records(lake)
    _print_counts(counts, rejected, json=json)
    require_none_rejected(lake, rejected)


def _print_counts(counts: LakeCounts, rejected: Mapping[str, int], *, json: bool) -> None:
    if json:
        print_json({"added": counts, "rejected": rejected})
        return
    if not counts:
        print_line("the lake is up to date")
    for name, found in counts.items():
        notes = [f"{found.rejected} rejected"] if found.rejected else []
        notes += [f"{found.misfits} misfits"] if found.misfits else []
        notes += [f"{count} rows do not meet {check}" for check, count in found.unmet.items() if count]
        print_line(", ".join([f"{name}: {found.rows} rows added", *notes]))
