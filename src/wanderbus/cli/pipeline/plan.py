"""``wanderbus plan``: a placement of subjects onto servers, from the load of each subject (SPEC T-10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.instants import read_instant
from wanderbus.cli.output import check_writable, print_line, print_lines, print_progress
from wanderbus.cli.pipeline.lake_options import existing_log
from wanderbus.cli.pipeline.past_events import Lakes, Log, require_one_place
from wanderbus.cli.pipeline.spark_options import Cores, Environment, Master, SparkPlace, needing_packages, session
from wanderbus.cli.pipeline.task_progress import task_progress
from wanderbus.errors import ConfigurationError
from wanderbus.planning import Activity, Plan, SubjectInterest, decode_plan, encode_plan, loads_of, make_plan
from wanderbus.planning.placing import SLACK
from wanderbus.runtime.files.domain_file import read_domain
from wanderbus.settings.event_domain import EventDomain
from wanderbus.subscription import instant_us

Counts = tuple[dict[str, Activity], dict[str, SubjectInterest]]


class PlanBounds(NamedTuple):
    """Place of the events, and their time as on the command line."""

    lakes: Sequence[Path] | None
    log: Path | None
    begin: str | None
    end: str | None


def plan(
    servers: Annotated[
        int | None,
        typer.Option(
            "--servers",
            min=1,
            max=10_000,
            help="Number of servers.",
            show_default="with --event-domain those that lead channels",
        ),
    ] = None,
    event_domain: Annotated[
        Path | None,
        typer.Option(
            "--event-domain",
            help="File of a domain: the plan keeps its channel groups whole, for 'wanderbus domain apply'.",
            show_default=False,
        ),
    ] = None,
    lake: Lakes = None,
    log: Log = None,
    begin: Annotated[
        str | None,
        typer.Option("--from", help="Only events from this time on, as 2026-11-21T10:00:00Z.", show_default=False),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Only events before this time.", show_default=False)] = None,
    present: Annotated[
        Path | None, typer.Option("--present", help="Plan that holds now; few subjects move.", show_default=False)
    ] = None,
    slack: Annotated[
        float,
        typer.Option(min=0.0, help="With --present: share by which the largest load may exceed that of a new plan."),
    ] = SLACK,
    out: Annotated[Path | None, typer.Option("--out", help="Write the plan to this file.", show_default=False)] = None,
    cores: Cores = 2,
    master: Master = None,
    environment: Environment = None,
    json: AsJson = False,
) -> None:
    """Plan which server has which subjects, so that the largest load is small.

    The load of a subject is estimated from its events, notifications and bytes, and from the filters against which its
    events are matched after covering and merging. A subject stays whole, also if it is too large for one server. With
    --event-domain, so does each channel group of the domain; its decentralised channels are left out, and without
    --present, few groups move from their leaders of that file. With several lakes the plan is for one domain with
    the users of all: an event counts once, and what goes from one of these domains to another does not count.

    Example: wanderbus plan --lake lake --servers 4 --out plan.json

    Example: wanderbus plan --lake lake --event-domain mydomain/domain.toml --out plan.json
    """
    domain = None if event_domain is None else _domain_of_one_lake(event_domain, lake or ())
    leading = () if domain is None else domain.settings.servers_with("resolution")
    if (count := servers or len(leading)) == 0:
        raise ConfigurationError("--servers: give the number of servers, or --event-domain FILE")
    if leading and count != len(leading):
        raise ConfigurationError(f"--servers: {len(leading)} servers of {event_domain} lead channels, not {servers}")
    now = None if present is None else read_plan(present).server_of
    if out is not None:
        check_writable(out)
    place = SparkPlace(cores, master, environment)
    activities, interests = _counts(PlanBounds(lake, log, begin, end), place)
    loads = loads_of(activities, interests)
    made = make_plan(loads, count, now, slack=slack) if domain is None else _grouped(loads, domain, now, slack)
    if out is not None:
        out.write_bytes(encode_plan(made))
    if json:
        print_lines(encode_plan(made).decode())
    else:
        _show(made, interests, is_change=now is not None or domain is not None)


def _domain_of_one_lake(file: Path, lakes: Sequence[Path]) -> EventDomain:
    """Return the domain in a file; ``ConfigurationError`` if there are several lakes, those of other domains too."""
    if len(lakes) > 1:
        raise ConfigurationError("--event-domain: a domain has the load of its own lake; give that lake alone")
    return read_domain(file)


def read_plan(path: Path) -> Plan:
    """Return the plan in a file; :class:`ConfigurationError` if it cannot be read."""
    try:
        return decode_plan(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None


def _grouped(loads: Mapping[str, int], domain: EventDomain, present: Callable[[str], int] | None, slack: float) -> Plan:
    """Return a plan of whole channel groups; unless a ``present`` one is given, the leaders are those of the file."""
    lookup, leading = domain.directory.lookup, domain.settings.servers_with("resolution")
    numbers = {server: number for number, server in enumerate(leading, 1)}
    return make_plan(
        {subject: load for subject, load in loads.items() if not domain.is_decentralised(subject)},
        len(leading),
        present or (lambda subject: numbers.get(lookup(subject).server)),
        unit_of=lambda subject: str(lookup(subject).group),
        slack=slack,
    )


def _counts(bounds: PlanBounds, place: SparkPlace) -> Counts:
    """Return activity and interest by subject."""
    require_one_place(bounds.lakes, bounds.log)
    log = None if bounds.log is None else existing_log(bounds.log)
    with needing_packages("a plan"):
        from wanderbus.pipeline import plans
        from wanderbus.pipeline.history.domain_lakes import domain_lakes

        period = plans.ActivityPeriod(_time(bounds.begin, "--from"), _time(bounds.end, "--to"))
        lakes = domain_lakes(bounds.lakes or ())
    with session("wanderbus-plan", "a plan", place) as spark:
        from wanderbus.pipeline.session import plain_errors

        with plain_errors(), task_progress(spark):
            if log is not None:
                records = plans.log_records(spark, log)
                activities, subscriptions = plans.log_activities(records, period), plans.log_subscriptions(records)
            else:
                activities = plans.lake_activities(spark, lakes, period)
                subscriptions = plans.lake_subscriptions(spark, lakes)
            print_progress(f"{sum(each.events for each in activities.values())} events of {len(activities)} subjects")
            return activities, plans.interests(subscriptions)


def _time(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    if (instant := read_instant(text, option)) is None:
        raise ConfigurationError(
            f"{option}: invalid time {text!r} (expected a day, or a time as -2h or 2026-11-21T10:00:00Z)"
        )
    return instant_us(instant)


def _show(made: Plan, interests: dict[str, SubjectInterest], *, is_change: bool) -> None:
    table = Table(box=SIMPLE_HEAD, title="Expected load of each server")
    for heading in ("server", "subjects", "processor s", "share %"):
        table.add_column(heading, justify="right", no_wrap=True)
    total = sum(each.load_us for each in made.servers)
    for each in made.servers:
        share = 100 * each.load_us / total if total else 0.0
        table.add_row(str(each.server), str(each.subjects), f"{each.load_us / 1e6:.3f}", f"{share:.1f}")
    Console().print(table)
    whole = sum(interests.values(), SubjectInterest())
    figures = made.figures
    print_line(
        f"interest: {whole.subscriptions} subscriptions, {whole.filters} different filters, "
        f"{whole.uncovered} not covered, {whole.merged} after merging"
    )
    if whole.rejected:
        print_line(f"left out: {whole.rejected} subscriptions with an expression that cannot be parsed")
    print_line(f"largest load: {figures.max_load_vs_hash:.3f} of that of a placement by hash")
    least = figures.load_us_max / figures.load_us_least_max if figures.load_us_least_max else 1.0
    print_line(f"largest load: {least:.3f} of a bound that no placement can be below")
    if is_change:
        print_line(f"moves: {figures.moved_subjects} subjects with {figures.moved_load_us / 1e6:.3f} s of load")
