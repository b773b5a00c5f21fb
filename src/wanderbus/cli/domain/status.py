"""``wanderbus domain status``: links, sessions and queues between the servers of a domain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting_all
from wanderbus.cli.domain.servers_asked import DomainFile, ServerAnswer, ask_all
from wanderbus.cli.operator.listings import Columns, aligned, span
from wanderbus.cli.output import counted, print_json, print_lines, run_async
from wanderbus.client.operator import Operator
from wanderbus.event_text import escaped
from wanderbus.operator_rows import ServerInfo
from wanderbus.runtime.system_random import wall_us

Answers = Mapping[str, ServerAnswer[list[ServerInfo]]]


@visiting_all
def status(*, connection: ConnectionOptions, event_domain: DomainFile = None, json: AsJson = False) -> None:
    """Show a line for each server of a domain, those with problems first; above them, what is wrong.

    Asks every server over SIP; needs the role of operator elsewhere. Exit status 1 if a server does not answer, within
    twice --timeout. Columns: the server, its links to the servers that lead channels, as 18/19 if one is missing, its
    filters there, publishes of its users without an answer, the notifications that wait at it for other servers, and
    those that wait for it at the others. If the domain has a multicast group, also the changes of interest that it sent
    by multicast, and those that a link repaired. Sessions that move are counted above the table: from where to where,
    and for how long the oldest does. --json prints what each server says about each other one.

    Example: wanderbus domain status --event-domain mydomain/domain.toml --user sip:alice@example.org
    """
    answers = run_async(ask_all(connection, event_domain, _servers))
    for answer in answers.values() if json else ():
        print_json(
            {
                "server": answer.server,
                "address": answer.address,
                "answers": answer.found is not None,
                "error": answer.error,
                "others": answer.found or (),
            }
        )
    if not json:
        print_lines("\n".join([*_problems(answers), *_moving(answers, wall_us()), *_table(answers)]))
    if any(answer.found is None for answer in answers.values()):
        raise typer.Exit(1)


async def _servers(operator: Operator) -> list[ServerInfo]:
    return [row async for row in operator.servers()]


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
        if not self.others:
            return True
        return any(
            other.is_linked is False or not other.is_linked_here or other.trouble or not _is_confirmed(other)
            for other in self.others
        )

    def sum(self, name: str) -> int | None:
        """Return the sum of a figure about the others."""
        return None if self.others is None else sum(getattr(other, name) for other in self.others)


def _table(answers: Answers) -> list[str]:
    """Return a line for each server, those with problems first."""
    lines = [
        _Line(
            answer.server,
            answer.found,
            sum(
                other.waiting_here
                for others in answers.values()
                for other in others.found or ()
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
        elif not answer.found and len(answers) > 1:
            yield f"{answer.server} at {answer.address} knows no other server; start it with --event-domain"
    pairs = [(answer.server, other) for answer in answers.values() for other in answer.found or ()]
    for server, those in _grouped(pairs, lambda other: bool(other.trouble)).items():
        yield f"{_names(those)} cannot reach {server}: {escaped(those[0][1].trouble)}"
    for server, those in _grouped(pairs, lambda other: not other.is_settled_here).items():
        yield f"publishes to ordered channels of {_names(those)} wait until {server} has reported what it wants"
    for server, those in _grouped(pairs, lambda other: not _is_confirmed(other)).items():
        yield f"{server} has not confirmed the filters of {_names(those)}"


def _moving(answers: Answers, now_us: int) -> Iterator[str]:
    """Yield a line for each pair of servers between which sessions move: by the one that gives them, if it answers."""
    for source, answer in answers.items():
        if answer.found is not None:
            moves = [(source, each.server, each.leaving, each.leaving_since_us) for each in answer.found]
        else:
            moves = [
                (source, target, each.arriving, each.arriving_since_us)
                for target, other in answers.items()
                for each in other.found or ()
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


def _is_confirmed(other: ServerInfo) -> bool:
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
