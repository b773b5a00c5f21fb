"""``wanderbus federation show``: the own domain, or a foreign one, as the file describes it (SPEC S-01)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.federation.options import FederationFile
from wanderbus.cli.output import print_json, print_line
from wanderbus.runtime.files.federation_file import check_known, read_federation
from wanderbus.settings.federation import GATEWAY_SERVICE, Federation


def show(
    file: FederationFile,
    domain: Annotated[
        str | None, typer.Argument(metavar="DOMAIN", help="Foreign domain.", show_default="the own domain")
    ] = None,
    json: AsJson = False,
) -> None:
    """Show what the file says of the own domain, or of a foreign one: key, gateways, types and methods.

    Example: wanderbus federation show federation.toml

    Example: wanderbus federation show federation.toml beta.example --json
    """
    federation = read_federation(file)
    settings = federation.settings
    if domain is not None:
        check_known(settings, domain)
        found = settings.domains[domain]
        methods = {each: federation.method_of(each) for each in sorted({*found.receive, *found.send})}
        if json:
            print_json({"domain": domain, **msgspec.structs.asdict(found), "methods": methods})
            return
        lines = _foreign_lines(federation, domain, methods)
    else:
        if json:
            print_json({**msgspec.structs.asdict(settings), "domains": federation.domains})
            return
        lines = _own_lines(federation)
    for line in lines:
        print_line(line)


def _own_lines(federation: Federation) -> Iterator[str]:
    settings = federation.settings
    yield from _common_lines(settings.name, settings.public_key, settings.gateways)
    yield f"backbone: {'yes' if settings.backbone else 'no'}"
    methods = {each: federation.method_of(each) for each in sorted({*federation.types, *settings.methods})}
    yield from _method_lines(methods)
    yield f"foreign domains: {', '.join(federation.domains) or 'none'}"


def _foreign_lines(federation: Federation, name: str, methods: Mapping[str, str]) -> Iterator[str]:
    domain = federation.settings.domains[name]
    yield from _common_lines(name, domain.public_key, {} if domain.gateways == "dns" else domain.gateways)
    if domain.gateways == "dns":
        yield f"gateways: as the DNS has them at {GATEWAY_SERVICE}.{name}"
    yield f"backbone: {'yes' if domain.backbone else 'no'}"
    yield f"receives from it: {', '.join(domain.receive) or 'nothing'}"
    yield f"sends to it: {', '.join(domain.send) or 'nothing'}"
    yield f"sessions may move there: {'yes' if domain.gives_sessions else 'no'}"
    yield f"sessions from there may move here: {'yes' if domain.takes_sessions else 'no'}"
    yield f"visitors from there: {domain.visitors}"
    yield f"causal order: {'asked for' if domain.causal else 'no'}"
    bound, distance = domain.events_per_s_max, domain.distance_ms
    yield f"events a second that are accepted: {'no bound' if bound is None else f'at most {bound:g}'}"
    yield f"distance: {1 if distance is None else distance:g} ms"
    yield from _method_lines(methods)


def _common_lines(name: str, public_key: str, gateways: Mapping[str, str]) -> Iterator[str]:
    yield f"domain: {name}"
    yield f"public key: {public_key}"
    for gateway, address in gateways.items():
        yield f"gateway: {gateway} at {address}"


def _method_lines(methods: Mapping[str, str]) -> Iterator[str]:
    for each, method in methods.items():
        yield f"method of {each}: {method}"
