"""``wanderbus federation add``: another domain, as the card of its operator describes it (SPEC S-01)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.federation.options import (
    FederationFile,
    Gateways,
    Receive,
    Send,
    Visitors,
    gateways_in,
    shared_types,
)
from wanderbus.cli.output import print_json, print_line
from wanderbus.errors import ConfigurationError
from wanderbus.runtime.files.config_files import read_text
from wanderbus.runtime.files.federation_file import CARD_BYTES_MAX, put_domain, read_card, read_federation
from wanderbus.settings.federation import DomainCard, FederationSettings, ForeignDomainSettings, GatewaysSetting

_STANDARD_INPUT: Final = Path("-")


def add(
    file: FederationFile,
    card: Annotated[
        Path | None,
        typer.Argument(
            metavar="CARD", help="File that 'card' printed, TOML or JSON; - for standard input.", show_default=False
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the domain, without a card.", show_default=False)] = None,
    public_key: Annotated[
        str | None, typer.Option(metavar="HEX", help="Its public key, without a card.", show_default=False)
    ] = None,
    gateway: Gateways = None,
    receive: Receive = None,
    send: Send = None,
    no_link: Annotated[
        bool,
        typer.Option(
            "--no-link", help="Have no link to it: other domains pass on what goes there, along the tree of a type."
        ),
    ] = False,
    dns: Annotated[
        bool,
        typer.Option(
            "--dns",
            help="Find its gateways in the DNS, by SRV records at _wanderbus._udp.DOMAIN, and not by the card.",
        ),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Take over key and gateways of a known domain; what is shared with it stays."),
    ] = False,
    visitors: Visitors = None,
    json: AsJson = False,
) -> None:
    """Add a foreign domain to the file, from its card or from options; nothing is shared unless a type is named.

    A type crosses once both domains name it: one as sent, the other as received.

    Example: wanderbus federation add federation.toml beta.card --receive Departure --send Price

    Example: wanderbus federation add federation.toml beta.card --dns

    Example: wanderbus federation add federation.toml --name beta.example --public-key 1f... --gateway b1=192.0.2.9:5900
    """
    if dns and (no_link or gateway):
        raise ConfigurationError(
            "--dns: the gateways are found in the DNS; leave --gateway and --no-link out, or --dns"
        )
    if card is not None:
        given = _from_card(card, name, public_key, gateway)
    else:
        given = _from_options(name, public_key, gateway, has_none=no_link or dns)
    settings = read_federation(file).settings
    gateways: GatewaysSetting = "dns" if dns else {} if no_link else given.gateways
    changed = _changed(settings, given, gateways, receive or (), send or (), replace=replace)
    if visitors is not None:
        changed = msgspec.structs.replace(changed, visitors=visitors)
    federation = put_domain(file, given.name, changed)
    changed = federation.settings.domains[given.name]
    if json:
        print_json({"domain": given.name, **msgspec.structs.asdict(changed)})
    else:
        print_line(f"{file} has {given.name}: {shared_types(changed)}")


def _from_options(
    name: str | None, public_key: str | None, gateway: Sequence[str] | None, *, has_none: bool
) -> DomainCard:
    if name is None or public_key is None or (not gateway and not has_none):
        raise ConfigurationError("no domain given; give its CARD, or --name, --public-key and --gateway or --dns")
    return DomainCard(name=name, public_key=public_key, gateways=gateways_in(gateway) if gateway else {})


def _from_card(card: Path, *options: object) -> DomainCard:
    if any(option is not None for option in options):
        raise ConfigurationError("--name, --public-key, --gateway: the card has them; give the card or the options")
    if card != _STANDARD_INPUT:
        return read_card(read_text(card), card)
    try:
        return read_card(sys.stdin.buffer.read(CARD_BYTES_MAX + 1).decode(), Path("standard input"))
    except UnicodeDecodeError:
        raise ConfigurationError("standard input is not UTF-8 text; give the output of 'card'") from None


def _changed(
    settings: FederationSettings,
    card: DomainCard,
    gateways: GatewaysSetting,
    receive: Sequence[str],
    send: Sequence[str],
    *,
    replace: bool,
) -> ForeignDomainSettings:
    """Return the settings of the domain of ``card``, with the types that it shares already."""
    known = settings.domains.get(card.name)
    if known is None:
        return ForeignDomainSettings(
            public_key=card.public_key, gateways=gateways, receive=_once(receive), send=_once(send)
        )
    if not replace:
        raise ConfigurationError(
            f"{card.name} is in the federation already; 'trust' changes what is shared with it, and --replace takes "
            "over key and gateways of this card"
        )
    return msgspec.structs.replace(
        known,
        public_key=card.public_key,
        gateways=gateways,
        receive=_once((*known.receive, *receive)),
        send=_once((*known.send, *send)),
    )


def _once(types: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(types))
