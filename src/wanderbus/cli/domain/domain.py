"""``wanderbus domain``: an event domain: its file, its servers and its channels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.domain import add, drain, move, remove, status, up, upgrade
from wanderbus.cli.domain.balance.apply import apply
from wanderbus.cli.domain.balance.rebalance import rebalance
from wanderbus.cli.domain.options import FormerFile, SIPPort
from wanderbus.cli.domain.servers_asked import PLACES_SHOWN
from wanderbus.cli.output import log_to_stderr, print_json, print_line, print_progress
from wanderbus.runtime.files.domain_file import SIP_PORT, SIZE_MAX, create_domain
from wanderbus.settings.event_domain import EventDomain
from wanderbus.subscription import check_event_subject

app = typer.Typer(help="Describe and run a domain of several servers.", no_args_is_help=True)

File = Annotated[
    Path | None,
    typer.Option(
        "--event-domain",
        help="File of the domain, as 'wanderbus domain init' writes it.",
        show_default=PLACES_SHOWN,
    ),
]


@app.callback()
def _options() -> None:
    """Describe and run a domain of several servers."""
    log_to_stderr(verbose=False)


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="Directory for domain.toml and the keys of the servers.")] = Path(),
    size: Annotated[int, typer.Option(min=1, max=SIZE_MAX, help="Number of servers.")] = 1,
    name: Annotated[str, typer.Option(help="SIP domain name of all servers.")] = "localhost",
    port: SIPPort = None,
    json: AsJson = False,
) -> None:
    """Write the file of a new domain, and a private key for each server; nothing is overwritten.

    The servers have the loopback addresses 127.0.0.1, 127.0.0.2 and so on; edit domain.toml for others. Each server
    needs domain.toml and its own file of keys/.

    Example: wanderbus domain init mydomain --size 4 --name example.org
    """
    file = create_domain(directory, name, size, SIP_PORT if port is None else port)
    if json:
        print_json({"file": str(file), "servers": size})
    else:
        print_line(f"{file} describes the servers, {size} in all; their keys are in {directory / 'keys'}")


@app.command()
def servers(event_domain: File = None, config: FormerFile = None, json: AsJson = False) -> None:
    """List the servers of the domain, with their roles and the number of channel groups that they lead.

    Leaders are those that the servers on this computer know, otherwise those of the file: leaders_from in --json says
    which.

    Servers that have left are listed, too: their places are not given to others.

    Example: wanderbus domain servers --event-domain mydomain/domain.toml
    """
    domain, leaders_from = _present(event_domain or config, json=json)
    for name, server in domain.settings.servers.items():
        led = len(domain.directory.table.groups_of(name))
        if json:
            print_json({"server": name, **msgspec.structs.asdict(server), "groups": led, "leaders_from": leaders_from})
        else:
            sip = "" if server.sip is None else f", sip:{server.sip} for agents"
            facts = "has left" if server.left else f"{', '.join(server.roles)}; leads {led} channel groups"
            print_line(f"{name} at {server.address}{sip}: {facts}")


@app.command()
def channels(
    subjects: Annotated[list[str], typer.Argument(metavar="SUBJECT...", help="Subjects of events.")],
    event_domain: File = None,
    config: FormerFile = None,
    json: AsJson = False,
) -> None:
    """Show the channel group of each subject, its leader, its model, its merging, and whether it needs advertisements.

    Leaders are those that the servers on this computer know, otherwise those of the file: leaders_from in --json says
    which. 'domain status' shows the groups that have moved.

    Example: wanderbus domain channels Departure Stock --event-domain mydomain/domain.toml
    """
    domain, leaders_from = _present(event_domain or config, json=json)
    for subject in subjects:
        check_event_subject(subject)
    for channel in map(domain.channel, subjects):
        if json:
            print_json({**msgspec.structs.asdict(channel), "leaders_from": leaders_from})
        else:
            bound = "" if channel.precision_min is None else f" from precision {channel.precision_min:g}"
            required = ", advertisements required" if channel.advertisements == "required" else ""
            print_line(
                f"{channel.subject}: group {channel.group}, leader {channel.leader}, epoch {channel.epoch},"
                f" {channel.model}, merging {channel.merging}{bound}{required}"
            )


def _present(file: Path | None, *, json: bool) -> tuple[EventDomain, str]:
    """Return the domain with its present leaders, and where they are from; tell people if that is the file."""
    domain, is_known = status.present_domain(file)
    if not is_known and not json:
        print_progress("no server of the domain answers on this computer: the leaders are those of the file")
    return domain, "servers" if is_known else "file"


app.command("up")(up.up)
app.command("status")(status.status)
app.command("add")(add.add)
app.command("drain")(drain.drain)
app.command("move")(move.move)
app.command("remove")(remove.remove)
app.command("rebalance")(rebalance)
app.command("apply")(apply)
app.command("upgrade")(upgrade.upgrade)
