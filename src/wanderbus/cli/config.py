"""``wanderbus config``: commands that check a file of settings and print a sample one."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from wanderbus.cli.output import log_to_stderr, print_json, print_line, print_lines
from wanderbus.cli.up import given_to
from wanderbus.client.connect import connect
from wanderbus.config import AgentSettings, ProxySettings, RelaySettings, ServerSettings
from wanderbus.runtime.files.config_files import read_text, settings_in
from wanderbus.server.proxy_server import ProxyServer
from wanderbus.server.relay_server import RelayServer
from wanderbus.server.server import Server
from wanderbus.settings.keys import table_of
from wanderbus.settings.reading import parse
from wanderbus.settings.writing import sample, set_in, toml

app = typer.Typer(help="Check files of settings, or print a sample one.", no_args_is_help=True)


class Kind(Enum):
    """Kind of program that a file of settings is for."""

    agent = "agent"
    broker = "broker"
    relay = "relay"
    proxy = "proxy"


STRUCTS: dict[Kind, type[msgspec.Struct]] = {
    Kind.agent: AgentSettings,
    Kind.broker: ServerSettings,
    Kind.relay: RelaySettings,
    Kind.proxy: ProxySettings,
}


@app.command("check")
def check(
    file: Annotated[Path, typer.Argument(help="TOML file of settings, of any kind.", show_default=False)],
    kind: Annotated[
        Kind | None, typer.Option(help="Kind of program; guessed from the keys unless given. Required for a proxy.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a file of settings and print what it sets, without secrets; exit status 2 if it cannot be used.

    Also checks the files and the server's host name that the settings refer to. Does not connect to anything.

    Example: wanderbus config check agent.toml
    """
    log_to_stderr(verbose=False)
    given = parse(read_text(file), file)
    kind = kind or _kind_of(given)
    match kind:
        case Kind.agent:
            connect(config=file)
        case Kind.broker:
            Server(**given_to(ServerSettings, {}, file))
        case Kind.proxy:
            ProxyServer(**given_to(ProxySettings, {}, file))
        case Kind.relay:
            RelayServer(RelaySettings(**settings_in(RelaySettings, file)))
    understood = set_in(STRUCTS[kind], given)
    if json:
        print_json({"file": str(file), "kind": kind.value, "set": understood})
    else:
        print_line(
            f"{file} is a file of settings for {'an agent' if kind is Kind.agent else f'a {kind.value}'}; it sets"
        )
        for name, value in understood.items():
            print_line(f"  {name} = {toml(value)}")


@app.command("sample")
def show_sample(kind: Annotated[Kind, typer.Argument(help="Kind of program.", show_default=False)]) -> None:
    """Print a sample file of settings: every key with its default and its meaning.

    Example: wanderbus config sample broker > broker.toml
    """
    print_lines(sample(STRUCTS[kind]))


def _kind_of(given: dict[str, Any]) -> Kind:
    """Return the kind of program that knows most of these keys."""

    def known(kind: Kind) -> int:
        table = table_of(STRUCTS[kind])
        return len(given.keys() & {*table.keys, *table.tables})

    return max(Kind, key=known)
