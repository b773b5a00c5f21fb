"""``wanderbus config``: commands that check a file of settings and print a sample one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from wanderbus.cli.output import log_to_stderr, print_json, print_line, print_lines
from wanderbus.cli.up import given_to
from wanderbus.client.connect import connect
from wanderbus.config import AgentSettings, ProxySettings, RelaySettings, ServerSettings
from wanderbus.errors import ConfigurationError
from wanderbus.runtime.files.config_files import read_text, settings_in
from wanderbus.server.proxy_server import ProxyServer
from wanderbus.server.relay_server import RelayServer
from wanderbus.server.server import Server
from wanderbus.settings.keys import table_of
from wanderbus.settings.reading import parse
from wanderbus.settings.writing import sample, set_in, toml

app = typer.Typer(help="Check files of settings, or print a sample one.", no_args_is_help=True)


class ProgramKind(Enum):
    """Kind of program that a file of settings is for."""

    agent = "agent"
    broker = "broker"
    relay = "relay"
    proxy = "proxy"


STRUCTS: dict[ProgramKind, type[msgspec.Struct]] = {
    ProgramKind.agent: AgentSettings,
    ProgramKind.broker: ServerSettings,
    ProgramKind.relay: RelaySettings,
    ProgramKind.proxy: ProxySettings,
}


_WITH_USERS: Final = {ProgramKind.broker: "'wanderbus up'", ProgramKind.proxy: "'wanderbus proxy'"}
"""Programs that have users, which an option can give in place of the file."""


@app.command("check")
def check(
    file: Annotated[Path, typer.Argument(help="TOML file of settings, of any kind.", show_default=False)],
    kind: Annotated[
        ProgramKind | None,
        typer.Option(help="Kind of program; guessed from the keys unless given. Required for a proxy."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a file of settings and print what it sets, without secrets; exit status 2 if it cannot be used.

    A file for a server may leave the users to an option of 'wanderbus up' or 'wanderbus proxy'.
    Also checks the files and the server's host name that the settings refer to. Does not connect to anything.

    Example: wanderbus config check agent.toml
    """
    log_to_stderr(verbose=False)
    given = parse(read_text(file), file)
    kind = _checked([kind] if kind else _kinds_of(given), given, file)
    understood = set_in(STRUCTS[kind], given)
    lacks_users = kind in _WITH_USERS and "users" not in given
    if json:
        missing = {"missing": ["users"]} if lacks_users else {}
        print_json({"file": str(file), "kind": kind.value, "set": understood, **missing})
    else:
        print_line(
            f"{file} is a file of settings"
            f" for {'an agent' if kind is ProgramKind.agent else f'a {kind.value}'}; it sets"
        )
        for name, value in understood.items():
            print_line(f"  {name} = {toml(value)}")
        if lacks_users:
            print_line(f"and no users: give {_WITH_USERS[kind]} --users FILE, too")


@app.command("sample")
def show_sample(kind: Annotated[ProgramKind, typer.Argument(help="Kind of program.", show_default=False)]) -> None:
    """Print a sample file of settings: every key with its default and its meaning.

    Example: wanderbus config sample broker > broker.toml
    """
    print_lines(sample(STRUCTS[kind]))


def _checked(kinds: Sequence[ProgramKind], given: Mapping[str, Any], file: Path) -> ProgramKind:
    """Return the first of ``kinds`` whose program can use the file; raise the error of the first if none can."""
    errors: list[ConfigurationError] = []
    for kind in kinds:
        try:
            _check(kind, given, file)
        except ConfigurationError as error:
            errors.append(error)
        else:
            return kind
    raise errors[0]


def _check(kind: ProgramKind, given: Mapping[str, Any], file: Path) -> None:
    """Read the file as its program does; :class:`ConfigurationError` if that cannot use it."""
    options: dict[str, Any] = {} if "users" in given else {"users": {}}
    match kind:
        case ProgramKind.agent:
            connect(config=file)
        case ProgramKind.broker:
            Server(**given_to(ServerSettings, options, file))
        case ProgramKind.proxy:
            ProxyServer(**given_to(ProxySettings, options, file))
        case ProgramKind.relay:
            RelayServer(RelaySettings(**settings_in(RelaySettings, file)))


def _kinds_of(given: Mapping[str, Any]) -> Sequence[ProgramKind]:
    """Return the kinds of program that know most of these keys: several may know them all."""

    def known(kind: ProgramKind) -> int:
        table = table_of(STRUCTS[kind])
        return len(given.keys() & {*table.keys, *table.tables})

    most = max(map(known, ProgramKind))
    return [kind for kind in ProgramKind if known(kind) == most]
