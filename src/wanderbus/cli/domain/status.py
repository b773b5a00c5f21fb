"""``wanderbus domain status``: links, sessions and queues between the servers of a domain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import typer

from wanderbus.cli.connection_options import AsJson, Connection, visiting_all
from wanderbus.cli.domain.servers_asked import Answer, DomainFile, ask_all, domain_of
from wanderbus.cli.operator.listings import Columns, aligned
from wanderbus.cli.output import print_json, print_line, print_lines, run_async
from wanderbus.client.operator import Operator
from wanderbus.operator_rows import ServerInfo

Answers = Mapping[str, Answer[list[ServerInfo]]]


@visiting_all
def status(*, connection: Connection, event_domain: DomainFile = None, json: AsJson = False) -> None:
    """Show for each server its links to the other servers, and what waits between them.

    Asks every server over SIP; needs the role of operator at each. Exit status 1 if a server does not answer, within
    twice --timeout. Columns: the server that was asked, the other one, the link to it, subscriptions there, publishes
    without an answer, and the number of the last event from there; then the link of the other one here, its
    subscriptions here, and the notifications that wait for it here. If the domain has a multicast group, also the
    changes of interest that were sent to it by multicast, and those that a link repaired.

    Example: wanderbus domain status --event-domain mydomain/domain.toml --user sip:alice@example.org
    """
    answers = run_async(ask_all(connection, domain_of(event_domain), _servers))
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
        if pairs := list(_pairs(answers)):
            has_multicast = any(pair.other.multicast_changes for pair in pairs)
            print_lines("\n".join(aligned(pairs, {**_COLUMNS, **_MULTICAST_COLUMNS} if has_multicast else _COLUMNS)))
        for answer in answers.values():
            if answer.found is None:
                print_line(str(answer))
            elif not answer.found and len(answers) > 1:
                print_line(f"{answer.server} at {answer.address} knows no other server; start it with --event-domain")
    if any(answer.found is None for answer in answers.values()):
        raise typer.Exit(1)


async def _servers(operator: Operator) -> list[ServerInfo]:
    return [row async for row in operator.servers()]


class _Pair(NamedTuple):
    """A server that has answered, and what it says about another one."""

    asked: str
    other: ServerInfo


def _pairs(answers: Answers) -> Iterator[_Pair]:
    for answer in answers.values():
        yield from (_Pair(answer.server, other) for other in answer.found or ())


def _link(pair: _Pair) -> str:
    if pair.other.is_linked is None:
        return "leads nothing"
    return "linked" if pair.other.is_linked else "no link"


def _subscriptions(pair: _Pair) -> str:
    waits = "" if pair.other.is_settled or pair.other.is_linked is None else " (not confirmed)"
    return f"{pair.other.subscriptions}{waits}"


_COLUMNS: Final[Columns] = {
    "server": lambda pair: pair.asked,
    "other": lambda pair: pair.other.server,
    "link": _link,
    "subscriptions": _subscriptions,
    "unanswered": lambda pair: pair.other.waiting_publishes,
    "last": lambda pair: pair.other.last_number,
    "link here": lambda pair: "linked" if pair.other.is_linked_here else "no link",
    "subscriptions here": lambda pair: pair.other.subscriptions_here,
    "waiting here": lambda pair: pair.other.waiting_here,
}

_MULTICAST_COLUMNS: Final[Columns] = {
    "multicast": lambda pair: pair.other.multicast_changes,
    "repaired": lambda pair: pair.other.repaired_changes,
}
