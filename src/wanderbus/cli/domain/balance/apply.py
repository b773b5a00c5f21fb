"""``wanderbus domain apply``: channel groups move to the servers of a plan (SPEC J-08, T-10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting_all
from wanderbus.cli.domain.balance.steps import RATE, DryRun, Rate, Step, Steps, all_answering
from wanderbus.cli.domain.servers_asked import DomainFile, ask_all, domain_of, moved_groups
from wanderbus.cli.domain.status import present_leaders
from wanderbus.cli.output import counted, print_json, print_line, run_async
from wanderbus.cli.pipeline.plan import read_plan
from wanderbus.errors import ConfigurationError
from wanderbus.planning.group_plans import PlannedGroup, planned_groups
from wanderbus.planning.plan_file import Plan
from wanderbus.planning.rebalancing import ratio
from wanderbus.settings.event_domain import EventDomain


class _Applied(NamedTuple):
    """Moves that a plan asks for at present, and those of them that failed."""

    steps: Sequence[Step]
    failed: Sequence[Step]


@visiting_all
def apply(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="File that 'wanderbus plan' wrote.")],
    *,
    connection: ConnectionOptions,
    dry_run: DryRun = False,
    rate: Rate = RATE,
    event_domain: DomainFile = None,
    json: AsJson = False,
) -> None:
    """Move channel groups one after another until each is led by the server that a plan gives it.

    The servers of the plan are those that may lead channels, in the order of their names. A group whose subjects
    the plan places on several servers goes to the one with most of its load; 'wanderbus plan --event-domain' makes
    plans that keep groups whole. Groups without a subject in the plan stay. No event is lost or repeated. Ctrl-C ends
    the command between two moves; run it again to go on: it moves what is not where the plan wants it. Exit status 1 if
    a move fails. Needs the role of administrator elsewhere.

    Example: wanderbus plan --log wanderbus-domain/data/s1 --event-domain wanderbus-domain/domain.toml --out plan.json

    Example: wanderbus domain apply plan.json --dry-run
    """
    domain = domain_of(event_domain)
    servers = domain.settings.servers_with("resolution")
    found = read_plan(plan)
    if len(found.servers) != len(servers):
        raise ConfigurationError(
            f"{plan} is for {counted(len(found.servers), 'server')}, and {len(servers)} of the domain lead channels; "
            f"make it with --servers {len(servers)}"
        )
    groups = _groups(found, domain)
    if not json:
        _show(groups, servers)
    steps, failed = run_async(_apply(connection, event_domain, groups, servers, rate, dry_run=dry_run, json=json))
    if json:
        print_json({"moves": 0 if dry_run else len(steps) - len(failed), "failed": len(failed)})
    elif not steps:
        print_line("every channel group is where the plan wants it")
    elif not dry_run:
        print_line(f"{counted(len(steps) - len(failed), 'move')} done, {len(failed)} failed")
    if failed:
        raise typer.Exit(1)


def _groups(plan: Plan, domain: EventDomain) -> Mapping[int, PlannedGroup]:
    """Return the groups of the plan; decentralised channels have no leader."""
    groups = domain.directory.groups
    return planned_groups(plan, lambda each: None if domain.is_decentralised(each) else groups.group_of(each))


def _show(groups: Mapping[int, PlannedGroup], servers: Sequence[str]) -> None:
    """Print what the plan gives for whole groups."""
    loads = dict.fromkeys(range(1, len(servers) + 1), 0)
    for group in groups.values():
        loads[group.server] += group.load_us
    print_line(
        f"{counted(len(groups), 'channel group')} in the plan; largest load: {ratio(loads.values()):.2f} times the mean"
    )
    if elsewhere_us := sum(group.elsewhere_us for group in groups.values()):
        share = 100 * elsewhere_us / sum(loads.values())
        print_line(
            f"{share:.0f} % of the load is on another server than in the plan, because groups stay whole; "
            "make the plan with --event-domain"
        )


async def _apply(
    connection: ConnectionOptions,
    file: Path | None,
    groups: Mapping[int, PlannedGroup],
    servers: Sequence[str],
    rate: float,
    *,
    dry_run: bool,
    json: bool,
) -> _Applied:
    answers = await ask_all(connection, file, moved_groups)
    all_answering(answers)
    leaders = present_leaders(domain_of(file), (answer.found or () for answer in answers.values()))
    steps = [
        Step(leaders[group], servers[planned.server - 1], group=group)
        for group, planned in groups.items()
        if leaders[group] != servers[planned.server - 1]
    ]
    performing = Steps(answers, rate, json=json)
    if dry_run:
        performing.show(steps)
        return _Applied(steps, ())
    return _Applied(steps, await performing.perform(steps))
