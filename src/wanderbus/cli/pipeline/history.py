"""``wanderbus history``: filters and subscriptions over the events of a lake, or of a server's log (SPEC T-04)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from wanderbus import cloudevents, event_text
from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.filter_input import InLanguage, Language
from wanderbus.cli.output import print_error, print_json, print_line
from wanderbus.cli.pipeline.past_answers import PastAnswers, WithSpark, WithSparkForOne, past_answers, past_answers_at
from wanderbus.cli.pipeline.past_events import EventsPlace, From, Lakes, Log, Server, To
from wanderbus.cli.pipeline.rejected import STATUS
from wanderbus.cli.pipeline.spark_options import Cores, Environment, Master, SparkPlace
from wanderbus.cli.pipeline.subject_parents import EventDomain
from wanderbus.errors import StorageError
from wanderbus.event import Event
from wanderbus.filters import parse
from wanderbus.parameters.broker import FILTER_WORK_MAX
from wanderbus.subscription import EVERY_SUBJECT, Custom, Subscription, instant_shown

if TYPE_CHECKING:
    from wanderbus.pipeline.history.answers import Found, PastDecision
    from wanderbus.pipeline.history.lifetimes import SubscriptionVersion

app = typer.Typer(help="Run filters and subscriptions over past events.", no_args_is_help=True, rich_markup_mode=None)

_ECI: Final = Language("eci")

Expression = Annotated[str, typer.Argument(help="The filter; '' matches every event.", show_default=False)]
Subject = Annotated[str, typer.Option("--subject", help="Subject of the events; '*' is every subject.")]
Size = Annotated[int, typer.Option("--size", "-n", min=1, help="Events to draw.")]
WorkMax = Annotated[
    int,
    typer.Option(
        "--filter-work-max",
        min=1,
        help="Units of work of a filter for one event, as broker.filter_work_max; beyond it the event is undecided.",
    ),
]
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
    lake: Lakes = None,
    log: Log = None,
    server: Server = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    event_domain: EventDomain = None,
    spark: WithSpark = None,
    work_max: WorkMax = FILTER_WORK_MAX,
    json: AsJson = False,
) -> None:
    """Print the events that match a filter, in order of offset, those of several lakes in order of time.

    With several lakes each event is printed once, after the domain that published it.

    Example: wanderbus history match "DepDelay > 120" --subject Departure --from 2026-11-01 --log wanderbus-data
    """
    wanted = _query(expression, subject, language)
    place = EventsPlace(lake, log, begin, end, SparkPlace(cores, master, environment), server, event_domain)
    with past_answers(place, spark, subject) as past:
        every = past.subscriptions(wanted)
        for found in past.ask(lambda history: history.matching(every, work_max)):
            _print_event(past, found, json=json)
        left_out = _undecided(past, wanted, work_max)
    if left_out and json:
        print_json({"undecided": left_out, "filter_work_max": work_max})
    _require_decided(left_out, work_max)


@app.command("count")
def count(
    expression: Expression,
    subject: Subject = EVERY_SUBJECT,
    begin: From = None,
    end: To = None,
    language: InLanguage = _ECI,
    lake: Lakes = None,
    log: Log = None,
    server: Server = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    event_domain: EventDomain = None,
    spark: WithSpark = None,
    work_max: WorkMax = FILTER_WORK_MAX,
    json: AsJson = False,
) -> None:
    """Print the number of events that match a filter.

    Example: wanderbus history count "DepDelay > 120" --subject Departure --lake lake
    """
    wanted = _query(expression, subject, language)
    place = EventsPlace(lake, log, begin, end, SparkPlace(cores, master, environment), server, event_domain)
    with past_answers(place, spark, subject) as past:
        every = past.subscriptions(wanted)
        found = past.ask(lambda history: history.count(every, work_max))
        left_out = _undecided(past, wanted, work_max)
    if json:
        print_json({"events": found, "undecided": left_out})
    else:
        print_line(str(found))
    _require_decided(left_out, work_max)


@app.command("sample")
def sample(
    expression: Expression,
    subject: Subject = EVERY_SUBJECT,
    size: Size = 10,
    seed: Seed = 0,
    begin: From = None,
    end: To = None,
    language: InLanguage = _ECI,
    lake: Lakes = None,
    log: Log = None,
    server: Server = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    event_domain: EventDomain = None,
    spark: WithSpark = None,
    work_max: WorkMax = FILTER_WORK_MAX,
    json: AsJson = False,
) -> None:
    """Print some of the events that match a filter, drawn at random.

    Example: wanderbus history sample "Dest == IAH" -n 5 --subject Departure --lake lake
    """
    wanted = _query(expression, subject, language)
    place = EventsPlace(lake, log, begin, end, SparkPlace(cores, master, environment), server, event_domain)
    with past_answers(place, spark, subject) as past:
        every = past.subscriptions(wanted)
        for found in past.ask(lambda history: history.sample(every, size, seed, work_max)):
            _print_event(past, found, json=json)
        left_out = _undecided(past, wanted, work_max)
    if left_out and json:
        print_json({"undecided": left_out, "filter_work_max": work_max})
    _require_decided(left_out, work_max)


@app.command("explain")
def explain(
    expression: Expression,
    offset: Annotated[
        str,
        typer.Option(
            "--offset",
            help="Offset of the event in the log; s2:17 in a lake of several servers, DOMAIN/17 in several lakes.",
        ),
    ],
    subject: Subject = EVERY_SUBJECT,
    language: InLanguage = _ECI,
    lake: Lakes = None,
    log: Log = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    event_domain: EventDomain = None,
    spark: WithSparkForOne = None,
    work_max: WorkMax = FILTER_WORK_MAX,
    json: AsJson = False,
) -> None:
    """Explain why an event matches a filter, or does not: print the parts of the filter that decide.

    Example: wanderbus history explain "DepDelay > 120 and Dest == IAH" --offset 1042 --log wanderbus-data
    """
    wanted = _query(expression, subject, language)
    place = EventsPlace(lake, log, spark=SparkPlace(cores, master, environment), event_domain=event_domain)
    with past_answers_at(place, spark, offset) as (past, at):
        found = past.ask(lambda history: history.explain(wanted, at, work_max, past.children))
    if json:
        print_json({**msgspec.structs.asdict(found), **past.members(at)})
    elif not found.is_subject:
        print_line(f"does not match: the subject of the event is {found.subject!r}, not {subject!r}")
    elif found.undecided is not None:
        print_line(f"undecided: the filter takes up to {found.undecided} units of work for it; {_limit(work_max)}")
    else:
        reasons = [f"{each.question} is {_truth(each.truth)}: {each.why}" for each in found.predicates]
        verdict = "matches" if found.matches else "does not match"
        print_line(f"{verdict}: {'; '.join(reasons)}" if reasons else verdict)


@app.command("replay")
def replay(
    subscription: Annotated[str, typer.Argument(help="Id of the subscription.", show_default=False)],
    begin: From = None,
    end: To = None,
    lake: Lakes = None,
    log: Log = None,
    server: Server = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    event_domain: EventDomain = None,
    spark: WithSpark = None,
    work_max: WorkMax = FILTER_WORK_MAX,
    json: AsJson = False,
) -> None:
    """Print the events of which a subscription generated notifications, and those that its restrictions blocked.

    Lifetimes, changes and restrictions apply as they did; limits on queues and on the work of all filters of a user do
    not. A restriction of the server's operator is refused, because its code is not here. In a domain the events are
    those that the server of the subscription accepted and those that arrived there.

    Example: wanderbus history replay wb1234-mibx2f9c-17 --from 2026-11-01 --to 2026-12-01 --log wanderbus-data
    """
    place = EventsPlace(lake, log, begin, end, SparkPlace(cores, master, environment), server, event_domain)
    with past_answers(place, spark, has_records=True) as past:
        from wanderbus.pipeline.history import absences_of, versions_of

        changes = past.ask(lambda history: history.changes())
        versions = [each for each in versions_of(changes) if each.subscription.id == subscription]
        lost = past.lost()
        where = f" in this log, which begins at record {lost}" if lost else ""
        if not versions:
            raise StorageError(f"there is no subscription {subscription}{where}; check the id")
        _require_own_restrictions(versions)
        every = [
            msgspec.structs.replace(each, subscription=own)
            for each in versions
            for own in past.subscriptions(each.subscription)
        ]
        for decided in past.ask(lambda history: history.replay(every, absences_of(changes), work_max)):
            _print_decision(past, decided, json=json)
    if lost:
        print_error(f"the log begins at record {lost}: earlier versions of {subscription} and absences are not known")


def _query(expression: str, subject: str, language: Language) -> Subscription:
    parse(expression, language.value)  # its error points at the place
    return Subscription("", "", "", subject, expression, language=language.value)


def _require_own_restrictions(versions: Sequence[SubscriptionVersion]) -> None:
    """Return if none of the restrictions is of a kind of the operator, which this command cannot decide."""
    every = (one for version in versions for one in version.subscription.restrictions)
    if (unknown := next((one.kind for one in every if isinstance(one, Custom)), None)) is not None:
        raise StorageError(
            f"the restriction {unknown!r} is of the server's operator and cannot be decided here; its decisions are in "
            "the log: use 'wanderbus explain' for one event"
        )


# Output
# ---------------------------------------------------------------------------------------------------------------------


def _undecided(past: PastAnswers, wanted: Subscription, work_max: int) -> int:
    every = past.subscriptions(wanted)
    return past.ask(lambda history: history.undecided(every, work_max))


def _require_decided(left_out: int, work_max: int) -> None:
    """Say how many events were not decided and exit with :data:`STATUS`; return if there are none."""
    if left_out:
        print_error(f"{left_out} events are undecided: the filter takes too much work for them; {_limit(work_max)}")
        raise typer.Exit(STATUS)


def _limit(work_max: int) -> str:
    return f"the limit is {work_max}: use a cheaper filter, or --filter-work-max"


def _print_event(past: PastAnswers, found: Found, *, json: bool) -> None:
    event = msgspec.msgpack.decode(found.event, type=Event)
    if json:
        attributes = cloudevents.to_json(event.attributes)
        where = past.members(found.offset, found.user)
        print_json({**where, "at_us": found.at_us, "subject": event.subject, "attributes": attributes})
    else:
        where_shown = past.shown(found.offset, found.user)
        print_line(f"{where_shown} {instant_shown(found.at_us)} {event_text.write(event)}")


def _print_decision(past: PastAnswers, decided: PastDecision, *, json: bool) -> None:
    if json:
        print_json(
            {
                **past.members(decided.offset),
                "at_us": decided.at_us,
                "restricted_by": decided.restricted_by,
                "undecided": decided.undecided,
            }
        )
    else:
        notified = "undecided: a gap, since the filter takes too much work" if decided.undecided else "notified"
        outcome = notified if decided.restricted_by is None else f"blocked by restriction {decided.restricted_by + 1}"
        print_line(f"{past.shown(decided.offset)} {instant_shown(decided.at_us)} {outcome}")


def _truth(truth: bool | None) -> str:
    return "unknown" if truth is None else str(truth).lower()
