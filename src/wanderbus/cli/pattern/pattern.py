"""``wanderbus pattern``: commands that read, explain and run patterns of compound events (SPEC T-07, S-06)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from wanderbus import cloudevents
from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.filter_input import given_text
from wanderbus.cli.output import print_error, print_json, print_line
from wanderbus.cli.pattern.event_lines import occurrences
from wanderbus.errors import ConfigurationError
from wanderbus.event_text import write
from wanderbus.patterns import NEVER_US, Counts, Detection, Pattern, compile_pattern
from wanderbus.patterns.explanation import explain as explanation
from wanderbus.patterns.explanation import lines_of

app = typer.Typer(
    help="Read, explain and run patterns of compound events.", no_args_is_help=True, rich_markup_mode=None
)

Text = Annotated[str | None, typer.Argument(help="The pattern, unless --file is given.", show_default=False)]
File = Annotated[Path | None, typer.Option("--file", help="File that contains the pattern; - is standard input.")]

_BATCH: Final = 1_000
"""Events that are matched at a time."""


@app.command()
def check(text: Text = None, file: File = None, json: AsJson = False) -> None:
    """Read a pattern and print its steps; exit status 2 if it cannot be read, with the place of the error.

    Example: wanderbus pattern check 'by Tail match A: arrival (delay > 30) then B: departure within 2 hours'
    """
    pattern = _pattern(text, file)
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
    pattern = _pattern(text, file)
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
    json: AsJson = False,
) -> None:
    """Find a pattern in a file of events and print each detection, the earliest first.

    An event is a JSON object with the members subject and attributes, and at_us, the time of its receipt in
    microseconds since 1970, or published_us; or a CloudEvent. Members offset and id are optional: without an offset an
    event has the number of its line. The events may be in any order. A date among the attributes is written
    {"Date": "2026-11-21T10:00:00Z"}.

    Example: wanderbus pattern run --file late.pattern --events events.jsonl
    """
    if events is None:
        raise ConfigurationError("give the file of events with --events; - is standard input")
    if events == file:
        raise ConfigurationError("one file cannot be the pattern and the events")
    pattern = _pattern(text, file)
    seen = pattern.classify(occurrences(events))
    seen.sort(key=lambda each: (each.time_us, each.offset))
    state = pattern.start()
    for first in range(0, len(seen), _BATCH):
        batch = seen[first : first + _BATCH]
        state, detections = pattern.advance(state, batch, batch[-1].time_us)
        _print_detections(detections, json=json)
    state, detections = pattern.advance(state, (), NEVER_US)
    _print_detections(detections, json=json)
    _report_refused(state.counts)


def _pattern(text: str | None, file: Path | None) -> Pattern:
    if (text is None) == (file is None):
        raise ConfigurationError("give the pattern either as an argument or with --file")
    return compile_pattern(given_text(text, file))


def _print_detections(detections: Iterable[Detection], *, json: bool) -> None:
    for each in detections:
        _print_detection(each, json=json)


def _print_detection(detection: Detection, *, json: bool) -> None:
    event = detection.to_event()
    if not json:
        print_line(f"{detection.at_us} {write(event)}")
        return
    print_json(
        {
            "id": detection.id,
            "pattern": detection.pattern,
            "key": msgspec.json.decode(detection.key),
            "at_us": detection.at_us,
            "events": [{"step": each.step, "offset": each.offset, "id": each.id} for each in detection.events],
            "subject": detection.subject,
            "attributes": cloudevents.to_json(detection.attributes),
        }
    )


def _report_refused(counts: Counts) -> None:
    """Print a line for each bound that was met: detections may be missing."""
    refused = (
        (counts.waiting_full, "events were refused: too many of one key"),
        (counts.partial_full, "partial matches were refused: one key had too many"),
        (counts.long, "partial matches were not continued: they had too many events"),
    )
    for count, reason in refused:
        if count:
            print_error(f"{count} {reason}; detections may be missing")
