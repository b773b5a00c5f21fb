"""``wanderbus federation``: the file by which a domain shares events with domains of other operators (SPEC S-01)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.federation import add, show, status, trust
from wanderbus.cli.federation.options import DomainName, FederationFile, Gateways, gateways_in, shared_types
from wanderbus.cli.output import log_to_stderr, print_json, print_line, print_lines
from wanderbus.federation.routing_messages import Method
from wanderbus.runtime.files.federation_file import (
    card_of,
    card_text,
    create_federation,
    federation_key_file,
    put_method,
    read_federation,
    remove_domain,
)

app = typer.Typer(help="Share events with the domains of other operators.", no_args_is_help=True)


@app.callback()
def _options() -> None:
    """Share events with the domains of other operators."""
    log_to_stderr(verbose=False)


@app.command()
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write.", show_default=False)],
    name: Annotated[str, typer.Option(help="SIP domain name of the own domain.", show_default=False)],
    gateway: Gateways = None,
    json: AsJson = False,
) -> None:
    """Write the file of a domain that shares nothing yet, and its private key beside it; nothing is overwritten.

    Gateways are the servers with links to other domains, named as in domain.toml; a domain of one server has one, with
    any name. All servers of the domain need the file, and gateways also the key.

    Example: wanderbus federation init federation.toml --name alpha.example --gateway a1=192.0.2.1:5900
    """
    federation = create_federation(file, name, gateways_in(gateway))
    key = federation_key_file(file)
    if json:
        print_json({"file": str(file), "key": str(key), **msgspec.structs.asdict(card_of(federation))})
    else:
        print_line(f"{file} describes {name} for other domains; its private key is {key}")
        print_line(f"next: give the output of 'wanderbus federation card {file}' to the operator of another domain")


@app.command()
def card(file: FederationFile, json: AsJson = False) -> None:
    """Print what the operator of another domain needs: name, public key and gateways. Nothing of it is secret.

    Send it so that nobody can change it on the way: whoever has the private key of this public key is this domain for
    the other one.

    Example: wanderbus federation card federation.toml > alpha.card
    """
    found = card_of(read_federation(file))
    if json:
        print_json(found)
    else:
        print_lines(card_text(found))


@app.command()
def remove(file: FederationFile, domain: DomainName, json: AsJson = False) -> None:
    """Remove a foreign domain from the file, with its key and all that is shared with it.

    Example: wanderbus federation remove federation.toml beta.example
    """
    remove_domain(file, domain)
    if json:
        print_json({"file": str(file), "removed": domain})
    else:
        print_line(f"{file} shares nothing with {domain} any more")


@app.command("list")
def list_domains(file: FederationFile, json: AsJson = False) -> None:
    """List the foreign domains, with the types that are received from them and sent to them.

    Example: wanderbus federation list federation.toml
    """
    for name, domain in sorted(read_federation(file).settings.domains.items()):
        if json:
            print_json({"domain": name, **msgspec.structs.asdict(domain)})
        else:
            print_line(f"{name}: {shared_types(domain)}")


@app.command()
def method(
    file: FederationFile,
    subject: Annotated[str, typer.Argument(metavar="TYPE", help="Type, an exact subject.", show_default=False)],
    method: Annotated[
        Literal[Method, "default"],
        typer.Argument(help="Method of the type; default: that of all types in the file.", show_default=False),
    ],
    json: AsJson = False,
) -> None:
    """Set the way by which filters of a type get around between domains; all domains of the type need the same.

    Example: wanderbus federation method federation.toml Departure rendezvous

    Example: wanderbus federation method federation.toml Departure default
    """
    federation = put_method(file, subject, None if method == "default" else method)
    if json:
        print_json({"type": subject, "method": federation.method_of(subject)})
    else:
        print_line(f"{subject} has the method {federation.method_of(subject)}")


app.command("add")(add.add)
app.command("show")(show.show)
app.command("status")(status.status)
app.command("trust")(trust.trust)
