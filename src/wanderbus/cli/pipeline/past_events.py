"""Past events for a command: of a lake or of a server's log, between two bounds; Spark, if it reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer

from wanderbus.cli.instants import read_instant
from wanderbus.cli.pipeline.lake_options import existing_log
from wanderbus.cli.pipeline.rejected import warn_of_rejected
from wanderbus.cli.pipeline.spark_options import SparkPlace, session
from wanderbus.cli.pipeline.subject_parents import parents_for
from wanderbus.cli.pipeline.task_progress import task_progress
from wanderbus.errors import ConfigurationError
from wanderbus.subscription import EVERY_SUBJECT, check_wanted_subject, instant_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wanderbus.pipeline.history import Events, Selection
    from wanderbus.pipeline.history.domain_lakes import DomainLake
    from wanderbus.pipeline.history.spark_history import SparkHistory
    from wanderbus.pipeline.subject_children import Children

From = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="First event: an offset in the log, or a time as -2h, 2026-11-21T10:00:00Z or 2026-11-21 (0:00 UTC).",
        show_default=False,
    ),
]
To = Annotated[
    str | None, typer.Option("--to", help="End, itself not included: an offset or a time.", show_default=False)
]
Lakes = Annotated[
    list[Path] | None,
    typer.Option(
        "--lake",
        help="Directory of the lake; this or --log is needed. Several are those of domains that share events, and each "
        "event counts once; DOMAIN=DIRECTORY names the domain.",
        show_default=False,
    ),
]
Log = Annotated[
    Path | None,
    typer.Option("--log", help="Data directory of a server, or its subdirectory log.", show_default=False),
]


Server = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="NAME", help="Only what is in the log of this server of the lake.", show_default=False
    ),
]


class EventsPlace(NamedTuple):
    """Place of the events, and the bounds of those that are meant."""

    lakes: Sequence[Path] | None
    log: Path | None
    begin: str | None = None
    end: str | None = None
    spark: SparkPlace = SparkPlace()
    server: str | None = None
    event_domain: Path | None = None


class PastSelection(NamedTuple):
    """Events that are meant: the ``selection`` of those of a lake, of several ones, or of a log.

    ``children`` are the subjects below others.
    """

    lakes: tuple[DomainLake, ...]
    log: Path | None
    selection: Selection
    children: Children

    @property
    def order(self) -> tuple[str, ...]:
        """Return the columns that order rows: the servers of several lakes have no offsets in common."""
        return ("at_us", "offset") if len(self.lakes) > 1 else ("offset",)


def require_one_place(lake: object, log: Path | None, server: str | None = None) -> None:
    """Return if the events have one place; ``ConfigurationError`` otherwise."""
    if (not lake) == (log is None):
        raise ConfigurationError("give the events either with --lake or with --log")
    if log is not None and server is not None:
        raise ConfigurationError("--server chooses a server of a lake; give it without --log")


def wanted_events(place: EventsPlace, subject: str = EVERY_SUBJECT) -> PastSelection:
    """Return the events that are meant; warn of records that tables of the lake rejected."""
    require_one_place(place.lakes, place.log, place.server)
    check_wanted_subject(subject)
    given = (("from", place.begin), ("to", place.end))
    bounds = dict(_bound(side, text) for side, text in given if text is not None)
    log = None if place.log is None else existing_log(place.log)
    from wanderbus.pipeline.history import Selection
    from wanderbus.pipeline.history.domain_lakes import domain_lakes
    from wanderbus.pipeline.subject_children import children_of

    lakes = domain_lakes(place.lakes or ())
    children = children_of(parents_for(place.event_domain, [lake.path for lake in lakes], log))

    wanted = None if subject == EVERY_SUBJECT else subject
    times, own = (bounds.get("from_us"), bounds.get("to_us")), children.get(subject, ())
    if log is not None:
        selection = Selection(wanted, bounds.get("from_offset"), bounds.get("to_offset"), *times, children=own)
        return PastSelection((), log, selection, children)
    for lake in lakes:
        warn_of_rejected(lake.path)
    selection = Selection(wanted, *_offsets(bounds, lakes, place.server), *times, children=own)
    return PastSelection(lakes, None, selection, children)


@contextmanager
def spark_history(
    wanted: PastSelection, purpose: str, place: SparkPlace, *, every_row: bool = False
) -> Iterator[SparkHistory]:
    """Start Spark for ``purpose``, and give it the events that are meant; print progress meanwhile.

    With ``every_row`` an event of several lakes has all its rows.
    """
    with session(f"wanderbus-{purpose}", purpose, place) as spark:
        from wanderbus.pipeline.history import lake_events
        from wanderbus.pipeline.history.spark_history import SparkHistory
        from wanderbus.pipeline.lake.reading import table
        from wanderbus.pipeline.session import plain_errors

        selection = wanted.selection
        with plain_errors(), task_progress(spark):
            if wanted.log is not None:
                records = partial(log_records, spark, wanted.log)
                events: Events = selection.of_rows(records().where("kind = 'published'"))
                yield SparkHistory(events, records, selection)
            elif len(wanted.lakes) > 1:
                from wanderbus.pipeline.history.lakes_events import lakes_events

                events = lakes_events(spark, wanted.lakes, selection, every_row=every_row)
                yield SparkHistory(events, partial(_no_records, wanted.lakes), selection, wanted.order)
            else:
                (lake,) = wanted.lakes
                events = lake_events(spark, lake.path, selection)
                yield SparkHistory(events, partial(table, spark, lake.path, "records"), selection)


def require_one_lake(lakes: Sequence[DomainLake]) -> None:
    """Return unless there are several lakes; ``ConfigurationError`` otherwise."""
    if len(lakes) > 1:
        raise ConfigurationError(
            "--lake: a subscription has the events of its own domain; give the lake of that domain alone"
        )


def _no_records(lakes: Sequence[DomainLake]) -> NoReturn:
    require_one_lake(lakes)
    raise AssertionError(lakes)


def _offsets(
    bounds: Mapping[str, int], lakes: Sequence[DomainLake], server: str | None
) -> tuple[int | None, int | None]:
    """Return the lake offsets of bounds that are offsets in one log."""
    from wanderbus.pipeline.lake_offsets import OFFSETS_A_LOG

    first, end = bounds.get("from_offset"), bounds.get("to_offset")
    if len(lakes) > 1:
        if server is not None or first is not None or end is not None:
            raise ConfigurationError("--server, --from, --to: a server and offsets are those of one lake; give times")
        return None, None
    logs = lakes[0].logs
    if server is None:
        if len(logs.identities) > 1 and (first is not None or end is not None):
            raise ConfigurationError(
                f"--from, --to: an offset needs --server, because {logs.lake} has the logs of {', '.join(logs.servers)}"
            )
        return first, end
    base = logs.base_of_server(server)
    return base + (first or 0), base + (OFFSETS_A_LOG if end is None else end)


def log_records(spark: SparkSession, log: Path) -> DataFrame:
    """Return the records of a log."""
    from wanderbus.pipeline.source import FORMAT, log_schema

    columns = log_schema("offset", "at_us", "kind", "subject", "record")
    return spark.read.format(FORMAT).schema(columns).load(str(log.absolute()))


def _bound(side: str, text: str) -> tuple[str, int]:
    """Return the bound of a selection on the side ``from`` or ``to``: its name and number."""
    option = f"--{side}"
    if text.isascii() and text.isdigit():
        return f"{side}_offset", int(text)
    if (instant := read_instant(text, option)) is None:
        raise ConfigurationError(
            f"{option}: invalid bound {text!r} (expected an offset, a day, or a time as -2h or 2026-11-21T10:00:00Z)"
        )
    return f"{side}_us", instant_us(instant)
