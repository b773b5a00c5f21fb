"""``wanderbus filter``: what a filter says, what it matches, and how filters stand to each other (SPEC U-01)."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import typer

from wanderbus import cloudevents
from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.filter_input import InLanguage, Language, filter_and_event, one_filter, several_filters
from wanderbus.cli.output import say, say_json, say_lines
from wanderbus.errors import ConfigurationError
from wanderbus.filters import eci, xml
from wanderbus.filters.ast import NOTHING
from wanderbus.filters.counterexamples import counterexample
from wanderbus.filters.covering import covers as is_covering
from wanderbus.filters.explaining import Deciding, deciding
from wanderbus.filters.merging import MODES, PRECISION_MIN
from wanderbus.filters.merging import merge as merged
from wanderbus.filters.normal import AttributeFilter, Conjunction, Interval
from wanderbus.filters.normalising import normal_form, to_node

app = typer.Typer(
    help="Read, normalise, match, explain, compare and merge filters.", no_args_is_help=True, rich_markup_mode=None
)

ECI = Language("eci")
Mode = Enum("Mode", {name: name for name in MODES})  # type: ignore[misc]
PERFECT = Mode("perfect")

Text = Annotated[str | None, typer.Argument(help="The filter, unless --file has it.", show_default=False)]
FilterAndEvent = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILTER] [EVENT]",
        help="The filter unless --file has it, then the event unless --event-file has it: a JSON object of "
        "attributes, one of a subject and attributes, or a CloudEvent.",
        show_default=False,
    ),
]
Texts = Annotated[list[str] | None, typer.Argument(help="Filters, unless --file has them.", show_default=False)]
File = Annotated[Path | None, typer.Option("--file", help="File of the filter; - is standard input.")]
EventFile = Annotated[Path | None, typer.Option("--event-file", help="File of the event; - is standard input.")]
Lines = Annotated[Path | None, typer.Option("--file", help="File of filters, one a line; - is standard input.")]


@app.command()
def check(
    text: Text = None,
    file: File = None,
    language: InLanguage = ECI,
    as_xml: Annotated[bool, typer.Option("--xml", help="Print it in XML.")] = False,
    json: AsJson = False,
) -> None:
    """Read a filter and print it in its canonical form; exit status 2 shows where it cannot be read.

    Example: wanderbus filter check "(Stock == PETR4) and (Price < 25)"
    """
    read = one_filter(text, file, language)
    if json:
        say_json({"language": read.language, "eci": str(read), "xml": xml.write(read.root)})
    else:
        say_lines(xml.write(read.root) if as_xml else str(read))


@app.command()
def normal(text: Text = None, file: File = None, language: InLanguage = ECI, json: AsJson = False) -> None:
    """Print the normal form of a filter: one line for each conjunction, some of which must hold.

    Example: wanderbus filter normal "Stock == PETR4 and not (Price < 25 or Price > 30)"
    """
    form = normal_form(one_filter(text, file, language))
    if json:
        say_json({"conjunctions": [_conjunction_json(each) for each in form]})
    else:
        for each in form:
            say(eci.write(to_node((each,))))
        if not form:
            say(eci.write(NOTHING))


@app.command()
def match(
    filter_and_event_given: FilterAndEvent = None,
    file: File = None,
    event_file: EventFile = None,
    language: InLanguage = ECI,
    json: AsJson = False,
) -> None:
    """Say whether an event matches: true, false, or unknown, which is no match either; exit status 1 if it does not.

    In attributes a date is written {"Date": "2026-11-21T10:00:00Z"}.

    Example: wanderbus filter match "Price < 25" '{"Stock": "PETR4", "Price": 24.5}'
    """
    filter, event = filter_and_event(filter_and_event_given, file, event_file, language)
    truth = filter.evaluate(event)
    if json:
        say_json({"truth": truth})
    else:
        say(_word(truth))
    _leave(truth is True)


@app.command()
def explain(
    filter_and_event_given: FilterAndEvent = None,
    file: File = None,
    event_file: EventFile = None,
    language: InLanguage = ECI,
    json: AsJson = False,
) -> None:
    """Say which questions of a filter decided for an event, and by which values; exit status 1 if it does not match.

    Example: wanderbus filter explain "Stock == PETR4 and Price < 25" '{"Stock": "PETR4", "Price": 30}'
    """
    filter, event = filter_and_event(filter_and_event_given, file, event_file, language)
    truth = filter.evaluate(event)
    found = deciding(filter.root, event)
    if json:
        say_json({"truth": truth, "deciding": [_deciding_json(each) for each in found]})
    else:
        say(_word(truth))
        for each in found:
            say(f"  {each.question} is {_word(each.truth)}: {each.why}")
    _leave(truth is True)


@app.command()
def covers(texts: Texts = None, file: Lines = None, language: InLanguage = ECI, json: AsJson = False) -> None:
    """Say whether the first of two filters matches every event that the second one matches; exit status 1 if not.

    If not, an event follows that the second one matches and the first one does not, where one is found.

    Example: wanderbus filter covers "Price < 30" "Stock == PETR4 and Price < 25"
    """
    filters = several_filters(texts, file, language)
    if len(filters) != 2:
        raise ConfigurationError(f"give two filters, not {len(filters)}")
    one, other = filters
    covered = is_covering(one, other)
    example = None if covered else counterexample(one, other)
    attributes = None if example is None else cloudevents.to_json(example.attributes)
    if json:
        say_json({"covers": covered, "counterexample": attributes})
    else:
        say("true" if covered else "false")
        if attributes is not None:
            say(msgspec.json.encode(attributes).decode())
        elif not covered:
            say("no event was found that tells them apart: what is not seen to cover is taken not to")
    _leave(covered)


@app.command()
def merge(
    texts: Texts = None,
    file: Lines = None,
    mode: Annotated[
        Mode,
        typer.Option(
            help="perfect: together they match what the given ones match; imperfect: more, but fewer filters; "
            "adaptive: imperfect as far as --precision-min allows."
        ),
    ] = PERFECT,
    precision_min: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of what 'adaptive' matches that was asked for, at least.")
    ] = PRECISION_MIN,
    language: InLanguage = ECI,
    json: AsJson = False,
) -> None:
    """Merge filters of one subject to fewer ones, which match at least what they did; prints one a line.

    Example: wanderbus filter merge "Stock == PETR4 and Price < 25" "Stock == VALE5 and Price < 25"
    """
    filters = several_filters(texts, file, language)
    fewer = merged(filters, cast(Any, mode.value), precision_min=precision_min)
    if json:
        say_json({"given": len(filters), "mode": mode.value, "merged": [str(each) for each in fewer]})
    else:
        for each in fewer:
            say(str(each))


def _word(truth: bool | None) -> str:
    return "unknown" if truth is None else "true" if truth else "false"


def _leave(fine: bool) -> None:
    if not fine:
        raise typer.Exit(1)


def _deciding_json(found: Deciding) -> dict[str, Any]:
    value = cloudevents.to_json({"value": found.value})["value"]
    return {**msgspec.structs.asdict(found), "value": value}


def _conjunction_json(conjunction: Conjunction) -> dict[str, Any]:
    return {
        "eci": eci.write(to_node((conjunction,))),
        "filters": [_filter_json(each) for each in conjunction.filters],
        "residuals": [eci.write(each) for each in conjunction.residuals],
    }


def _filter_json(asked: AttributeFilter) -> dict[str, Any]:
    terms = [
        {
            "kind": term.kind,
            "region": [_interval_json(each) for each in term.region],
            "patterns": [msgspec.structs.asdict(each) for each in term.patterns],
        }
        for term in asked.terms
    ]
    return {"attribute": asked.attribute, "quantifier": asked.quantifier, "terms": terms}


def _interval_json(interval: Interval) -> dict[str, Any]:
    return cloudevents.to_json(msgspec.structs.asdict(interval))
