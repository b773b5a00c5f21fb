"""``wanderbus config``: files of settings, checked and shown."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from wanderbus.cli.output import log_to_stderr, say, say_json, say_lines
from wanderbus.cli.up import given_to
from wanderbus.client.connect import connect
from wanderbus.config import AgentSettings, ProxySettings, RelaySettings, ServerSettings
from wanderbus.config.keys import table_of
from wanderbus.config.reading import parse
from wanderbus.config.writing import sample, set_in, toml
from wanderbus.runtime.files.config_files import read_text, settings_in
from wanderbus.runtime.net.relay_server import RelayServer
from wanderbus.server.proxy_server import ProxyServer
from wanderbus.server.server import Server

app = typer.Typer(help="Files of settings, of a server, of an agent and of a relay.", no_args_is_help=True)


class Kind(Enum):
    """Whose settings a file holds."""

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
        Kind | None, typer.Option(help="Whose settings; found out by the keys, so needed for a proxy.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a file of settings sets, without its secrets; exit status 2 if it cannot be used.

    What the file itself names is looked at too, other files and the host of the server. Nothing is connected.

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
        say_json({"file": str(file), "kind": kind.value, "set": understood})
    else:
        say(f"{file} is a file of settings for {'an agent' if kind is Kind.agent else f'a {kind.value}'}; it sets")
        for name, value in understood.items():
            say(f"  {name} = {toml(value)}")


@app.command("sample")
def show_sample(kind: Annotated[Kind, typer.Argument(help="Whose settings.", show_default=False)]) -> None:
    """Print a file with every key there is, its default and what it means.

    Example: wanderbus config sample broker > broker.toml
    """
    say_lines(sample(STRUCTS[kind]))


def _kind_of(given: dict[str, Any]) -> Kind:
    """Return whose settings these are: the kind that knows more of the keys."""

    def known(kind: Kind) -> int:
        table = table_of(STRUCTS[kind])
        return len(given.keys() & {*table.keys, *table.tables})

    return max(Kind, key=known)
