"""``wanderbus pattern``: commands that read, explain and run patterns of compound events (SPEC T-07, S-06)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from wanderbus import cloudevents
from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.filter_input import named, text_of
from wanderbus.cli.output import print_json, print_line
from wanderbus.cli.pattern.detection_output import print_detections, report_refused
from wanderbus.cli.pattern.follow import follow
from wanderbus.cli.pattern.pattern_input import File, Text, given_pattern, with_parents
from wanderbus.cli.pipeline.past_events import EventsPlace, From, Lakes, Log, To, spark_history, wanted_events
from wanderbus.cli.pipeline.spark_options import Cores, Environment, Master, SparkPlace, needing_packages
from wanderbus.cli.pipeline.subject_parents import EventDomain, parents_given
from wanderbus.errors import ConfigurationError, EventError
from wanderbus.event import Event, check_event
from wanderbus.patterns import NEVER_US, AcceptedEvent, Counts, Pattern
from wanderbus.patterns.explanation import explain as explanation
from wanderbus.patterns.explanation import lines_of

app = typer.Typer(
    help="Read, explain and run patterns of compound events.", no_args_is_help=True, rich_markup_mode=None
)

app.command()(follow)

_BATCH: Final = 1_000
"""Events that are matched at a time."""


def occurrences(file: Path) -> Iterator[AcceptedEvent]:
    """Yield the events of a file without its blank lines; :class:`ConfigurationError` names a line that is no event."""
    for number, line in enumerate(text_of(file).split("\n"), start=1):
        if line.strip():
            try:
                yield _occurrence(line, number)
            except EventError as error:
                raise ConfigurationError(f"{named(file)}, line {number}: {error}") from None


def _occurrence(line: str, number: int) -> AcceptedEvent:
    try:
        members = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise EventError(f"it is not a JSON object: {error}") from None
    if "specversion" in members:
        event = cloudevents.read(line)
        return _placed(event, {"id": str(members.get("id", ""))}, number)
    subject, attributes = members.get("subject"), members.get("attributes")
    if not isinstance(subject, str) or not isinstance(attributes, dict):
        raise EventError("an event has a subject, a text, and attributes, an object")
    published_us = members.get("published_us")
    return _placed(check_event(Event(subject, cloudevents.from_json(attributes), published_us)), members, number)


def _placed(event: Event, members: dict[str, Any], number: int) -> AcceptedEvent:
    at_us = members.get("at_us", event.published_us)
    offset, id = members.get("offset", number), members.get("id", "")
    if type(at_us) is not int or not -(2**62) < at_us < 2**62:
        raise EventError("an event has a time: at_us or published_us, in microseconds since 1970")
    if type(offset) is not int or not 0 <= offset < 2**63 or not isinstance(id, str):
        raise EventError("an offset is a whole number from 0 on, and an id a text")
    return AcceptedEvent(event, offset, at_us, id)


def print_past_detections(pattern: Pattern, place: EventsPlace, *, json: bool) -> None:
    """Print the detections in past events, the earliest first, and report what bounds refused."""
    with needing_packages("patterns"):
        wanted = wanted_events(place)
    with spark_history(wanted, "patterns", place.spark) as past:
        from wanderbus.pipeline.patterns import outcomes
        from wanderbus.pipeline.patterns.detections import REFUSED, detection_of

        counts, own = Counts(), Pattern(pattern.text, pattern.bounds, wanted.children)
        for row in outcomes(past.events, own).orderBy("at_us", "events.offset", "id").toLocalIterator():
            if row.id is None:
                for name in REFUSED:
                    setattr(counts, name, getattr(counts, name) + row[name])
            else:
                print_detections([detection_of(row.detection)], json=json)
    report_refused(counts)


@app.command()
def check(text: Text = None, file: File = None, json: AsJson = False) -> None:
    """Read a pattern and print its steps; exit status 2 if it cannot be read, with the place of the error.

    Example: wanderbus pattern check 'by Tail match A: arrival (delay > 30) then B: departure within 2 hours'
    """
    pattern = given_pattern(text, file)
    steps = [step.name for step in pattern.declaration.steps]
    if json:
        print_json({"name": pattern.name, "keys": list(pattern.keys), "steps": steps})
    else:
        print_line(f"{pattern.name}: {', '.join(steps)}")


@app.command()
def explain(text: Text = None, file: File = None, json: AsJson = False) -> None:
    """Explain a pattern: its steps, its automaton, and the data that it keeps in memory.

    Example: wanderbus pattern explain 'by Tail match A: arrival then not C: swap then B: departure within 2 hours'
    """
    pattern = given_pattern(text, file)
    if json:
        print_json(explanation(pattern))
    else:
        for line in lines_of(pattern):
            print_line(line)


@app.command()
def run(
    text: Text = None,
    file: File = None,
    events: Annotated[
        Path | None, typer.Option("--events", help="File of events, one JSON object per line; - is standard input.")
    ] = None,
    lake: Lakes = None,
    log: Log = None,
    begin: From = None,
    end: To = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    event_domain: EventDomain = None,
    json: AsJson = False,
) -> None:
    """Find a pattern in events and print each detection, the earliest first: a file's, or with Spark a lake's or log's.

    An event in a file is a JSON object with the members subject and attributes, and at_us, the time of its receipt in
    microseconds since 1970, or published_us; or a CloudEvent. Members offset and id are optional: without an offset an
    event has the number of its line. The events may be in any order. A date among the attributes is written
    {"Date": "2026-11-21T10:00:00Z"}.

    Example: wanderbus pattern run --file late.pattern --lake lake --from 2026-11-01
    """
    if (events is not None) + (lake is not None) + (log is not None) != 1:
        raise ConfigurationError("give the events once: a file with --events, - for standard input; or --lake or --log")
    if events is None:
        past = EventsPlace(lake, log, begin, end, SparkPlace(cores, master, environment), event_domain=event_domain)
        print_past_detections(given_pattern(text, file), past, json=json)
        return
    if events == file:
        raise ConfigurationError("one file cannot be the pattern and the events")
    if begin is not None or end is not None:
        raise ConfigurationError("--from and --to are for the events of --lake or --log")
    parents = parents_given(event_domain, ()) or {}
    _run_file(with_parents(given_pattern(text, file), parents), events, json=json)


def _run_file(pattern: Pattern, events: Path, *, json: bool) -> None:
    seen = pattern.classify(occurrences(events))
    seen.sort(key=lambda each: (each.time_us, each.offset))
    state = pattern.start()
    for first in range(0, len(seen), _BATCH):
        batch = seen[first : first + _BATCH]
        state, detections = pattern.advance(state, batch, batch[-1].time_us)
        print_detections(detections, json=json)
    state, detections = pattern.advance(state, (), NEVER_US)
    print_detections(detections, json=json)
    report_refused(state.counts)
