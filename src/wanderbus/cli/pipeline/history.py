"""``wanderbus history``: filters and subscriptions over the events of a lake, or of a server's log (SPEC T-04)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
import typer

from wanderbus import cloudevents, event_text
from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.filter_input import InLanguage, Language
from wanderbus.cli.instants import read_instant
from wanderbus.cli.log_directory import log_directory
from wanderbus.cli.output import print_json, print_line
from wanderbus.cli.pipeline.spark_options import Cores, Environment, Master, SparkPlace, session
from wanderbus.cli.pipeline.task_progress import task_progress
from wanderbus.errors import ConfigurationError, StorageError
from wanderbus.event import Event
from wanderbus.filters import parse
from wanderbus.subscription import EVERY_SUBJECT, Subscription, instant_shown, instant_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wanderbus.pipeline.history import Events

app = typer.Typer(help="Run filters and subscriptions over past events.", no_args_is_help=True, rich_markup_mode=None)

_ECI: Final = Language("eci")

Expression = Annotated[str, typer.Argument(help="The filter; '' matches every event.", show_default=False)]
Subject = Annotated[str, typer.Option("--subject", help="Subject of the events; '*' is every subject.")]
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
Size = Annotated[int, typer.Option("--size", "-n", min=1, help="Events to draw.")]
Seed = Annotated[int, typer.Option("--seed", help="The same seed draws the same events.")]


class Place(NamedTuple):
    """Place of the events, and the bounds of those that are meant."""

    lake: Path | None
    log: Path | None
    begin: str | None = None
    end: str | None = None
    spark: SparkPlace = SparkPlace()


@app.callback()
def history() -> None:
    """Run filters and subscriptions over past events."""


@app.command("match")
def match(
    expression: Expression,
    subject: Subject = EVERY_SUBJECT,
    begin: From = None,
    end: To = None,
    language: InLanguage = _ECI,
    lake: Lake = None,
    log: Log = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    json: AsJson = False,
) -> None:
    """Print the events that match a filter, in order of offset.

    Example: wanderbus history match "DepDelay > 120" --subject Departure --from 2026-11-01 --log wanderbus-data
    """
    wanted = _query(expression, subject, language)
    with _events(Place(lake, log, begin, end, SparkPlace(cores, master, environment)), subject) as (_, events):
        from wanderbus.pipeline.history import matching_events

        rows = matching_events(events, [wanted]).orderBy("offset")
        for row in rows.toLocalIterator():
            _print_event(row, json=json)


@app.command("count")
def count(
    expression: Expression,
    subject: Subject = EVERY_SUBJECT,
    begin: From = None,
    end: To = None,
    language: InLanguage = _ECI,
    lake: Lake = None,
    log: Log = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    json: AsJson = False,
) -> None:
    """Print the number of events that match a filter.

    Example: wanderbus history count "DepDelay > 120" --subject Departure --lake lake
    """
    wanted = _query(expression, subject, language)
    with _events(Place(lake, log, begin, end, SparkPlace(cores, master, environment)), subject) as (_, events):
        from wanderbus.pipeline.history import count as counts

        found = sum(row.events for row in counts(events, [wanted]).collect())
    if json:
        print_json({"events": found})
    else:
        print_line(str(found))


@app.command("sample")
def sample(
    expression: Expression,
    subject: Subject = EVERY_SUBJECT,
    size: Size = 10,
    seed: Seed = 0,
    begin: From = None,
    end: To = None,
    language: InLanguage = _ECI,
    lake: Lake = None,
    log: Log = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    json: AsJson = False,
) -> None:
    """Print some of the events that match a filter, drawn at random.

    Example: wanderbus history sample "Dest == IAH" -n 5 --subject Departure --lake lake
    """
    wanted = _query(expression, subject, language)
    with _events(Place(lake, log, begin, end, SparkPlace(cores, master, environment)), subject) as (_, events):
        from wanderbus.pipeline.history import at_offsets, matching_events
        from wanderbus.pipeline.history import sample as samples

        offsets = [row.offset for row in samples(events, [wanted], size, seed).collect()]
        drawn = at_offsets(events, offsets)
        for row in matching_events(drawn, [wanted]).orderBy("offset").collect():
            _print_event(row, json=json)


@app.command("explain")
def explain(
    expression: Expression,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Offset of the event in the log.")],
    subject: Subject = EVERY_SUBJECT,
    language: InLanguage = _ECI,
    lake: Lake = None,
    log: Log = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    json: AsJson = False,
) -> None:
    """Explain why an event matches a filter, or does not: print the parts of the filter that decide.

    Example: wanderbus history explain "DepDelay > 120 and Dest == IAH" --offset 1042 --log wanderbus-data
    """
    wanted = _query(expression, subject, language)
    with _events(Place(lake, log, spark=SparkPlace(cores, master, environment)), EVERY_SUBJECT) as (_, events):
        from wanderbus.pipeline.history import explain as explained

        found = explained(events, wanted, offset)
    if json:
        print_json(found)
    elif not found.is_subject:
        print_line(f"does not match: the subject of the event is {found.subject!r}, not {subject!r}")
    else:
        reasons = [f"{each.question} is {_truth(each.truth)}: {each.why}" for each in found.predicates]
        verdict = "matches" if found.matches else "does not match"
        print_line(f"{verdict}: {'; '.join(reasons)}" if reasons else verdict)


@app.command("replay")
def replay(
    subscription: Annotated[str, typer.Argument(help="Id of the subscription.", show_default=False)],
    begin: From = None,
    end: To = None,
    lake: Lake = None,
    log: Log = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    json: AsJson = False,
) -> None:
    """Print the events of which a subscription generated notifications, and those that its restrictions blocked.

    Lifetimes, changes and restrictions apply as they did; limits on queues and on the work of filters do not.

    Example: wanderbus history replay wb1234-mibx2f9c-17 --from 2026-11-01 --to 2026-12-01 --log wanderbus-data
    """
    place = Place(lake, log, begin, end, SparkPlace(cores, master, environment))
    with _events(place, EVERY_SUBJECT) as (spark, events):
        from wanderbus.pipeline.history import absences_of, changes_in, versions_of
        from wanderbus.pipeline.history import replay as replayed

        changes = changes_in(_records(spark, place))
        versions = [each for each in versions_of(changes) if each.subscription.id == subscription]
        if not versions:
            raise StorageError(f"there is no subscription {subscription}; check the id")
        rows = replayed(events, versions, absences_of(changes)).orderBy("offset")
        for row in rows.toLocalIterator():
            _print_decision(row, json=json)


def _query(expression: str, subject: str, language: Language) -> Subscription:
    parse(expression, language.value)  # its error points at the place
    return Subscription("", "", "", subject, expression, language=language.value)


# Events
# ---------------------------------------------------------------------------------------------------------------------


@contextmanager
def _events(place: Place, subject: str) -> Iterator[tuple[SparkSession, Events]]:
    """Start Spark, and give the events that are meant; print progress meanwhile."""
    if (place.lake is None) == (place.log is None):
        raise ConfigurationError("give the events either with --lake or with --log")
    given = (("from", place.begin), ("to", place.end))
    bounds = dict(_bound(side, text) for side, text in given if text is not None)
    with session("wanderbus-history", "history", place.spark) as spark:
        from wanderbus.pipeline.history import Selection, lake_events
        from wanderbus.pipeline.session import plain_errors

        wanted = None if subject == EVERY_SUBJECT else subject
        offsets = bounds.get("from_offset"), bounds.get("to_offset")
        selection = Selection(wanted, *offsets, bounds.get("from_us"), bounds.get("to_us"))
        with plain_errors(), task_progress(spark):
            events: Events
            if place.log:
                events = selection.of_rows(_log_records(spark, place.log).where("kind = 'published'"))
            else:
                assert place.lake is not None
                events = lake_events(spark, place.lake, selection)
            yield spark, events


def _log_records(spark: SparkSession, directory: Path) -> DataFrame:
    from wanderbus.pipeline.source import FORMAT, log_schema

    columns = log_schema("offset", "at_us", "kind", "subject", "record")
    path = log_directory(directory)
    if not path.is_dir():
        raise StorageError(f"{path} is not a directory; give --log the data directory of a server")
    return spark.read.format(FORMAT).schema(columns).load(str(path.absolute()))


def _records(spark: SparkSession, place: Place) -> DataFrame:
    """Return the records of subscriptions and devices."""
    if place.log:
        return _log_records(spark, place.log)
    from wanderbus.pipeline.lake.reading import table

    assert place.lake is not None
    return table(spark, place.lake, "records")


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


# Output
# ---------------------------------------------------------------------------------------------------------------------


def _print_event(row: Any, *, json: bool) -> None:
    event = msgspec.msgpack.decode(row.event, type=Event)
    if json:
        attributes = cloudevents.to_json(event.attributes)
        print_json({"offset": row.offset, "at_us": row.at_us, "subject": event.subject, "attributes": attributes})
    else:
        print_line(f"{row.offset} {instant_shown(row.at_us)} {event_text.write(event)}")


def _print_decision(row: Any, *, json: bool) -> None:
    if json:
        print_json({"offset": row.offset, "at_us": row.at_us, "restricted_by": row.restricted_by})
    else:
        outcome = "notified" if row.restricted_by is None else f"blocked by restriction {row.restricted_by + 1}"
        print_line(f"{row.offset} {instant_shown(row.at_us)} {outcome}")


def _truth(truth: bool | None) -> str:
    return "unknown" if truth is None else str(truth).lower()
