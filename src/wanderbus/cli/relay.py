"""``wanderbus relay``: media relay in a process of its own (SPEC I-05)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from wanderbus.cli.output import log_to_stderr, print_json, print_line, run_async
from wanderbus.cli.up import LogJSON, serve
from wanderbus.config import RelayLimits, RelaySettings
from wanderbus.errors import ConfigurationError
from wanderbus.machine import shown
from wanderbus.runtime.files.config_files import settings_in
from wanderbus.server.relay_role import LOOPBACK
from wanderbus.server.relay_server import RelayServer
from wanderbus.settings.keys import default_of


def _option(key: str, help: str, *names: str, **more: Any) -> Any:
    """Return an option that shows the default of ``key`` but is None unless given, so that a file can set the key."""
    return typer.Option(*names, help=help, show_default=str(default_of(RelaySettings, key)), **more)


def _limit(key: str, help: str) -> Any:
    return typer.Option(help=help, show_default=str(getattr(RelayLimits(), key)))


Config = Annotated[
    Path | None, typer.Option(help="TOML file of settings; the other options override it.", show_default=False)
]
Address = Annotated[
    str | None,
    typer.Option(help="IP address of the relayed streams; both sides have to reach it.", show_default=LOOPBACK),
]
Advertise = Annotated[
    str | None, typer.Option(help="IP address to advertise instead of --address, for a relay behind NAT.")
]
Ports = Annotated[str | None, _option("ports", "Range of ports for streams, FIRST-LAST; a stream takes two.")]
NgListen = Annotated[str | None, _option("ng_listen", "UDP address for the commands of proxies.")]
NgFrom = Annotated[
    list[str] | None,
    typer.Option(help="IP address of such a proxy, repeatable; required unless --ng-listen is on loopback."),
]
LoopbackPeers = Annotated[
    bool | None, _option("loopback_peers", "Allow sides on this host's loopback, such as a broker on this host.")
]
CallsMax = Annotated[int | None, _limit("calls_max", "Most concurrent calls.")]
IdleS = Annotated[float | None, _limit("idle_s", "Seconds without traffic after which a call is removed.")]
DatagramsPerS = Annotated[
    int | None, _limit("stream_datagrams_per_s", "Most datagrams per second of a stream, in each direction.")
]
BytesPerS = Annotated[int | None, _limit("stream_bytes_per_s", "Most bytes per second of a stream, in each direction.")]
FiguresS = Annotated[float | None, typer.Option(min=0.1, help="Print the counters at this interval in seconds.")]


def relay(
    context: typer.Context,
    config: Config = None,
    address: Address = None,
    advertise: Advertise = None,
    ports: Ports = None,
    ng_listen: NgListen = None,
    ng_from: NgFrom = None,
    loopback_peers: LoopbackPeers = None,
    calls_max: CallsMax = None,
    idle_s: IdleS = None,
    stream_datagrams_per_s: DatagramsPerS = None,
    stream_bytes_per_s: BytesPerS = None,
    figures_s: FiguresS = None,
    json: Annotated[bool, typer.Option("--json", help="Print the ready line and the counters as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more than warnings.")] = False,
    log_json: LogJSON = False,
) -> None:
    """Run a media relay: it forwards data channels between peers that cannot reach each other, as behind NAT.

    A SIP proxy controls it with rtpengine's ng protocol: 'wanderbus up', 'wanderbus proxy', or Kamailio with its
    module rtpengine. Prints "ready ng:HOST:PORT" when it accepts commands. Ends on SIGINT or SIGTERM and then prints
    its counters.

    Example: wanderbus relay --address 192.0.2.1 --ports 30000-39999

    Example: wanderbus relay --address 192.0.2.1 --ng-listen 10.0.0.1:2223 --ng-from 10.0.0.2 --json --figures-s 60
    """
    log_to_stderr(verbose=verbose, as_json=log_json)
    # The options for settings and limits have the names of their keys.
    given = {name: value for name, value in context.params.items() if value not in (None, [], ())}
    settings = {} if config is None else settings_in(RelaySettings, config)
    limits = {name: given[name] for name in RelayLimits.__struct_fields__ if name in given}
    try:
        settings["limits"] = msgspec.structs.replace(settings.get("limits") or RelayLimits(), **limits)
    except ValueError as error:
        raise ConfigurationError(f"--{str(error).replace('_', '-')}") from None
    settings |= {name: given[name] for name in RelaySettings.__struct_fields__ if name in given}
    settings["ng_from"] = tuple(settings.get("ng_from", ()))
    server = RelayServer(RelaySettings(**settings))

    def print_figures() -> None:
        _print_figures(server.figures(), json)

    run_async(serve(server, lambda: _print_ready(server, json), print_figures=print_figures, figures_s=figures_s))


def _print_ready(server: RelayServer, json: bool) -> None:
    place = f"ng:{shown(server.ng_address)}"
    print_json({"ready": place}) if json else print_line(f"ready {place}")


def _print_figures(figures: dict[str, Any], json: bool) -> None:
    if json:
        print_json({"figures": figures})
        return
    streams, counters = figures["streams"], figures["counters"]
    dropped = ", ".join(f"{streams[name]} {name}" for name in ("unknown_source", "nowhere", "over_rate", "unsent"))
    print_line(
        f"{figures['calls']} calls now and {counters['calls']} in all, {figures['ports']} ports; "
        f"{streams['datagrams']} datagrams, {streams['bytes']} bytes; dropped: {dropped}"
    )
