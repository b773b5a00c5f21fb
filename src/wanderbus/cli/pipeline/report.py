"""``wanderbus report``: figures of a server, or of domains, for a period, as one HTML file (SPEC T-08)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.instants import read_instant
from wanderbus.cli.output import check_writable, print_json, print_line, print_progress
from wanderbus.cli.pipeline.lake_options import existing_log
from wanderbus.cli.pipeline.past_events import Lakes, Log, Server, require_one_place
from wanderbus.cli.pipeline.rejected import STATUS, require_none_rejected, warn_of_rejected
from wanderbus.cli.pipeline.spark_options import Cores, Environment, Master, SparkPlace, needing_packages, session
from wanderbus.cli.pipeline.stopping_signals import stopping_signals
from wanderbus.cli.pipeline.task_progress import task_progress
from wanderbus.errors import ConfigurationError, StorageError, WanderbusError
from wanderbus.subscription import instant_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from wanderbus.pipeline.analytics import Analysis, Period
    from wanderbus.pipeline.analytics.report import PageRefresh

EVERY_S: Final = 10.0
REPORT: Final = Path("report.html")


class _Source(NamedTuple):
    """The lakes to read, the server that is meant, and the log from which the lake is made first if it is temporary."""

    lakes: Sequence[Path]
    log: Path | None
    server: str | None = None


class _Bounds(NamedTuple):
    """Bounds of the period, as the command line has them."""

    begin: str | None
    end: str | None

    def period(self) -> Period:
        from wanderbus.pipeline.analytics import Period

        now = datetime.now(UTC)
        found = Period(_instant_us(self.begin, "--from", now), _instant_us(self.end, "--to", now))
        if found.from_us is not None and found.to_us is not None and found.from_us >= found.to_us:
            raise ConfigurationError(f"--to: {self.end} is not after --from {self.begin}; the period is empty")
        return found


def report(
    lake: Lakes = None,
    log: Log = None,
    server: Server = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from", help="Begin: a time as 2026-11-21T10:00:00Z, a day, or -2h for a time ago.", show_default=False
        ),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="End, itself not included.", show_default=False)] = None,
    live: Annotated[bool, typer.Option("--live", help="Make it again and again, until a signal.")] = False,
    every: Annotated[
        float | None, typer.Option("--every", min=1, metavar="SECONDS", help=f"Pause between reports; {EVERY_S:g}.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="File of the report.")] = REPORT,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    json: AsJson = False,
) -> None:
    """Write loss, latency, queues, drops, moves, handovers and times away as one HTML file, which needs no network.

    Figures are those of the server, and of each subject, user and device. In the lake of a domain they are those of all
    its servers unless --server names one. In several lakes they are those of all their domains: events, matches and
    handovers between domains count once, and servers are named as alpha.example/s1. With --log the log is read into a
    lake that is removed afterwards; for a long log a lake is faster. With --live the file is replaced every few
    seconds, and the page reloads itself; SIGINT and SIGTERM end it with status 0. With --json the figures are printed
    too. Exit status 3 if tables of the lake rejected records of known kinds: the figures miss rows.

    Example: wanderbus report --lake lake --from 2026-11-21 --to 2026-11-22 --out monday.html

    Example: wanderbus report --log wanderbus-data --live --from -15min

    Example: wanderbus report --lake alpha/lake --lake beta/lake
    """
    if every is not None and not live:
        raise ConfigurationError("--every is the pause between reports; give it with --live")
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)  # an error is reported in one line
    bounds, every_s = _Bounds(begin, end), (every or EVERY_S) if live else None
    with needing_packages("the report"):
        bounds.period()
    place = SparkPlace(cores, master, environment)
    with ExitStack() as stack:
        source = _source(lake, log, server, place, stack)
        check_writable(out)
        stop = stack.enter_context(stopping_signals("the present report", is_endless=True)) if live else Event()
        spark = stack.enter_context(session("wanderbus-report", "the report", place))

        def show(found: Analysis) -> None:
            if json:
                print_json(found)
            else:
                totals = found.totals
                given_up = f", {totals.given_up} given up" if totals.given_up else ""
                handovers = f", {totals.handovers} handovers" if totals.handovers else ""
                rejected = f", {sum(found.rejected.values())} records rejected" if found.rejected else ""
                print_line(
                    f"{out}: {totals.generated} matches of {totals.events} events, {totals.delivered} delivered, "
                    f"{totals.queued} waiting, {totals.dropped} dropped{given_up}, {totals.missing} missing{handovers}"
                    f"{rejected}"
                )

        written = _write(spark, source, bounds, out, every_s, stop, show)
    if written is not None:
        _require_none_rejected(lake or (), written)


def _write(
    spark: SparkSession,
    source: _Source,
    bounds: _Bounds,
    out: Path,
    every_s: float | None,
    stop: Event,
    show: Callable[[Analysis], None],
) -> Analysis | None:
    """Write the report once, or until ``stop`` is set; return the last one, which does not reload itself."""
    from wanderbus.pipeline.analytics import page, write_page
    from wanderbus.pipeline.analytics.report import PageRefresh

    found: Analysis | None = None
    refresh = PageRefresh(every_s) if every_s else None
    while not stop.is_set():
        try:
            with _plain_failures(), task_progress(spark):
                found = _written(spark, source, bounds.period(), out, refresh)
        except WanderbusError:
            if stop.is_set():
                break  # a signal ends the workers too
            raise
        show(found)
        if every_s is None:
            return found
        stop.wait(every_s)
    if found is not None:
        write_page(out, page(found))
        print_progress(f"{out} is complete")
    return found


def _written(spark: SparkSession, source: _Source, period: Period, out: Path, refresh: PageRefresh | None) -> Analysis:
    from wanderbus.pipeline.analytics import write_report
    from wanderbus.pipeline.history.domain_lakes import domain_lakes
    from wanderbus.pipeline.lake import ingest

    if source.log is not None:
        (lake,) = source.lakes
        ingest(spark, source.log, lake, lake / "_checkpoint", reader_expires_s=None)
    lakes = domain_lakes(source.lakes)  # they may have further logs since the last report
    return write_report(spark, lakes, out, period, server=source.server, refresh=refresh)


def _source(
    lakes: Sequence[Path] | None, log: Path | None, server: str | None, place: SparkPlace, stack: ExitStack
) -> _Source:
    require_one_place(lakes, log, server)
    if lakes:
        with needing_packages("the report"):
            from wanderbus.pipeline.history.domain_lakes import domain_lakes, require_server_of_one_lake
        require_server_of_one_lake(domain_lakes(lakes), server)
        return _Source(lakes, None, server)
    assert log is not None
    if place.master is not None:
        raise ConfigurationError("--log makes a lake on this machine, which a cluster does not see; give --lake")
    records = existing_log(log)
    temporary = stack.enter_context(TemporaryDirectory(prefix="wanderbus-report-", ignore_cleanup_errors=True))
    return _Source([Path(temporary, "lake")], records)


def _require_none_rejected(lakes: Sequence[Path], written: Analysis) -> None:
    """Name the records that tables of the lakes rejected and exit with the status of that; return if there are none."""
    if len(lakes) < 2:
        require_none_rejected(lakes[0] if lakes else None, written.rejected)
        return
    from wanderbus.pipeline.history.domain_lakes import domain_lakes

    incomplete = [each for each in domain_lakes(lakes) if warn_of_rejected(each.path)]
    if incomplete:
        raise typer.Exit(STATUS)


@contextmanager
def _plain_failures() -> Iterator[None]:
    """Turn an error of Spark, which has pages, into one line."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from wanderbus.pipeline.session import plain_errors

    try:
        with plain_errors():
            yield
    except (PySparkException, Py4JError) as error:
        text = " ".join(str(error).split("\n", 1)[0].split())
        raise StorageError(f"the report cannot be computed: {text}") from None


def _instant_us(text: str | None, option: str, now: datetime) -> int | None:
    """Return the time that ``text`` names; :class:`ConfigurationError` if it names none."""
    if text is None:
        return None
    if (instant := read_instant(text, option, now)) is None:
        raise ConfigurationError(
            f"{option}: invalid time {text!r} (expected for example 2026-11-21T10:00:00Z, 2026-11-21 or -2h)"
        )
    return instant_us(instant)
