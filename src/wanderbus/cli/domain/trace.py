"""``wanderbus trace``: the way of an event through the servers of a domain, without publishing it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
import typer

from wanderbus import filters
from wanderbus.broker.servers.server_users import server_of
from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting_all
from wanderbus.cli.domain.dry_run import Predicted, predicted
from wanderbus.cli.domain.servers_asked import DomainFile, ServerAnswer, ask_all, domain_of, moved_groups
from wanderbus.cli.domain.status import leaders_by
from wanderbus.cli.output import counted, print_json, print_line, run_async
from wanderbus.cli.pub import attribute
from wanderbus.client.operator import Operator
from wanderbus.errors import ConfigurationError
from wanderbus.event import Event, check_event, merge_repeated
from wanderbus.filters.work import Sizes, work_of
from wanderbus.operator_rows import AdvertisementInfo, GroupInfo, RouteInfo, SessionInfo, SubscriptionInfo
from wanderbus.parameters.broker import FILTER_WORK_MAX
from wanderbus.runtime.system_random import wall_us
from wanderbus.settings.event_domain import Channel, EventDomain
from wanderbus.subscription import check_event_subject, concerns


class ServerState(msgspec.Struct, frozen=True):
    """All subscriptions, sessions and advertisements at a server, and what other servers want of its publishers."""

    subscriptions: list[SubscriptionInfo]
    sessions: dict[tuple[str, str], SessionInfo]
    routes: list[RouteInfo]
    advertisements: list[AdvertisementInfo]
    groups: list[GroupInfo] = []


class MatchedFilter(msgspec.Struct, frozen=True):
    """A filter of a server that matches the event: its subscription at the leader, or a route of its publishers."""

    subscription: str | None
    subject: str
    expression: str


class Admitted(msgspec.Struct, frozen=True):
    """Users whose advertisements match the event, and the reason for which it would be refused, if it would be."""

    advertised_by: tuple[str, ...]
    refusal: str | None = None


class TraceStop(msgspec.Struct, frozen=True, kw_only=True):
    """One server on the way of the event.

    ``wanted`` are its filters that match where the event is sent from: at the leader, or, in a decentralised channel,
    at the publisher's server. ``is_reached`` is whether the event comes here, after ``hops`` links between servers.
    """

    server: str
    is_leader: bool
    is_reached: bool
    hops: int | None
    error: str | None = None
    wanted: tuple[MatchedFilter, ...] = ()
    subscriptions: tuple[Predicted, ...] = ()
    others: int = 0
    """Subscriptions to the subject that do not match, and are not shown."""


@visiting_all
def trace(
    subject: Annotated[str, typer.Argument(help="Subject of the event.", show_default=False)],
    attributes: Annotated[
        list[str] | None, typer.Argument(help="Attributes as NAME=VALUE, as for 'pub'.", show_default=False)
    ] = None,
    *,
    connection: ConnectionOptions,
    event_domain: DomainFile = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="SERVER", help="Server at which it is published.", show_default="the first in the file"),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also show subscriptions to the subject that do not match, and why.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show where an event would go, and which subscriptions it would match; publishes nothing.

    Shows the channel group and its leader, the servers that want the event and by which filter, and at each server the
    matching subscriptions with their outcome. Where advertisements are required, shows those that match. Asks every
    server over SIP; elsewhere it needs the role of operator. Exit status 1 if a server does not answer.

    It is a prediction from listings of this moment. It does not check whether the user may publish, the bounds of
    queues and of work, queue policies, restrictions that are the operator's code, detections of patterns, or the
    matching engine. 'wanderbus explain' says what happened to an event.

    Example: wanderbus trace Departure Dest=IAH DepDelay=42.0 --at s2 --user sip:alice@example.org
    """
    event = check_event(Event(subject, merge_repeated([attribute(text) for text in attributes or ()])))
    check_event_subject(subject)
    domain = domain_of(event_domain)
    servers = domain.settings.present
    at = at or next(iter(servers))
    if at not in servers:
        raise ConfigurationError(f"--at: the domain has no server {at!r} (expected {' or '.join(servers)})")
    answers = run_async(ask_all(connection, event_domain, _state))
    domain.directory.use(leaders_by(each.found.groups for each in answers.values() if each.found is not None))
    channel = domain.channel(subject)
    admitted, stops = _stops(event, domain, channel, at, answers)
    if json:
        print_json({**msgspec.structs.asdict(channel), "at": at, **msgspec.structs.asdict(admitted)})
        for stop in stops:
            print_json(stop if every else _matching(stop))
    else:
        for line in _lines(channel, at, admitted, stops, every=every):
            print_line(line)
    if any(stop.error is not None for stop in stops):
        raise typer.Exit(1)


async def _state(operator: Operator) -> ServerState:
    return ServerState(
        [row async for row in operator.subscriptions()],
        {(row.user, row.session): row async for row in operator.sessions()},
        [row async for row in operator.routes()],
        [row async for row in operator.advertisements()],
        await moved_groups(operator),
    )


def _admitted(event: Event, lineage: Sequence[str], channel: Channel, state: ServerState | None) -> Admitted:
    """Return whether the publisher's server would accept the event, as far as advertisements decide that."""
    if channel.advertisements != "required" or state is None:
        return Admitted(())
    found = [each for each in state.advertisements if _matches(event, lineage, each, each.language)]
    if any(each.counts for each in found):
        return Admitted(tuple(sorted({each.user for each in found if each.counts})))
    why = "the advertisements that match it do not count yet" if found else "no advertisement there matches it"
    return Admitted((), why)


def _matches(
    event: Event, lineage: Sequence[str], wanted: AdvertisementInfo | RouteInfo, language: str = "eci"
) -> bool:
    is_concerned = any(concerns(wanted.subject, name) for name in lineage)
    if not is_concerned:
        return False
    interest = filters.parse(wanted.expression, language)
    if work_of(interest.root).units(Sizes(event.attributes)) > FILTER_WORK_MAX:
        return isinstance(wanted, RouteInfo)  # servers get such events, and advertisements do not admit them
    return interest.matches(event)


def _wanted(
    event: Event, lineage: Sequence[str], channel: Channel, state: ServerState | None, domain: str, now_us: int
) -> Mapping[str, Sequence[MatchedFilter]]:
    """Return the filters of each other server that match the event, at the server that sends it to the others."""
    wanted: dict[str, list[MatchedFilter]] = {}
    if state is None:
        return wanted
    if channel.model == "decentralised":
        for route in state.routes:
            if _matches(event, lineage, route):
                wanted.setdefault(route.server, []).append(MatchedFilter(None, route.subject, route.expression))
        return wanted
    rows = {row.subscription: row for row in state.subscriptions if server_of(row.user, domain) is not None}
    for each in predicted(event, lineage, rows.values(), {}, now_us):
        if each.is_match:
            row = rows[each.subscription]
            server = server_of(row.user, domain) or ""
            wanted.setdefault(server, []).append(MatchedFilter(row.subscription, row.subject, row.expression))
    return wanted


def _stops(
    event: Event,
    domain: EventDomain,
    channel: Channel,
    at: str,
    answers: Mapping[str, ServerAnswer[ServerState]],
) -> tuple[Admitted, list[TraceStop]]:
    """Return whether the event is accepted, and the servers: first the one that sends it to the others."""
    name, lineage = domain.settings.name, domain.directory.groups.hierarchy.lineage(event.subject)
    now_us = wall_us()
    sender = channel.leader if channel.model == "ordered" else at
    admitted = _admitted(event, lineage, channel, answers[at].found)
    wanted = {} if admitted.refusal else _wanted(event, lineage, channel, answers[sender].found, name, now_us)
    stops = []
    for server in sorted(answers, key=lambda each: each != sender):
        state, reached = answers[server].found, not admitted.refusal and (server == sender or server in wanted)
        own = () if state is None else [row for row in state.subscriptions if server_of(row.user, name) is None]
        outcomes = () if state is None else tuple(predicted(event, lineage, own, state.sessions, now_us))
        stop = TraceStop(
            server=server,
            is_leader=server == channel.leader,
            is_reached=reached,
            hops=(at != sender) + (server != sender) if reached else None,
            error=answers[server].error,
            wanted=tuple(wanted.get(server, ())),
            subscriptions=outcomes,
        )
        stops.append(stop)
    return admitted, stops


def _matching(stop: TraceStop) -> TraceStop:
    """Return the stop without the subscriptions that do not match."""
    matching = tuple(each for each in stop.subscriptions if each.is_match)
    return msgspec.structs.replace(stop, subscriptions=matching, others=len(stop.subscriptions) - len(matching))


def _lines(channel: Channel, at: str, admitted: Admitted, stops: list[TraceStop], *, every: bool) -> Iterator[str]:
    group, epoch = channel.group, channel.epoch
    yield f"{channel.subject}: channel group {group}, leader {channel.leader} under epoch {epoch}, {channel.model}"
    yield f"published at {at}: {_first_step(channel, at, admitted)}"
    for stop in stops if admitted.refusal is None else [each for each in stops if each.error is not None]:
        shown = stop if every else _matching(stop)
        yield f"{stop.server}: {', '.join(_facts(stop))}"
        for wanted in stop.wanted:
            by = "" if wanted.subscription is None else f"{wanted.subscription}: "
            yield f"  wants it by {by}{wanted.subject}: {wanted.expression or 'all events'}"
        for each in shown.subscriptions:
            outcome = f"{each.verdict.replace('_', ' ')}: {each.reason}"
            yield f"  {each.subscription} of {each.user}, session {each.session}: {outcome}"
        if shown.others:
            yield f"  {counted(shown.others, 'other subscription')} to this subject; --all shows why they do not match"


def _first_step(channel: Channel, at: str, admitted: Admitted) -> str:
    if admitted.refusal is not None:
        return f"refused, because {admitted.refusal}; see 'wanderbus advertisements'"
    if channel.model == "ordered":
        return f"{counted(int(at != channel.leader), 'hop')} to the leader"
    advertised = f", advertised by {', '.join(admitted.advertised_by)}" if admitted.advertised_by else ""
    return f"sent from there to the servers that want it{advertised}"


def _facts(stop: TraceStop) -> Iterator[str]:
    if stop.is_leader:
        yield "leader"
    if stop.hops is not None:
        yield counted(stop.hops, "hop")
    if stop.error is not None:
        yield f"gives no answer: {stop.error}"
        return
    matching = sum(each.is_match for each in stop.subscriptions)
    if stop.is_reached:
        yield f"matches {counted(matching, 'subscription')}"
    elif matching:
        yield f"not reached, in spite of {counted(matching, 'matching subscription')}: see 'wanderbus domain status'"
    else:
        yield "does not want it"
