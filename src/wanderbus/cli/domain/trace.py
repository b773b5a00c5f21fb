"""``wanderbus trace``: the way of an event through the servers of a domain, without publishing it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
import typer

from wanderbus.broker.servers.server_users import server_of
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.cli.connection_options import AsJson, Connection, visiting_all
from wanderbus.cli.domain.dry_run import Predicted, predicted
from wanderbus.cli.domain.servers_asked import Answer, DomainFile, ask_all, domain_of
from wanderbus.cli.output import counted, print_json, print_line, run_async
from wanderbus.cli.pub import attribute
from wanderbus.client.operator import Operator
from wanderbus.errors import ConfigurationError
from wanderbus.event import Event, check_event, gathered
from wanderbus.operator_rows import SessionInfo, SubscriptionInfo
from wanderbus.runtime.system_random import wall_us
from wanderbus.settings.event_domain import Channel, EventDomain


class ServerState(msgspec.Struct, frozen=True):
    """All subscriptions and sessions at a server."""

    subscriptions: list[SubscriptionInfo]
    sessions: dict[tuple[str, str], SessionInfo]


class Wanted(msgspec.Struct, frozen=True):
    """A subscription of a server at the leader that matches the event."""

    subscription: str
    subject: str
    expression: str


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """One server on the way of the event.

    ``wanted`` are its matching subscriptions at the leader, and ``is_reached`` whether the event comes here, after
    ``hops`` links between servers.
    """

    server: str
    is_leader: bool
    is_reached: bool
    hops: int | None
    error: str | None = None
    wanted: tuple[Wanted, ...] = ()
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
    connection: Connection,
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

    Shows the channel group and its leader, the servers that want the event there and by which filter, and at each
    server the matching subscriptions with their outcome. Asks every server over SIP; needs the role of operator at
    each. Exit status 1 if a server does not answer.

    It is a prediction from listings of this moment. It does not check whether the user may publish, the bounds of
    queues and of work, queue policies, restrictions that are the operator's code, detections of patterns, or the
    matching engine. 'wanderbus explain' says what happened to an event.

    Example: wanderbus trace Departure Dest=IAH DepDelay=42.0 --at s2 --user sip:alice@example.org
    """
    event = check_event(Event(subject, gathered([attribute(text) for text in attributes or ()])))
    domain = domain_of(event_domain)
    servers = domain.settings.servers
    at = at or next(iter(servers))
    if at not in servers:
        raise ConfigurationError(f"--at: the domain has no server {at!r} (expected {' or '.join(servers)})")
    channel = domain.channel(subject)
    answers = run_async(ask_all(connection, domain, _state))
    stops = list(_stops(event, domain, channel, at, answers))
    if json:
        print_json({**msgspec.structs.asdict(channel), "at": at})
        for stop in stops:
            print_json(stop if every else _matching(stop))
    else:
        for line in _lines(channel, at, stops, every=every):
            print_line(line)
    if any(stop.error is not None for stop in stops):
        raise typer.Exit(1)


async def _state(operator: Operator) -> ServerState:
    sessions = {(row.user, row.session): row async for row in operator.sessions()}
    return ServerState([row async for row in operator.subscriptions()], sessions)


def _stops(
    event: Event, domain: EventDomain, channel: Channel, at: str, answers: Mapping[str, Answer[ServerState]]
) -> Iterator[Stop]:
    """Yield the servers: the leader first, then the others in the order of the file."""
    name, leader, now_us = domain.settings.name, channel.leader, wall_us()
    lineage = OwnChannels(domain.directory, leader).lineage(event.subject)
    wanted: dict[str, list[Wanted]] = {}
    if (state := answers[leader].found) is not None:
        rows = {row.subscription: row for row in state.subscriptions if server_of(row.user, name) is not None}
        for each in predicted(event, lineage, rows.values(), {}, now_us):
            if each.is_match:
                row = rows[each.subscription]
                server = server_of(row.user, name) or ""
                wanted.setdefault(server, []).append(Wanted(row.subscription, row.subject, row.expression))
    for server in sorted(answers, key=lambda each: each != leader):
        state, reached = answers[server].found, server == leader or server in wanted
        own = () if state is None else [row for row in state.subscriptions if server_of(row.user, name) is None]
        outcomes = () if state is None else tuple(predicted(event, lineage, own, state.sessions, now_us))
        yield Stop(
            server=server,
            is_leader=server == leader,
            is_reached=reached,
            hops=(at != leader) + (server != leader) if reached else None,
            error=answers[server].error,
            wanted=tuple(wanted.get(server, ())),
            subscriptions=outcomes,
        )


def _matching(stop: Stop) -> Stop:
    """Return the stop without the subscriptions that do not match."""
    matching = tuple(each for each in stop.subscriptions if each.is_match)
    return msgspec.structs.replace(stop, subscriptions=matching, others=len(stop.subscriptions) - len(matching))


def _lines(channel: Channel, at: str, stops: list[Stop], *, every: bool) -> Iterator[str]:
    group, epoch = channel.group, channel.epoch
    yield f"{channel.subject}: channel group {group}, leader {channel.leader} under epoch {epoch}, {channel.model}"
    yield f"published at {at}: {counted(int(at != channel.leader), 'hop')} to the leader"
    for stop in stops:
        shown = stop if every else _matching(stop)
        yield f"{stop.server}: {', '.join(_facts(stop))}"
        for wanted in stop.wanted:
            yield f"  wants it by {wanted.subscription}: {wanted.subject}: {wanted.expression or 'all events'}"
        for each in shown.subscriptions:
            outcome = f"{each.verdict.replace('_', ' ')}: {each.reason}"
            yield f"  {each.subscription} of {each.user}, session {each.session}: {outcome}"
        if shown.others:
            yield f"  {counted(shown.others, 'other subscription')} to this subject; --all shows why they do not match"


def _facts(stop: Stop) -> Iterator[str]:
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
