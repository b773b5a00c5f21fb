"""Past events for a command: of a lake or of a server's log, between two bounds, with Spark to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from wanderbus.cli.instants import read_instant
from wanderbus.cli.log_directory import log_directory
from wanderbus.cli.pipeline.spark_options import SparkPlace, session
from wanderbus.cli.pipeline.task_progress import task_progress
from wanderbus.errors import ConfigurationError, StorageError
from wanderbus.subscription import EVERY_SUBJECT, instant_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wanderbus.pipeline.history import Events, Selection
    from wanderbus.pipeline.lake.logs import LakeLogs

From = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="First event: an offset in the log, or a time as 2026-11-21T10:00:00Z; a day begins at 0:00 UTC.",
        show_default=False,
    ),
]
To = Annotated[
    str | None, typer.Option("--to", help="End, itself not included: an offset or a time.", show_default=False)
]
Lake = Annotated[
    Path | None, typer.Option("--lake", help="Directory of the lake; this or --log is needed.", show_default=False)
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


class Place(NamedTuple):
    """Place of the events, and the bounds of those that are meant."""

    lake: Path | None
    log: Path | None
    begin: str | None = None
    end: str | None = None
    spark: SparkPlace = SparkPlace()
    server: str | None = None


class Past(NamedTuple):
    """Events that are meant; ``logs`` are those of the lake, if they are in one.

    ``records`` reads the records of all at each call: a source of Spark must not be shared by scans with other filters.
    """

    events: Events
    records: Callable[[], DataFrame]
    selection: Selection
    logs: LakeLogs | None

    def shown(self, offset: int) -> str:
        """Return the offset of an event in words."""
        return str(offset) if self.logs is None else self.logs.shown(offset)

    def members(self, offset: int) -> dict[str, str | int]:
        """Return the offset of an event as members of a JSON object."""
        if self.logs is None or len(self.logs.identities) == 1:
            return {"offset": offset}
        server, in_log = self.logs.found(offset)
        return {"server": server, "offset": in_log}

    def offset(self, text: str) -> int:
        """Return the offset that is shown as ``text``; an error in one line if it is none."""
        if self.logs is not None:
            return self.logs.lake_offset(text)
        if not (text.isascii() and text.isdigit()):
            raise ConfigurationError(f"--offset: invalid offset {text!r} (expected a number)")
        return int(text)


def require_one_place(lake: Path | None, log: Path | None, server: str | None = None) -> None:
    """Return if the events have one place; ``ConfigurationError`` otherwise."""
    if (lake is None) == (log is None):
        raise ConfigurationError("give the events either with --lake or with --log")
    if log is not None and server is not None:
        raise ConfigurationError("--server chooses a server of a lake; give it without --log")


@contextmanager
def past_events(place: Place, purpose: str, subject: str = EVERY_SUBJECT) -> Iterator[Past]:
    """Start Spark for ``purpose``, and give the events that are meant; print progress meanwhile."""
    require_one_place(place.lake, place.log, place.server)
    given = (("from", place.begin), ("to", place.end))
    bounds = dict(_bound(side, text) for side, text in given if text is not None)
    with session(f"wanderbus-{purpose}", purpose, place.spark) as spark:
        from wanderbus.pipeline.history import Selection, lake_events
        from wanderbus.pipeline.lake.logs import logs_in
        from wanderbus.pipeline.lake.reading import table
        from wanderbus.pipeline.session import plain_errors

        wanted = None if subject == EVERY_SUBJECT else subject
        times = bounds.get("from_us"), bounds.get("to_us")
        with plain_errors(), task_progress(spark):
            if place.log:
                records = partial(log_records, spark, place.log)
                selection = Selection(wanted, bounds.get("from_offset"), bounds.get("to_offset"), *times)
                yield Past(selection.of_rows(records().where("kind = 'published'")), records, selection, None)
            else:
                assert place.lake is not None
                logs = logs_in(place.lake)
                selection = Selection(wanted, *_offsets(bounds, logs, place.server), *times)
                records = partial(table, spark, place.lake, "records")
                yield Past(lake_events(spark, place.lake, selection), records, selection, logs)


def _offsets(bounds: Mapping[str, int], logs: LakeLogs, server: str | None) -> tuple[int | None, int | None]:
    """Return the lake offsets of bounds that are offsets in one log."""
    from wanderbus.pipeline.lake_offsets import OFFSETS_A_LOG

    first, end = bounds.get("from_offset"), bounds.get("to_offset")
    if server is None:
        if len(logs.identities) > 1 and (first is not None or end is not None):
            raise ConfigurationError(
                f"--from, --to: an offset needs --server, because {logs.lake} has the logs of {', '.join(logs.servers)}"
            )
        return first, end
    base = logs.base_of_server(server)
    return base + (first or 0), base + (OFFSETS_A_LOG if end is None else end)


def log_records(spark: SparkSession, directory: Path) -> DataFrame:
    """Return the records of a log; ``StorageError`` if there is none."""
    from wanderbus.pipeline.source import FORMAT, log_schema

    columns = log_schema("offset", "at_us", "kind", "subject", "record")
    path = log_directory(directory)
    if not path.is_dir():
        raise StorageError(f"{path} is not a directory; give --log the data directory of a server")
    return spark.read.format(FORMAT).schema(columns).load(str(path.absolute()))


def _bound(side: str, text: str) -> tuple[str, int]:
    """Return the bound of a selection on the side ``from`` or ``to``: its name and number."""
    option = f"--{side}"
    if text.isascii() and text.isdigit():
        return f"{side}_offset", int(text)
    if (instant := read_instant(text, option)) is None:
        raise ConfigurationError(
            f"{option}: invalid bound {text!r} (expected an offset, a day, or a time as 2026-11-21T10:00:00Z)"
        )
    return f"{side}_us", instant_us(instant)
