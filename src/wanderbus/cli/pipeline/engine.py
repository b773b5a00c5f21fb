"""``wanderbus pipeline engine``: Spark as the matching engine of a server (SPEC T-06)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.output import log_to_stderr, print_json, print_line
from wanderbus.cli.pipeline.progress_lines import ProgressLines
from wanderbus.cli.pipeline.spark_options import (
    Cores,
    Environment,
    Master,
    SparkPlace,
    let_job_report,
    needing_packages,
    session,
)
from wanderbus.cli.pipeline.stopping_signals import stop_with_stdin, stopping_signals

if TYPE_CHECKING:
    from wanderbus.pipeline.engine import EngineProgress


def engine(
    data_dir: Annotated[Path, typer.Argument(help="Data directory of the server.", show_default=False)],
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    json: AsJson = False,
    until_stdin_ends: Annotated[bool, typer.Option("--until-stdin-ends", hidden=True)] = False,
) -> None:
    """Match the events of a server that names subjects in broker.spark_subjects.

    Prints "ready SOCKET". Server and engine may be started, ended and killed in any order: events wait in the log
    meanwhile, and nothing is lost or repeated. A server has one engine. Progress goes to standard error: the record up
    to which there are matches, events per second, the age of the oldest event of the last batch, subscriptions, and the
    records that the log has beyond. Ends on SIGINT or SIGTERM, with status 0.

    Example: wanderbus pipeline engine wanderbus-data

    Example: wanderbus pipeline engine wanderbus-data --master spark://host:7077 --environment environment.tar.gz
    """
    log_to_stderr(verbose=False)
    let_job_report()
    with needing_packages("the matching engine"):
        from wanderbus.pipeline.engine import SETTINGS, MatchingEngine, local_master
    lines = ProgressLines()
    matching = MatchingEngine(data_dir, lambda found: lines.show(_progress(found)))
    with stopping_signals("the present batch", is_endless=True) as stop, matching.service as service:
        if until_stdin_ends:
            stop_with_stdin(stop)
        place = SparkPlace(cores, master or local_master(cores), environment)
        with session("wanderbus-engine", "the matching engine", place, SETTINGS) as spark:
            matching.prepare(spark)
            if json:
                print_json({"ready": str(service.path)})
            else:
                print_line(f"ready {service.path}")
            matching.run(spark, stop)


def _progress(found: EngineProgress) -> str:
    age = "" if found.latency_s is None else f", {found.latency_s:.2f} s old"
    events = f"{found.events_per_s:.0f} events/s{age}"
    return f"record {found.offset}, {events}, {found.subscriptions} subscriptions, {found.lag} behind"
