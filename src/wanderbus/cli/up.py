"""``wanderbus up``: the server, with SIP registrar, proxy, broker and event log."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from wanderbus.cli.output import log_to_stderr, print_json, print_line, run_async
from wanderbus.config import BrokerConfig, RelaySettings, ServerSettings
from wanderbus.errors import ConfigurationError
from wanderbus.machine import shown
from wanderbus.runtime.files.config_files import settings_in
from wanderbus.runtime.files.domain_file import read_domain
from wanderbus.runtime.files.users_file import read_users
from wanderbus.runtime.service_notice import announced
from wanderbus.server.hosted_server import HostedServer
from wanderbus.server.server import Server
from wanderbus.settings.event_domain import address_in
from wanderbus.settings.keys import default_of

_UNLESS_GIVEN: Final = {"domain": "localhost", "data_dir": Path("wanderbus-data")}
"""Defaults of the command for keys that neither the options nor the file give."""


def option(key: str, help: str, *names: str, **more: Any) -> Any:
    """Return an option that shows the default of ``key`` but is None unless given, so that a file can set the key."""
    default = _UNLESS_GIVEN.get(key, default_of(ServerSettings, key))
    return typer.Option(*names, help=help, show_default=str(default), **more)


Config = Annotated[
    Path | None, typer.Option(help="TOML file of settings; the other options override it.", show_default=False)
]
Users = Annotated[Path | None, typer.Option(help="File of name:password lines.", show_default=False)]
DataDir = Annotated[Path | None, option("data_dir", "Directory of log and state; created if missing.")]
Host = Annotated[str | None, option("host", "IP address to listen on.")]
Advertise = Annotated[
    str | None, typer.Option(help="IP address to advertise instead of --host, for a host behind NAT, as in clouds.")
]
Port = Annotated[int | None, option("port", "UDP and TCP port of SIP; 0 takes a free one.", min=0, max=65_535)]
Tcp = Annotated[bool | None, option("tcp", "Serve SIP over TCP as well as UDP.")]
Certificate = Annotated[
    Path | None, typer.Option(help="PEM file of a certificate chain; with it, SIP is served over TLS too.")
]
CertificateKey = Annotated[
    Path | None, typer.Option(help="PEM file of the certificate's key, unless the key is in the same file.")
]
TlsPort = Annotated[int | None, typer.Option(min=0, max=65_535, help="TCP port of TLS; unless given, --port + 1.")]
Domain = Annotated[str | None, option("domain", "SIP domain to serve.")]
Encryption = Annotated[bool | None, option("encryption", "Encrypt events; agents need the same setting.")]
EciPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65_535,
        help="UDP port for the original ECI: without encryption or authentication. Not served unless given.",
    ),
]
EciHost = Annotated[str | None, option("eci_host", "IP address of --eci-port; independent of --host.")]
Http = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Serve /metrics for Prometheus, /healthz and /readyz there; not served unless given. Needs the extra web.",
        show_default=False,
    ),
]
LogJSON = Annotated[bool, typer.Option("--log-json", help="Log one JSON object a line.")]
Light = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Serve lightweight clients over TLS there; a port alone is on loopback. Not served unless given.",
        show_default=False,
    ),
]
SipTrace = Annotated[
    Path | None, typer.Option(help="Write every SIP message to this file, for 'wanderbus sip ladder'.")
]


Relay = Annotated[
    bool | None,
    typer.Option(
        help="Run a media relay in this process, on --host: it forwards data channels between peers behind NAT."
    ),
]
Relays = Annotated[
    list[str] | None,
    typer.Option(help="External media relay: HOST:PORT of its ng control port; repeatable."),
]
RelayCalls = Annotated[
    str | None, option("relay_calls", "Calls that pass a relay: nat (calls with a side behind NAT) or all.")
]
SipServer = Annotated[
    str | None,
    typer.Option(
        help="External registrar and proxy, as sip:HOST:PORT;transport=tcp or sips:HOST: the broker registers there, "
        "and this process runs no registrar or proxy.",
        show_default=False,
    ),
]
BrokerPasswordFile = Annotated[
    Path | None,
    typer.Option(
        help="File with the broker's password at --sip-server; unless given, the one in --users. Without --sip-server, "
        "other brokers register here with this password."
    ),
]
CaFile = Annotated[
    Path | None, typer.Option(help="PEM file of the certificate authorities to trust for --sip-server (TLS).")
]
Engine = Annotated[
    str | None,
    option(
        "engine", "Matching engine: broker; or spark, which runs beside the server, for broker.spark_subjects or all."
    ),
]
EventDomain = Annotated[
    Path | None,
    typer.Option(
        help="File of the event domain of this server, as 'wanderbus domain init' writes it. Its key sip gives --host "
        "and --port, unless they are given.",
        show_default=False,
    ),
]
EventServer = Annotated[
    str | None, typer.Option(help="Name of this server in --event-domain.", metavar="NAME", show_default=False)
]
Admin = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="User with the role of administrator, in addition to broker.roles; repeatable.",
        show_default=False,
    ),
]
EventKey = Annotated[
    Path | None,
    typer.Option(help="File of its private key; keys/NAME.key beside --event-domain unless given.", show_default=False),
]
Federation = Annotated[
    Path | None,
    typer.Option(
        help="File of the federation with other domains, as 'wanderbus federation init' writes it.", show_default=False
    ),
]
FederationGateway = Annotated[
    str | None,
    typer.Option(
        help="Name of this server among the gateways of --federation; unless given, it is no gateway.",
        metavar="NAME",
        show_default=False,
    ),
]
FederationKey = Annotated[
    Path | None,
    typer.Option(help="File of the domain's private key; that beside --federation unless given.", show_default=False),
]


def up(
    context: typer.Context,
    config: Config = None,
    users: Users = None,
    admin: Admin = None,
    data_dir: DataDir = None,
    host: Host = None,
    advertise: Advertise = None,
    port: Port = None,
    tcp: Tcp = None,
    tls_certificate: Certificate = None,
    tls_key: CertificateKey = None,
    tls_port: TlsPort = None,
    domain: Domain = None,
    encryption: Encryption = None,
    eci_port: EciPort = None,
    eci_host: EciHost = None,
    http: Http = None,
    light: Light = None,
    sip_trace: SipTrace = None,
    relay: Relay = None,
    relays: Relays = None,
    relay_calls: RelayCalls = None,
    sip_server: SipServer = None,
    broker_password_file: BrokerPasswordFile = None,
    ca_file: CaFile = None,
    engine: Engine = None,
    event_domain: EventDomain = None,
    event_server: EventServer = None,
    event_key: EventKey = None,
    federation: Federation = None,
    federation_gateway: FederationGateway = None,
    federation_key: FederationKey = None,
    json: Annotated[bool, typer.Option("--json", help="Print the ready line as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more than warnings.")] = False,
    log_json: LogJSON = False,
) -> None:
    """Run a server: SIP registrar and proxy, broker, event log.

    Prints "ready sip:HOST:PORT" when agents can connect, followed by "sips:HOST:PORT" if TLS is served,
    "eci://HOST:PORT" if the original ECI is, and "light://HOST:PORT" if lightweight clients are. With --sip-server it
    prints "ready sip:USER@HOST:PORT", the broker's own address. Ends on SIGINT or SIGTERM; killing it loses nothing. A
    file can set more than the options:
    'wanderbus config sample broker' prints one.

    Example: wanderbus up --users users.txt --domain example.org --host 192.0.2.1

    Example: wanderbus up --users users.txt --http 127.0.0.1:8080

    Example: wanderbus up --users users.txt --engine spark

    Example: wanderbus up --users users.txt --event-domain mydomain/domain.toml --event-server s1

    Example: wanderbus up --config broker.toml --sip-server "sip:192.0.2.1:5060;transport=tcp" --host 192.0.2.2
    """
    log_to_stderr(verbose=verbose, as_json=log_json)
    server = Server(**given_to(ServerSettings, context.params, config))
    run_async(serve(server, lambda: _print_ready(server, json)))


def given_to(kind: type[msgspec.Struct], options: Mapping[str, Any], config: Path | None) -> Any:
    """Return the settings of ``kind`` from the options, else from the file, else the command's defaults."""
    # The options for settings have the names of their keys.
    given = {name: options[name] for name in kind.__struct_fields__ if options.get(name) not in (None, [], ())}
    from_file = {} if config is None else settings_in(kind, config)
    if "relay" in given:
        given["relay"] = (from_file.get("relay") or RelaySettings()) if given["relay"] else None
    if admins := options.get("admin"):
        broker = from_file.get("broker") or BrokerConfig()
        roles = {**broker.roles, **dict.fromkeys(admins, "administrator")}
        given["broker"] = msgspec.structs.replace(broker, roles=roles)
    if "relays" in given:
        given["relays"] = tuple(given["relays"])
    given = {**from_file, **given}
    settings = {**_UNLESS_GIVEN, **_in_event_domain(given), **given}
    if "users" not in settings:
        raise ConfigurationError(
            "no users given; give --users FILE (lines of name:password, or written by 'wanderbus users add')"
        )
    if (admins := options.get("admin")) and settings.get("sip_server") is None:
        check_admins(admins, settings["users"])
    return settings


def check_admins(names: Iterable[str], users: Path | Mapping[str, str]) -> None:
    """Raise :class:`ConfigurationError` if one of ``names``, without a domain, is none of the users."""
    known = users if isinstance(users, Mapping) else read_users(users)
    for name in names:
        if "@" not in name and name not in known:
            raise ConfigurationError(
                f"--admin: there is no user {name!r} in {'users' if known is users else users}; add that user, or name "
                "another"
            )


def _in_event_domain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the ``given`` server in the file of its event domain; none without such a file.

    A server that registers at another one has no port for SIP of its own.
    """
    file: Path | None = given.get("event_domain")
    if file is None:
        return {}
    domain = read_domain(file).settings
    described = domain.servers.get(given.get("event_server") or "")
    address = None if described is None or described.sip is None else address_in(described.sip)
    if address is None:
        return {"domain": domain.name}
    port = {} if given.get("sip_server") else {"port": address[1]}
    return {"domain": domain.name, "host": address[0], **port}


async def serve(
    server: HostedServer,
    print_ready: Callable[[], None],
    *,
    print_figures: Callable[[], None] = lambda: None,
    figures_s: float | None = None,
) -> None:
    """Run a server until SIGINT or SIGTERM, its ordinary end, or until it fails.

    ``print_ready`` is called when it serves; ``print_figures`` every ``figures_s`` seconds, if given, and at the end.

    :raises StorageError: the disk failed
    """
    async with server:
        running = asyncio.create_task(server.run())
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
        try:
            # A collection of everything that was loaded takes up to a tenth of a second, while everybody waits.
            gc.collect()
            gc.freeze()
            print_ready()
            async with announced():
                while not running.done():
                    await asyncio.wait([running], timeout=figures_s)
                    print_figures()
        finally:
            running.cancel()
        if not running.cancelled():
            running.result()


def _print_ready(server: Server, json: bool) -> None:
    place = f"sip:{shown(server.address)}"
    others = {}
    if server.sip_server is not None:
        place = f"sip:{server.broker_uri.partition(':')[2].partition('@')[0]}@{shown(server.broker_address)}"
    if server.tls_address is not None:
        others["tls"] = f"sips:{shown(server.tls_address)}"
    if server.http_url is not None:
        others["http"] = server.http_url
    if server.eci_address is not None:
        others["eci"] = f"eci://{shown(server.eci_address)}"
    if server.light_address is not None:
        others["light"] = f"light://{shown(server.light_address)}"
    if json:
        print_json({"ready": place, "broker": server.broker_uri, **others})
    else:
        print_line(" ".join(("ready", place, *others.values())))
