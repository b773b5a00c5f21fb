"""``wanderbus federation trust``: the types that are shared with a foreign domain, and their bounds (SPEC M-01)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.federation.options import (
    Causal,
    DomainName,
    FederationFile,
    Receive,
    Send,
    Visitors,
    shared_types,
)
from wanderbus.cli.output import print_json, print_line
from wanderbus.errors import ConfigurationError
from wanderbus.runtime.files.federation_file import check_known, put_domain, read_federation

_NONE: Final = "none"

Types = list[str] | None


def trust(
    file: FederationFile,
    domain: DomainName,
    receive: Receive = None,
    send: Send = None,
    no_receive: Annotated[
        Types,
        typer.Option(metavar="TYPE", help="Type that is no longer received from it; repeatable.", show_default=False),
    ] = None,
    no_send: Annotated[
        Types, typer.Option(metavar="TYPE", help="Type that is no longer sent to it; repeatable.", show_default=False)
    ] = None,
    events_per_s_max: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="Most events a second that are accepted from it, or none for no bound."),
    ] = None,
    distance_ms: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="Length of the link to it, for the method tree, or none for 1."),
    ] = None,
    backbone: Annotated[
        bool | None,
        typer.Option(help="Whether it is a rendezvous domain, for the method rendezvous.", show_default=False),
    ] = None,
    gives_sessions: Annotated[
        bool | None,
        typer.Option(help="Whether sessions of users here may move to it.", show_default=False),
    ] = None,
    takes_sessions: Annotated[
        bool | None,
        typer.Option(help="Whether sessions from it may move here.", show_default=False),
    ] = None,
    visitors: Visitors = None,
    causal: Causal = None,
    json: AsJson = False,
) -> None:
    """Change the types that are shared with a foreign domain, and what else holds for it.

    Types are exact subjects. A type crosses once both domains name it: one as sent, the other as received.

    Example: wanderbus federation trust federation.toml beta.example --receive Departure --send Price

    Example: wanderbus federation trust federation.toml beta.example --no-receive Departure --events-per-s-max 100

    Example: wanderbus federation trust federation.toml beta.example --takes-sessions --visitors move
    """
    settings = read_federation(file).settings
    check_known(settings, domain)
    known = settings.domains[domain]
    changes: dict[str, Any] = {
        "receive": _types("receive", known.receive, receive or (), no_receive or ()),
        "send": _types("send", known.send, send or (), no_send or ()),
    }
    for key, text in (("events_per_s_max", events_per_s_max), ("distance_ms", distance_ms)):
        if text is not None:
            changes[key] = _number(key, text)
    flags = {"backbone": backbone, "gives_sessions": gives_sessions, "takes_sessions": takes_sessions, "causal": causal}
    changes |= {key: flag for key, flag in flags.items() if flag is not None}
    if visitors is not None:
        changes["visitors"] = visitors
    changed = put_domain(file, domain, msgspec.structs.replace(known, **changes)).settings.domains[domain]
    if json:
        print_json({"domain": domain, **msgspec.structs.asdict(changed)})
    else:
        print_line(f"{file} has {domain}: {shared_types(changed)}")


def _types(name: str, known: Sequence[str], more: Sequence[str], fewer: Sequence[str]) -> tuple[str, ...]:
    """Return the types after a change; :class:`ConfigurationError` if one is to go that is not there, or came too."""
    for each in fewer:
        if each in more:
            raise ConfigurationError(f"--no-{name}: {each!r} is also given to --{name}; leave out one of them")
        if each not in known:
            found = f"expected {' or '.join(known)}" if known else "there is none"
            raise ConfigurationError(f"--no-{name}: {each!r} is none of these types ({found})")
    return tuple(each for each in dict.fromkeys((*known, *more)) if each not in fewer)


def _number(key: str, text: str) -> float | None:
    if text == _NONE:
        return None
    try:
        return float(text)
    except ValueError:
        option = f"--{key.replace('_', '-')}"
        raise ConfigurationError(f"{option}: invalid value {text!r} (expected a number or {_NONE})") from None
