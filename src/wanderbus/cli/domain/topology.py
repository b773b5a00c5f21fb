"""``wanderbus topology``: servers of a domain, their channels, and the events that they send to each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from wanderbus.broker.servers.server_users import server_of, server_user
from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting_all
from wanderbus.cli.domain.servers_asked import DomainFile, ServerAnswer, ask_all, domain_of
from wanderbus.cli.domain.status import leaders_by
from wanderbus.cli.output import check_writable, counted, print_json, print_line, run_async
from wanderbus.client.operator import Operator
from wanderbus.errors import ConfigurationError
from wanderbus.event_text import escaped
from wanderbus.operator_rows import GroupInfo
from wanderbus.plots.network import Arrow, PlotNode, network
from wanderbus.settings.event_domain import EventDomain
from wanderbus.subscription import EVERY_SUBJECT


class ServerFilter(msgspec.Struct, frozen=True):
    """A subject and a filter that a server wants of another one; every event of the subject if the filter is empty."""

    subject: str
    expression: str

    def __str__(self) -> str:
        subject = "every subject" if self.subject == EVERY_SUBJECT else self.subject
        return f"{subject}: {self.expression or 'all events'}"


class ServerSeen(msgspec.Struct, frozen=True):
    """A server as it answers: the subscriptions of its users, and what each other server wants of it.

    ``broken`` are the other servers to which it has no link although it needs one, each with the reason, "" if that is
    unknown.
    """

    users: int
    subscriptions: int
    sends: Mapping[str, tuple[ServerFilter, ...]]
    broken: Mapping[str, str] = {}
    groups: tuple[GroupInfo, ...] = ()


Answers = Mapping[str, ServerAnswer[ServerSeen]]


@visiting_all
def topology(
    *,
    connection: ConnectionOptions,
    event_domain: DomainFile = None,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw the servers into this file.")] = None,
    json: AsJson = False,
) -> None:
    """Show the servers of a domain, the channel groups that each leads, and what it sends to the others.

    Asks every server over SIP; needs the role of operator elsewhere. "s1 sends to s2: Departure: Dest == IAH" says that
    s2 wants these events for its users, of channels that s1 leads, or of publishers at s1 in decentralised channels:
    covered filters are left out, and others may be merged. "has no link to s3" says that its events do not arrive, and
    --svg draws that as a dashed red arrow. Exit status 1 if a server does not answer.

    Example: wanderbus topology --event-domain mydomain/domain.toml --svg domain.svg --user sip:alice@example.org
    """
    domain = domain_of(event_domain)
    if svg is not None:
        check_writable(svg)
    answers = run_async(ask_all(connection, event_domain, lambda operator: _seen(operator, domain.settings.name)))
    domain.directory.use(leaders_by(each.found.groups for each in answers.values() if each.found is not None))
    for row in _rows(domain, answers) if json else ():
        print_json(row)
    for line in () if json else _lines(domain, answers):
        print_line(line)
    if svg is not None:
        _write(svg, drawn(domain, answers))
    if any(answer.found is None for answer in answers.values()):
        raise typer.Exit(1)


async def _seen(operator: Operator, domain: str) -> ServerSeen:
    users: set[str] = set()
    count = 0
    sends: dict[str, set[ServerFilter]] = {}
    async for session in operator.sessions():
        if (other := server_of(session.user, domain)) is not None:
            sends[other] = await _wanted(operator, other, domain)
        else:
            users.add(session.user)
            count += session.subscriptions
    async for route in operator.routes():
        sends.setdefault(route.server, set()).add(ServerFilter(route.subject, route.expression))
    ordered = {server: tuple(sorted(several, key=str)) for server, several in sorted(sends.items())}
    others = [each async for each in operator.servers()]
    broken = {each.server: each.trouble for each in others if each.is_linked is False or each.trouble}
    groups = [each async for each in operator.groups()]
    return ServerSeen(len(users), count, ordered, broken, tuple(groups))


async def _wanted(operator: Operator, server: str, domain: str) -> set[ServerFilter]:
    """Return what ``server`` wants of the channels that the server which is asked leads."""
    rows = operator.subscriptions(server_user(server, domain))
    return {ServerFilter(row.subject, row.expression) async for row in rows}


def _rows(domain: EventDomain, answers: Answers) -> Iterator[Mapping[str, object]]:
    for answer in answers.values():
        yield {
            "server": answer.server,
            "address": answer.address,
            "roles": domain.settings.servers[answer.server].roles,
            "groups": domain.directory.table.groups_of(answer.server),
            "answers": answer.found is not None,
            "error": answer.error,
            "users": answer.found and answer.found.users,
            "subscriptions": answer.found and answer.found.subscriptions,
            "sends": answer.found and answer.found.sends,
            "broken": answer.found and answer.found.broken,
        }


def _lines(domain: EventDomain, answers: Answers) -> Iterator[str]:
    for answer in answers.values():
        described = domain.settings.servers[answer.server]
        if (seen := answer.found) is None:
            yield str(answer)
            continue
        facts = ", ".join((*described.roles, *_figures(domain, answer.server, seen)))
        yield f"{answer.server} at {answer.address}: {facts}"
        for other, reason in seen.broken.items():
            yield f"  has no link to {other}" + (f": {escaped(reason)}" if reason else "")
        for other, filters in seen.sends.items():
            for each in filters:
                yield f"  sends to {other}: {each}"


def _figures(domain: EventDomain, server: str, seen: ServerSeen) -> Sequence[str]:
    groups = len(domain.directory.table.groups_of(server))
    users, subscriptions = counted(seen.users, "user"), counted(seen.subscriptions, "subscription")
    return f"leads {counted(groups, 'channel group')}", users, subscriptions


def drawn(domain: EventDomain, answers: Answers) -> str:
    """Return the picture of the servers, with an arrow for each pair with filters, in the direction of the events.

    A pair without a link has a broken arrow, with filters or without.
    """
    nodes, notes = [], []
    arrows: dict[tuple[str, str], Arrow] = {}
    broken = _broken(answers)
    for answer in answers.values():
        seen = answer.found
        lines = ("does not answer",) if seen is None else _figures(domain, answer.server, seen)
        nodes.append(PlotNode(answer.server, (answer.address, *lines), is_away=seen is None))
        for other, filters in ({} if seen is None else seen.sends).items():
            if filters and other in answers:
                pair = (answer.server, other)
                arrows[pair] = Arrow(*pair, str(len(filters)), is_broken=pair in broken)
                notes += [f"{answer.server} → {other}  {each}" for each in filters]
    arrows |= {pair: Arrow(*pair, "x", is_broken=True) for pair in broken if pair not in arrows}
    key = "An arrow shows where events go, with the number of filters; a dashed one has no link."
    return network(nodes, list(arrows.values()), [key, *notes])


def _broken(answers: Answers) -> list[tuple[str, str]]:
    """Return the pairs of servers of which the first cannot send events to the other one.

    Events come on the link of the server that wants them; one that cannot be reached gets none either.
    """
    found: dict[tuple[str, str], None] = {}
    for answer in answers.values():
        for other, reason in ({} if answer.found is None else answer.found.broken).items():
            if other in answers:
                found[other, answer.server] = None
                if reason:
                    found[answer.server, other] = None
    return list(found)


def _write(file: Path, picture: str) -> None:
    try:
        file.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}") from None
