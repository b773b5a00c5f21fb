"""Past events for a command: of a lake or of a server's log, between two bounds, with Spark to read them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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

    from wanderbus.pipeline.history import Events

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


class Place(NamedTuple):
    """Place of the events, and the bounds of those that are meant."""

    lake: Path | None
    log: Path | None
    begin: str | None = None
    end: str | None = None
    spark: SparkPlace = SparkPlace()


def require_one_place(lake: Path | None, log: Path | None) -> None:
    """Return if the events have one place; ``ConfigurationError`` otherwise."""
    if (lake is None) == (log is None):
        raise ConfigurationError("give the events either with --lake or with --log")


@contextmanager
def past_events(place: Place, purpose: str, subject: str = EVERY_SUBJECT) -> Iterator[tuple[SparkSession, Events]]:
    """Start Spark for ``purpose``, and give the events that are meant; print progress meanwhile."""
    require_one_place(place.lake, place.log)
    given = (("from", place.begin), ("to", place.end))
    bounds = dict(_bound(side, text) for side, text in given if text is not None)
    with session(f"wanderbus-{purpose}", purpose, place.spark) as spark:
        from wanderbus.pipeline.history import Selection, lake_events
        from wanderbus.pipeline.session import plain_errors

        wanted = None if subject == EVERY_SUBJECT else subject
        offsets = bounds.get("from_offset"), bounds.get("to_offset")
        selection = Selection(wanted, *offsets, bounds.get("from_us"), bounds.get("to_us"))
        with plain_errors(), task_progress(spark):
            events: Events
            if place.log:
                events = selection.of_rows(log_records(spark, place.log).where("kind = 'published'"))
            else:
                assert place.lake is not None
                events = lake_events(spark, place.lake, selection)
            yield spark, events


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
