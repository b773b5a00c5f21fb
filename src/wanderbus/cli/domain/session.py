"""``wanderbus session``: sessions at all servers of a domain; one is moved to another server (SPEC L-01, L-06)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Final, NamedTuple

import typer

from wanderbus.broker.servers.server_users import server_of
from wanderbus.cli.connection_options import AsJson, ConnectionOptions, perhaps_visiting, visiting_all
from wanderbus.cli.domain.servers_asked import DomainFile, ServerAnswer, ask_all, ask_lone, domain_of, is_lone
from wanderbus.cli.domain.session_files import export, import_session
from wanderbus.cli.domain.session_share import share
from wanderbus.cli.domain.session_transfers import dormant, transfer
from wanderbus.cli.operator.listings import Columns, aligned
from wanderbus.cli.operator.queue_commands import Of
from wanderbus.cli.output import print_json, print_line, print_lines, print_progress, print_progress_json, run_async
from wanderbus.client.answer_wait import AnswerWait, NoAnswer
from wanderbus.client.operator import Operator
from wanderbus.errors import ConfigurationError, Refused, UnknownUser, WanderbusError
from wanderbus.event_text import escaped
from wanderbus.operator_rows import MovedSession, SessionInfo
from wanderbus.settings.event_domain import EventDomainSettings

app = typer.Typer(help="List, share, move, transfer, export and import sessions.", no_args_is_help=True)
app.command("export")(export)
app.command("import")(import_session)
app.command(context_settings={"ignore_unknown_options": True})(dormant)
app.command()(transfer)
app.command()(share)

Answers = Mapping[str, ServerAnswer[list[SessionInfo]]]
Note = Callable[[str, str], None]

_Ask = Callable[[Callable[[Operator], Awaitable[list[SessionInfo]]]], Awaitable[Answers]]
"""Asks every server of the domain, or the only one."""


class _Place(NamedTuple):
    """A session, and the server that has it."""

    server: str
    row: SessionInfo

    @property
    def connected(self) -> int:
        """Return the number of its devices that are connected."""
        return sum(device.status == "CONNECTED" for device in self.row.devices)


@app.callback()
def _options() -> None:
    """List, share, move, transfer, export and import sessions."""


@app.command("list")
@visiting_all
def list_sessions(*, connection: ConnectionOptions, event_domain: DomainFile = None, json: AsJson = False) -> None:
    """List the sessions of all users, and the server at which each is.

    Asks every server over SIP; needs the role of operator elsewhere. Exit status 1 if a server does not answer.
    Columns: the user, the session, the server, its devices that are connected and all of them, its subscriptions, and
    the notifications that wait in its queue.

    Example: wanderbus session list --event-domain mydomain/domain.toml --user sip:alice@example.org
    """
    domain = domain_of(event_domain).settings.name
    answers = run_async(ask_all(connection, event_domain, _sessions))
    places = [each for each in _places(answers) if server_of(each.row.user, domain) is None]
    if json:
        for row in (*_silent_rows(answers), *map(_row, places)):
            print_json(row)
    else:
        print_lines("\n".join([*(escaped(str(each)) for each in _silent(answers)), *aligned(places, _COLUMNS)]))
    if _silent(answers):
        raise typer.Exit(1)


@app.command()
@perhaps_visiting
def move(
    whose: Of,
    *,
    connection: ConnectionOptions,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="SERVER|DOMAIN[/SERVER]", help="Name of the server in the file of the domain, or a domain."
        ),
    ],
    session: Annotated[
        str | None,
        typer.Option("--session", help="Name of the session; needed if the user has several.", show_default=False),
    ] = None,
    event_domain: DomainFile = None,
    json: AsJson = False,
) -> None:
    """Move a session to another server of the domain, or to another domain, with all that it has and its devices.

    Its devices connect to the other server by themselves; no event is lost or repeated. All servers of the domain have
    to run. Needs the role of administrator elsewhere. Ctrl-C ends the command, but not the move. Where the session is
    already, nothing is done.

    To a server of another domain it moves if the federation.toml of both domains permit it. A server that is alone in
    its domain has no file of a domain; --server or --data-dir names it.

    Example: wanderbus session move sip:bob@localhost --to s2

    Example: wanderbus session move sip:bob@example.org --session sub.delays --to s3 --event-domain
    mydomain/domain.toml --user sip:alice@example.org

    Example: wanderbus session move sip:bob@alpha.example --to beta.example/b1 --data-dir alpha-data
    """
    ask: _Ask = partial(ask_lone, connection)
    if not is_lone(connection, event_domain):
        ask = partial(ask_all, connection, event_domain)
        to = _target(to, domain_of(event_domain).settings)
    note = print_progress_json if json else lambda word, line: print_progress(line)
    place, is_moved = run_async(_move(connection, ask, whose, session, to, note))
    if json:
        print_json({"user": whose, "session": place.session, "server": place.server, "moved": is_moved})
    else:
        when = "now" if is_moved else "already"
        print_line(f"the session {place.session} of {whose} is at {escaped(place.server)} {when}")


def _target(to: str, settings: EventDomainSettings) -> str:
    """Return a target as the servers name it: a server without the own domain, or another domain with its own."""
    domain, _, server = to.partition("/")
    if domain == settings.name and server:
        to = server
    if to not in settings.present and not {".", "/"} & set(to):
        raise ConfigurationError(
            f"--to: the domain has no server {to!r} (expected {' or '.join(settings.present)}); another domain is "
            "DOMAIN, or DOMAIN/SERVER"
        )
    return to


async def _move(
    connection: ConnectionOptions, ask: _Ask, user: str, session: str | None, to: str, note: Note
) -> tuple[MovedSession, bool]:
    """Move a session; return where it is, and False if it was there already."""

    async def found() -> Answers:
        return await ask(lambda operator: _sessions(operator, user))

    answers = await AnswerWait(note, None).of(found(), "the question where the session is")
    name = _named(answers, user) if session is None else session
    source = _source(answers, user, name)
    if source == to:
        return MovedSession(user, name, to), False
    options = answers[source].connection
    assert options is not None
    try:
        async with options.visitor() as agent:
            wait = AnswerWait(note, connection.connect_s_max)
            return await _ask_move(agent.operator, user, name, source, to, wait, note), True
    except Refused:
        # The agent asks again on a new link, and then the session may have left.
        if _servers_with(await found(), name) != [to]:
            raise
    return MovedSession(user, name, to), True


async def _ask_move(
    operator: Operator, user: str, name: str, source: str, to: str, wait: AnswerWait, note: Note
) -> MovedSession:
    try:
        return await wait.of(operator.move(user, name, to), f"the request to move the session to {to}")
    except (asyncio.CancelledError, NoAnswer):
        note("moving", f"{source} and {to} complete the move; 'wanderbus session list' shows where the session is")
        raise


async def _sessions(operator: Operator, user: str | None = None) -> list[SessionInfo]:
    """Return the sessions at one server; :class:`Refused` without a role.

    A user without one may list their own sessions, but is redirected to the server that has them.
    """
    async for _ in operator.servers():
        break
    return [row async for row in operator.sessions(user) if row.session]


def _named(answers: Answers, user: str) -> str:
    """Return the name of the only session of a user; :class:`ConfigurationError` names them if there are several."""
    names = {each.row.session for each in _places(answers)}
    if not names:
        raise _unknown(answers, f"no server has a session of {user}")
    if len(names) > 1:
        shown = ", ".join(map(escaped, sorted(names)))
        raise ConfigurationError(f"give the session with --session NAME: {user} has {shown}")
    return names.pop()


def _source(answers: Answers, user: str, name: str) -> str:
    """Return the server that has a session; raise an error unless there is one."""
    servers = _servers_with(answers, name)
    if not servers:
        raise _unknown(answers, f"no server has a session {name!r} of {user}")
    if len(servers) > 1:
        raise ConfigurationError(
            f"the session {name!r} of {user} is at {' and '.join(servers)}, and cannot move where one is; remove one "
            f"with 'wanderbus discard {user} --session {name} --server {answers[servers[-1]].address}'"
        )
    return servers[0]


def _servers_with(answers: Answers, name: str) -> list[str]:
    return [each.server for each in _places(answers) if each.row.session == name]


def _unknown(answers: Answers, what: str) -> WanderbusError:
    """Return the error about a session that no server has; a server that does not answer may have it."""
    silent = _silent(answers)
    if not silent:
        return UnknownUser(f"{what}; 'wanderbus session list' lists those that there are")
    more = f", nor do {len(silent) - 1} more" if silent[1:] else ""
    which = "" if len(silent) == len(answers) else f"{what} that answers; "
    return WanderbusError(f"{which}{silent[0]}{more}")


def _places(answers: Answers) -> list[_Place]:
    places = [_Place(answer.server, row) for answer in answers.values() for row in answer.found or ()]
    return sorted(places, key=lambda place: (place.row.user, place.row.session))


def _silent_rows(answers: Answers) -> Sequence[Mapping[str, object]]:
    return [{"server": each.server, "address": each.address, "error": each.error} for each in _silent(answers)]


def _silent(answers: Answers) -> list[ServerAnswer[list[SessionInfo]]]:
    """Return the answers of the servers that have not answered."""
    return [answer for answer in answers.values() if answer.found is None]


def _row(place: _Place) -> Mapping[str, object]:
    row = place.row
    return {
        "user": row.user,
        "session": row.session,
        "server": place.server,
        "connected": place.connected,
        "devices": len(row.devices),
        "subscriptions": row.subscriptions,
        "waiting": row.queued,
        "arriving_from": row.arriving_from or None,
    }


_COLUMNS: Final[Columns] = {
    "user": lambda place: place.row.user.removeprefix("sip:"),
    "session": lambda place: place.row.session,
    "server": lambda place: place.server,
    "devices": lambda place: f"{place.connected}/{len(place.row.devices)}",
    "subs": lambda place: place.row.subscriptions,
    "waiting": lambda place: place.row.queued,
}
