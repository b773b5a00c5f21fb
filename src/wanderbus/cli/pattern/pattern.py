"""``wanderbus pattern``: commands that read, explain and run patterns of compound events (SPEC T-07, S-06)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.output import print_json, print_line
from wanderbus.cli.pattern.detection_output import print_detections, report_refused
from wanderbus.cli.pattern.event_lines import occurrences
from wanderbus.cli.pattern.follow import follow
from wanderbus.cli.pattern.past_detections import print_past_detections
from wanderbus.cli.pattern.pattern_input import File, Text, given_pattern, with_parents
from wanderbus.cli.pipeline.past_events import From, Log, Place, To
from wanderbus.cli.pipeline.spark_options import Cores, Environment, Master, SparkPlace
from wanderbus.cli.pipeline.subject_parents import EventDomain, parents_given
from wanderbus.errors import ConfigurationError
from wanderbus.patterns import NEVER_US, Pattern
from wanderbus.patterns.explanation import explain as explanation
from wanderbus.patterns.explanation import lines_of

app = typer.Typer(
    help="Read, explain and run patterns of compound events.", no_args_is_help=True, rich_markup_mode=None
)

app.command()(follow)

_BATCH: Final = 1_000
"""Events that are matched at a time."""


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
    lake: Annotated[
        Path | None, typer.Option("--lake", help="Directory of a lake with the events.", show_default=False)
    ] = None,
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
        past = Place(lake, log, begin, end, SparkPlace(cores, master, environment), event_domain=event_domain)
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
