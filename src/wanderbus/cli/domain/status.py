"""``wanderbus domain status``: links, sessions and queues between the servers of a domain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import typer

from wanderbus.channels.directory import Leader
from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting_all
from wanderbus.cli.domain.servers_asked import DomainFile, ServerAnswer, ask_all, domain_of, moved_groups
from wanderbus.cli.operator.listings import Columns, aligned, span
from wanderbus.cli.output import counted, print_json, print_lines, run_async
from wanderbus.client.operator import Operator
from wanderbus.errors import WanderbusError
from wanderbus.event_text import escaped
from wanderbus.operator_rows import GroupInfo, ServerInfo
from wanderbus.runtime.system_random import wall_us
from wanderbus.settings.event_domain import EventDomain


class ServerSeen(NamedTuple):
    """Answer of a server about the others, and about channel groups that have moved or are about to."""

    others: Sequence[ServerInfo]
    groups: Sequence[GroupInfo]


Answers = Mapping[str, ServerAnswer[ServerSeen]]


@visiting_all
def status(*, connection: ConnectionOptions, event_domain: DomainFile = None, json: AsJson = False) -> None:
    """Show a line for each server of a domain, those with problems first; above them, what is wrong.

    Asks every server over SIP; needs the role of operator elsewhere. Exit status 1 if a server does not answer, within
    twice --timeout. Columns: the server, its links to the servers that lead channels, as 18/19 if one is missing, its
    filters there, publishes of its users without an answer, the notifications that wait at it for other servers, and
    those that wait for it at the others. If the domain has a multicast group, also the changes of interest that it sent
    by multicast, and those that a link repaired. Sessions that move are counted above the table: from where to where,
    and for how long the oldest does; channel groups that have moved, or are about to, are named there. --json prints
    what each server says about each other one, and about these groups.

    Example: wanderbus domain status --event-domain mydomain/domain.toml --user sip:alice@example.org
    """
    answers = run_async(ask_all(connection, event_domain, _seen))
    for answer in answers.values() if json else ():
        print_json(
            {
                "server": answer.server,
                "address": answer.address,
                "answers": answer.found is not None,
                "error": answer.error,
                "others": answer.found.others if answer.found else (),
                "groups": answer.found.groups if answer.found else (),
            }
        )
    if not json:
        print_lines("\n".join([*_problems(answers), *_moving(answers, wall_us()), *_table(answers)]))
    if any(answer.found is None for answer in answers.values()):
        raise typer.Exit(1)


async def _seen(operator: Operator) -> ServerSeen:
    return ServerSeen([row async for row in operator.servers()], await moved_groups(operator))


def leaders_by(several: Iterable[Sequence[GroupInfo]]) -> Mapping[int, Leader]:
    """Return the leaders of the groups that have moved, by what several servers say: the highest epoch is the truth."""
    rows = sorted((each for groups in several for each in groups if each.epoch > 1), key=lambda each: each.epoch)
    return {each.group: Leader(each.leader, each.epoch) for each in rows}


def is_whole(other: ServerInfo) -> bool:
    """Return whether a server has its links with another one, and both have confirmed what they want."""
    is_linked = other.is_linked is not False and other.is_linked_here and not other.trouble
    return is_linked and is_confirmed(other) and other.is_settled_here


def present_leaders(domain: EventDomain, several: Iterable[Sequence[GroupInfo]]) -> list[str]:
    """Return the leader of each channel group, by the domain's file and by what several servers say."""
    return [leader.server for leader in domain.directory.table.with_leaders(leaders_by(several)).leaders]


def present_domain(file: Path | None) -> tuple[EventDomain, bool]:
    """Return the domain in ``file`` with the leaders that its servers on this computer know.

    The second part is False if none answers: then they are those of the file.
    """
    domain = domain_of(file)
    try:
        answers = run_async(ask_all(ConnectionOptions(), file, moved_groups))
    except WanderbusError:  # none runs here, or they are another user's
        return domain, False
    found = [answer.found for answer in answers.values() if answer.found is not None]
    domain.directory.use(leaders_by(found))
    return domain, bool(found)


class _Line(NamedTuple):
    """A server, what it says about the others if it answers, and the notifications that wait for it at them."""

    server: str
    others: Sequence[ServerInfo] | None
    waiting_elsewhere: int

    @property
    def links(self) -> str:
        """Return the number of its links, and that of the servers to which it has one if all is well."""
        if self.others is None:
            return "no answer"
        leaders = [other for other in self.others if other.is_linked is not None]
        return f"{sum(other.is_linked or False for other in leaders)}/{len(leaders)}"

    def has_problem(self) -> bool:
        """Return whether the server does not answer, or lacks a link or a confirmation."""
        return not self.others or not all(map(is_whole, self.others))

    def sum(self, name: str) -> int | None:
        """Return the sum of a figure about the others."""
        return None if self.others is None else sum(getattr(other, name) for other in self.others)


def _table(answers: Answers) -> list[str]:
    """Return a line for each server, those with problems first."""
    lines = [
        _Line(
            answer.server,
            None if answer.found is None else answer.found.others,
            sum(
                other.waiting_here
                for others in answers.values()
                for other in (others.found.others if others.found else ())
                if other.server == answer.server
            ),
        )
        for answer in answers.values()
    ]
    lines.sort(key=lambda line: (line.others is not None, not line.has_problem()))
    has_multicast = any(line.sum("multicast_changes") for line in lines)
    return aligned(lines, {**_COLUMNS, **_MULTICAST_COLUMNS} if has_multicast else _COLUMNS)


def _problems(answers: Answers) -> Iterator[str]:
    """Yield a line for each server that does not answer, cannot be reached, or for which others wait."""
    for answer in answers.values():
        if answer.found is None:
            yield escaped(str(answer))
        elif not answer.found.others and len(answers) > 1:
            yield f"{answer.server} at {answer.address} knows no other server; start it with --event-domain"
    seen = [(answer.server, answer.found) for answer in answers.values() if answer.found is not None]
    pairs = [(server, other) for server, found in seen for other in found.others]
    for server, those in _grouped(pairs, lambda other: bool(other.trouble)).items():
        yield f"{_names(those)} cannot reach {server}: {escaped(those[0][1].trouble)}"
    for server, those in _grouped(pairs, lambda other: not other.is_settled_here).items():
        yield f"publishes to ordered channels of {_names(those)} wait until {server} has reported what it wants"
    for server, those in _grouped(pairs, lambda other: not is_confirmed(other)).items():
        yield f"{server} has not confirmed the filters of {_names(those)}"
    forced = {(each.group, each.epoch): each.former for _, found in seen for each in found.groups if each.was_forced}
    for group, leader in sorted(leaders_by(found.groups for _, found in seen).items()):
        former = forced.get((group, leader.epoch))
        instead = "" if former is None else f", by force instead of {former}"
        yield f"{leader.server} leads channel group {group} under epoch {leader.epoch}{instead}"
    moving = {(each.group, each.leader, each.target) for _, found in seen for each in found.groups if each.target}
    for group, leads, target in sorted(moving):
        yield f"channel group {group} moves from {leads} to {target}"


def _moving(answers: Answers, now_us: int) -> Iterator[str]:
    """Yield a line for each pair of servers between which sessions move: by the one that gives them, if it answers."""
    for source, answer in answers.items():
        if answer.found is not None:
            moves = [(source, each.server, each.leaving, each.leaving_since_us) for each in answer.found.others]
        else:
            moves = [
                (source, target, each.arriving, each.arriving_since_us)
                for target, other in answers.items()
                for each in (other.found.others if other.found else ())
                if each.server == source
            ]
        for one, other_server, count, since_us in moves:
            if count and since_us is not None:
                several = counted(count, "session")
                verb = "is" if count == 1 else "are"
                age = span(max(0, now_us - since_us) / 1e6)
                yield f"{several} {verb} on the way from {one} to {other_server}, the oldest for {age}"


Pair = tuple[str, ServerInfo]
"""A server that has answered, and what it says about another one."""


def _grouped(pairs: Sequence[Pair], is_meant: Callable[[ServerInfo], bool]) -> Mapping[str, list[Pair]]:
    """Return the pairs that are meant, by the other server: one that fails is a problem of all that ask."""
    found: dict[str, list[Pair]] = {}
    for asked, other in pairs:
        if is_meant(other):
            found.setdefault(other.server, []).append((asked, other))
    return found


def _names(pairs: Sequence[Pair]) -> str:
    """Return the first servers that were asked, and the number of the others."""
    shown, rest = [asked for asked, _ in pairs[:_NAMES_MAX]], len(pairs) - _NAMES_MAX
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def is_confirmed(other: ServerInfo) -> bool:
    """Return whether a server has confirmed the filters of the one that was asked."""
    return other.is_settled or other.is_linked is None


_NAMES_MAX: Final = 3
"""Servers that a line about a problem names."""

_COLUMNS: Final[Columns] = {
    "server": lambda line: line.server,
    "links": lambda line: line.links,
    "filters": lambda line: line.sum("subscriptions"),
    "unanswered": lambda line: line.sum("waiting_publishes"),
    "for others": lambda line: line.sum("waiting_here"),
    "for it": lambda line: line.waiting_elsewhere,
}

_MULTICAST_COLUMNS: Final[Columns] = {
    "multicast": lambda line: line.sum("multicast_changes"),
    "repaired": lambda line: line.sum("repaired_changes"),
}
