"""``wanderbus history``: filters and subscriptions over the events of a lake, or of a server's log (SPEC T-04)."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
import typer

from wanderbus import cloudevents, event_text
from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.filter_input import InLanguage, Language
from wanderbus.cli.output import print_json, print_line
from wanderbus.cli.pipeline.past_events import From, Lake, Log, Past, Place, Server, To, past_events
from wanderbus.cli.pipeline.spark_options import Cores, Environment, Master, SparkPlace
from wanderbus.errors import StorageError
from wanderbus.event import Event
from wanderbus.filters import parse
from wanderbus.subscription import EVERY_SUBJECT, Subscription, instant_shown

app = typer.Typer(help="Run filters and subscriptions over past events.", no_args_is_help=True, rich_markup_mode=None)

_ECI: Final = Language("eci")

Expression = Annotated[str, typer.Argument(help="The filter; '' matches every event.", show_default=False)]
Subject = Annotated[str, typer.Option("--subject", help="Subject of the events; '*' is every subject.")]
Size = Annotated[int, typer.Option("--size", "-n", min=1, help="Events to draw.")]
Seed = Annotated[int, typer.Option("--seed", help="The same seed draws the same events.")]


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
    server: Server = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    json: AsJson = False,
) -> None:
    """Print the events that match a filter, in order of offset.

    Example: wanderbus history match "DepDelay > 120" --subject Departure --from 2026-11-01 --log wanderbus-data
    """
    wanted = _query(expression, subject, language)
    place = Place(lake, log, begin, end, SparkPlace(cores, master, environment), server)
    with past_events(place, "history", subject) as past:
        from wanderbus.pipeline.history import matching_events

        rows = matching_events(past.events, [wanted]).orderBy("offset")
        for row in rows.toLocalIterator():
            _print_event(past, row, json=json)


@app.command("count")
def count(
    expression: Expression,
    subject: Subject = EVERY_SUBJECT,
    begin: From = None,
    end: To = None,
    language: InLanguage = _ECI,
    lake: Lake = None,
    log: Log = None,
    server: Server = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    json: AsJson = False,
) -> None:
    """Print the number of events that match a filter.

    Example: wanderbus history count "DepDelay > 120" --subject Departure --lake lake
    """
    wanted = _query(expression, subject, language)
    place = Place(lake, log, begin, end, SparkPlace(cores, master, environment), server)
    with past_events(place, "history", subject) as past:
        from wanderbus.pipeline.history import count as counts

        found = sum(row.events for row in counts(past.events, [wanted]).collect())
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
    server: Server = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    json: AsJson = False,
) -> None:
    """Print some of the events that match a filter, drawn at random.

    Example: wanderbus history sample "Dest == IAH" -n 5 --subject Departure --lake lake
    """
    wanted = _query(expression, subject, language)
    place = Place(lake, log, begin, end, SparkPlace(cores, master, environment), server)
    with past_events(place, "history", subject) as past:
        from wanderbus.pipeline.history import at_offsets, matching_events
        from wanderbus.pipeline.history import sample as samples

        offsets = [row.offset for row in samples(past.events, [wanted], size, seed).collect()]
        drawn = at_offsets(past.events, offsets)
        for row in matching_events(drawn, [wanted]).orderBy("offset").collect():
            _print_event(past, row, json=json)


@app.command("explain")
def explain(
    expression: Expression,
    offset: Annotated[
        str, typer.Option("--offset", help="Offset of the event in the log; s2:17 in a lake of several servers.")
    ],
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
    place = Place(lake, log, spark=SparkPlace(cores, master, environment))
    with past_events(place, "history", EVERY_SUBJECT) as past:
        from wanderbus.pipeline.history import explain as explained

        at = past.offset(offset)
        found = explained(past.events, wanted, at)
    if json:
        print_json({**msgspec.structs.asdict(found), **past.members(at)})
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
    server: Server = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    json: AsJson = False,
) -> None:
    """Print the events of which a subscription generated notifications, and those that its restrictions blocked.

    Lifetimes, changes and restrictions apply as they did; limits on queues and on the work of filters do not. In a
    domain the events are those that the server of the subscription accepted and those that arrived there.

    Example: wanderbus history replay wb1234-mibx2f9c-17 --from 2026-11-01 --to 2026-12-01 --log wanderbus-data
    """
    place = Place(lake, log, begin, end, SparkPlace(cores, master, environment), server)
    with past_events(place, "history", EVERY_SUBJECT) as past:
        from wanderbus.pipeline.history import absences_of, arrivals, changes_in, versions_of
        from wanderbus.pipeline.history import replay as replayed

        changes = changes_in(past.records())
        versions = [each for each in versions_of(changes) if each.subscription.id == subscription]
        if not versions:
            raise StorageError(f"there is no subscription {subscription}; check the id")
        arrived = past.selection.of_rows(arrivals(past.records()))
        rows = replayed(past.events, versions, absences_of(changes), arrived=arrived).orderBy("offset")
        for row in rows.toLocalIterator():
            _print_decision(past, row, json=json)


def _query(expression: str, subject: str, language: Language) -> Subscription:
    parse(expression, language.value)  # its error points at the place
    return Subscription("", "", "", subject, expression, language=language.value)


# Output
# ---------------------------------------------------------------------------------------------------------------------


def _print_event(past: Past, row: Any, *, json: bool) -> None:
    event = msgspec.msgpack.decode(row.event, type=Event)
    if json:
        attributes = cloudevents.to_json(event.attributes)
        print_json({**past.members(row.offset), "at_us": row.at_us, "subject": event.subject, "attributes": attributes})
    else:
        print_line(f"{past.shown(row.offset)} {instant_shown(row.at_us)} {event_text.write(event)}")


def _print_decision(past: Past, row: Any, *, json: bool) -> None:
    if json:
        print_json({**past.members(row.offset), "at_us": row.at_us, "restricted_by": row.restricted_by})
    else:
        outcome = "notified" if row.restricted_by is None else f"blocked by restriction {row.restricted_by + 1}"
        print_line(f"{past.shown(row.offset)} {instant_shown(row.at_us)} {outcome}")


def _truth(truth: bool | None) -> str:
    return "unknown" if truth is None else str(truth).lower()
