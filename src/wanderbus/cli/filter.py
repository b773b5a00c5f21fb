"""``wanderbus filter``: commands that read, match, explain, compare and merge filters (SPEC U-01)."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import typer

from wanderbus import cloudevents
from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.filter_input import InLanguage, Language, filter_and_event, one_filter, several_filters
from wanderbus.cli.output import print_json, print_line, print_lines
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

Text = Annotated[str | None, typer.Argument(help="The filter, unless --file is given.", show_default=False)]
FilterAndEvent = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILTER] [EVENT]",
        help="The filter unless --file is given, then the event unless --event-file is given: a JSON object with the "
        "attributes, one with the members subject and attributes, or a CloudEvent.",
        show_default=False,
    ),
]
Texts = Annotated[list[str] | None, typer.Argument(help="Filters, unless --file is given.", show_default=False)]
File = Annotated[Path | None, typer.Option("--file", help="File that contains the filter; - is standard input.")]
EventFile = Annotated[
    Path | None, typer.Option("--event-file", help="File that contains the event; - is standard input.")
]
Lines = Annotated[Path | None, typer.Option("--file", help="File of filters, one per line; - is standard input.")]


@app.command()
def check(
    text: Text = None,
    file: File = None,
    language: InLanguage = ECI,
    as_xml: Annotated[bool, typer.Option("--xml", help="Print the filter as XML.")] = False,
    json: AsJson = False,
) -> None:
    """Read a filter and print its canonical form; exit status 2 if it cannot be read, with the place of the error.

    Example: wanderbus filter check "(Stock == PETR4) and (Price < 25)"
    """
    read = one_filter(text, file, language)
    if json:
        print_json({"language": read.language, "eci": str(read), "xml": xml.write(read.root)})
    else:
        print_lines(xml.write(read.root) if as_xml else str(read))


@app.command()
def normal(text: Text = None, file: File = None, language: InLanguage = ECI, json: AsJson = False) -> None:
    """Print the disjunctive normal form of a filter: one conjunction per line, of which at least one must hold.

    Example: wanderbus filter normal "Stock == PETR4 and not (Price < 25 or Price > 30)"
    """
    form = normal_form(one_filter(text, file, language))
    if json:
        print_json({"conjunctions": [_conjunction_json(each) for each in form]})
    else:
        for each in form:
            print_line(eci.write(to_node((each,))))
        if not form:
            print_line(eci.write(NOTHING))


@app.command()
def match(
    filter_and_event_given: FilterAndEvent = None,
    file: File = None,
    event_file: EventFile = None,
    language: InLanguage = ECI,
    json: AsJson = False,
) -> None:
    """Match an event against a filter: print true, false or unknown; exit status 1 unless true.

    Unknown counts as no match. A date among the attributes is written {"Date": "2026-11-21T10:00:00Z"}.

    Example: wanderbus filter match "Price < 25" '{"Stock": "PETR4", "Price": 24.5}'
    """
    filter, event = filter_and_event(filter_and_event_given, file, event_file, language)
    truth = filter.evaluate(event)
    if json:
        print_json({"truth": truth})
    else:
        print_line(_truth_text(truth))
    _exit_unless(truth is True)


@app.command()
def explain(
    filter_and_event_given: FilterAndEvent = None,
    file: File = None,
    event_file: EventFile = None,
    language: InLanguage = ECI,
    json: AsJson = False,
) -> None:
    """Explain a match: the conditions of a filter that decided, and the values of the event; exit status 1 if no match.

    Example: wanderbus filter explain "Stock == PETR4 and Price < 25" '{"Stock": "PETR4", "Price": 30}'
    """
    filter, event = filter_and_event(filter_and_event_given, file, event_file, language)
    truth = filter.evaluate(event)
    found = deciding(filter.root, event)
    if json:
        print_json({"truth": truth, "deciding": [_deciding_json(each) for each in found]})
    else:
        print_line(_truth_text(truth))
        for each in found:
            print_line(f"  {each.question} is {_truth_text(each.truth)}: {each.why}")
    _exit_unless(truth is True)


@app.command()
def covers(texts: Texts = None, file: Lines = None, language: InLanguage = ECI, json: AsJson = False) -> None:
    """Check whether the first of two filters matches every event that the second one matches; exit status 1 if not.

    If not, prints an example event that only the second filter matches, if one was found.

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
        print_json({"covers": covered, "counterexample": attributes})
    else:
        print_line("true" if covered else "false")
        if attributes is not None:
            print_line(msgspec.json.encode(attributes).decode())
        elif not covered:
            print_line("not proven: no event was found that only the second filter matches")
    _exit_unless(covered)


@app.command()
def merge(
    texts: Texts = None,
    file: Lines = None,
    mode: Annotated[
        Mode,
        typer.Option(
            help="perfect: the result matches exactly the same events; imperfect: fewer filters, which match more "
            "events; adaptive: imperfect, with a precision of at least --precision-min."
        ),
    ] = PERFECT,
    precision_min: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Least precision of adaptive merging: share of wanted matches.")
    ] = PRECISION_MIN,
    language: InLanguage = ECI,
    json: AsJson = False,
) -> None:
    """Merge filters of one subject into fewer filters that match at least the same events; prints one per line.

    Example: wanderbus filter merge "Stock == PETR4 and Price < 25" "Stock == VALE5 and Price < 25"
    """
    filters = several_filters(texts, file, language)
    fewer = merged(filters, cast(Any, mode.value), precision_min=precision_min)
    if json:
        print_json({"given": len(filters), "mode": mode.value, "merged": [str(each) for each in fewer]})
    else:
        for each in fewer:
            print_line(str(each))


def _truth_text(truth: bool | None) -> str:
    return "unknown" if truth is None else "true" if truth else "false"


def _exit_unless(fine: bool) -> None:
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
