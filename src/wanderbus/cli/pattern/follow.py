"""``wanderbus pattern follow``: compound events in the log of a running server, by Spark (SPEC T-07, S-06)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, connected
from wanderbus.cli.output import print_progress
from wanderbus.cli.pattern.detection_output import print_detections, report_refused
from wanderbus.cli.pattern.detection_publisher import DetectionPublisher, require_no_loop
from wanderbus.cli.pattern.pattern_input import File, Text, given_pattern, with_parents
from wanderbus.cli.pipeline.lake_options import existing_log
from wanderbus.cli.pipeline.progress_lines import ProgressLines, progress_line
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
from wanderbus.cli.pipeline.subject_parents import EventDomain, parents_for
from wanderbus.errors import ConfigurationError
from wanderbus.patterns import Counts, Pattern

if TYPE_CHECKING:
    from wanderbus.patterns import Detection

EVERY_S: Final = 1.0


class _Job(NamedTuple):
    """A pattern, the log in which it is looked for, its state, and the batches; no ``every_s`` is ``--once``."""

    pattern: Pattern
    log: Path
    checkpoint: Path
    every_s: float | None
    rows_per_batch: int | None


def follow(
    text: Text = None,
    file: File = None,
    log: Annotated[
        Path, typer.Option("--log", help="Data directory of a server, or its subdirectory log.", show_default=False)
    ] = ...,  # type: ignore[assignment]
    checkpoint: Annotated[
        Path,
        typer.Option("--checkpoint", help="Directory of the state; it belongs to one pattern.", show_default=False),
    ] = ...,  # type: ignore[assignment]
    publish: Annotated[bool, typer.Option("--publish", help="Publish each detection as an event, as --user.")] = False,
    once: Annotated[bool, typer.Option("--once", help="End at the present end of the log.")] = False,
    every: Annotated[
        float | None, typer.Option("--every", min=0.1, metavar="SECONDS", help=f"Pause between batches; {EVERY_S:g}.")
    ] = None,
    rows_per_batch: Annotated[
        int | None, typer.Option("--rows-per-batch", min=1, help="Bound of one batch.", show_default="100000")
    ] = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    event_domain: EventDomain = None,
    json: AsJson = False,
    *,
    connection: ConnectionOptions,
) -> None:
    """Find a pattern in the log of a server while it grows, and print or publish each detection.

    The first run begins at the oldest record of the log, and a later one with the same checkpoint where the last one
    ended, also if that was killed. Each detection is published once; it may be printed again by the run after a
    kill. SIGINT and SIGTERM end the command after the present batch, with status 0 unless it is --once. Progress goes
    to standard error: the record, records per second, and the records that the log has beyond.

    Example: wanderbus pattern follow --file late.pattern --log wanderbus-data --checkpoint late

    Example: wanderbus pattern follow --file late.pattern --log wanderbus-data --checkpoint late --publish
    --user sip:patterns@localhost
    """
    if once and every is not None:
        raise ConfigurationError("--once ends at the present end of the log; give it without --every")
    pattern = given_pattern(text, file)
    directory = existing_log(log)
    pattern = with_parents(pattern, parents_for(event_domain, (), directory))
    if publish:
        require_no_loop(pattern)
    job = _Job(pattern, directory, checkpoint, None if once else every or EVERY_S, rows_per_batch)
    _run(job, SparkPlace(cores, master, environment), connection if publish else None, json=json)


def _run(job: _Job, place: SparkPlace, publishing: ConnectionOptions | None, *, json: bool) -> None:
    """Find the pattern until the job ends, and print and publish the detections."""
    let_job_report()
    with needing_packages("the pattern"):
        from wanderbus.pipeline.engine import SETTINGS, local_master
    lines, refused = ProgressLines(), Counts()
    print_progress("starting Spark")
    with ExitStack() as stack:
        stop = stack.enter_context(stopping_signals("the present batch", is_endless=job.every_s is not None))
        publisher = None
        if publishing is not None:
            publisher = stack.enter_context(DetectionPublisher(publishing, job.checkpoint))
        place = place._replace(master=place.master or local_master(place.cores))
        spark = stack.enter_context(session("wanderbus-pattern", "the pattern", place, SETTINGS))
        print_progress(f"following {job.log}; the first batch takes some seconds")
        from wanderbus.pipeline.patterns.live_job import RECORDS_A_BATCH, LivePattern, add_counts

        def hand_on(batch: int, detections: Sequence[Detection], counts: Counts) -> None:
            if publisher is not None:
                publisher.publish(batch, detections)
            print_detections(detections, json=json)
            add_counts(refused, counts)

        LivePattern(
            spark,
            job.log,
            job.checkpoint,
            job.pattern,
            hand_on,
            every_s=job.every_s,
            records_per_batch=job.rows_per_batch or RECORDS_A_BATCH,
            on_progress=lambda found: lines.show(progress_line(found)),
            stop=stop,
        ).run()
    report_refused(refused)


follow = connected(follow, without="state_dir")
