"""``wanderbus proxy``: SIP registrar and proxy without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wanderbus.cli.output import log_to_stderr, print_json, print_line, run_async
from wanderbus.cli.up import (
    Advertise,
    Certificate,
    CertificateKey,
    Config,
    Domain,
    Host,
    Http,
    LogJSON,
    Port,
    Relay,
    RelayCalls,
    Relays,
    SipTrace,
    Tcp,
    TlsPort,
    Users,
    given_to,
    option,
    serve,
)
from wanderbus.config import ProxySettings
from wanderbus.machine import shown
from wanderbus.server.proxy_server import ProxyServer

DataDir = Annotated[Path | None, option("data_dir", "Directory of registrations and keys; created if missing.")]


def proxy(
    context: typer.Context,
    config: Config = None,
    users: Users = None,
    data_dir: DataDir = None,
    host: Host = None,
    advertise: Advertise = None,
    port: Port = None,
    tcp: Tcp = None,
    tls_certificate: Certificate = None,
    tls_key: CertificateKey = None,
    tls_port: TlsPort = None,
    domain: Domain = None,
    http: Http = None,
    sip_trace: SipTrace = None,
    relay: Relay = None,
    relays: Relays = None,
    relay_calls: RelayCalls = None,
    json: Annotated[bool, typer.Option("--json", help="Print the ready line as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more than warnings.")] = False,
    log_json: LogJSON = False,
) -> None:
    """Run only a SIP registrar and proxy. Brokers register there as users, with 'wanderbus up --sip-server'.

    Each broker needs a line in the file of users. Prints "ready sip:HOST:PORT" when user agents can register, followed
    by "sips:HOST:PORT" if TLS is served. Ends on SIGINT or SIGTERM; registrations are kept on disk.

    Example: wanderbus proxy --users users.txt --domain example.org --host 192.0.2.1
    """
    log_to_stderr(verbose=verbose, as_json=log_json)
    server = ProxyServer(**given_to(ProxySettings, context.params, config))
    run_async(serve(server, lambda: _print_ready(server, json)))


def _print_ready(server: ProxyServer, json: bool) -> None:
    place = f"sip:{shown(server.address)}"
    others = {} if server.tls_address is None else {"tls": f"sips:{shown(server.tls_address)}"}
    if server.http_url is not None:
        others["http"] = server.http_url
    print_json({"ready": place, **others}) if json else print_line(" ".join(("ready", place, *others.values())))
