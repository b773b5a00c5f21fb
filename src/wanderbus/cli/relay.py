"""``wanderbus relay``: the media relay alone (SPEC I-05)."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from wanderbus.cli.output import ended_by_signal, log_to_stderr, run_async, say, say_json
from wanderbus.config import RelayLimits, RelaySettings
from wanderbus.config.keys import default_of
from wanderbus.errors import ConfigurationError
from wanderbus.machine import shown
from wanderbus.runtime.files.config_files import settings_in
from wanderbus.runtime.net.relay_server import LOOPBACK, RelayServer


def _option(key: str, help: str, *names: str, **more: Any) -> Any:
    """Return an option that shows the default of ``key`` and is None unless given, so that a file can say it."""
    return typer.Option(*names, help=help, show_default=str(default_of(RelaySettings, key)), **more)


def _limit(key: str, help: str) -> Any:
    return typer.Option(help=help, show_default=str(getattr(RelayLimits(), key)))


Config = Annotated[
    Path | None, typer.Option(help="TOML file of settings; the other options come before it.", show_default=False)
]
Address = Annotated[
    str | None,
    typer.Option(help="IP address that streams pass, and both sides have to reach.", show_default=LOOPBACK),
]
Advertise = Annotated[str | None, typer.Option(help="IP address to tell instead, if another stands before --address.")]
Ports = Annotated[str | None, _option("ports", "Ports that may be handed out, first and last; a stream takes two.")]
NgListen = Annotated[str | None, _option("ng_listen", "Where proxies give commands, over UDP.")]
NgFrom = Annotated[
    list[str] | None,
    typer.Option(help="IP address of such a proxy, repeatable; needed where --ng-listen is not on loopback."),
]
LoopbackPeers = Annotated[
    bool | None, _option("loopback_peers", "Whether a side may be on this host's loopback, as a broker here.")
]
CallsMax = Annotated[int | None, _limit("calls_max", "Calls at once.")]
IdleS = Annotated[float | None, _limit("idle_s", "A call on which nothing comes for so long is forgotten.")]
DatagramsPerS = Annotated[int | None, _limit("stream_datagrams_per_s", "Datagrams a second of a stream, each way.")]
BytesPerS = Annotated[int | None, _limit("stream_bytes_per_s", "Bytes a second of a stream, each way.")]
FiguresS = Annotated[float | None, typer.Option(min=0.1, help="Print the figures every so many seconds.")]


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
    json: Annotated[bool, typer.Option("--json", help="Print the ready line and the figures as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more than warnings.")] = False,
) -> None:
    """Run a media relay: it carries data channels between those who cannot reach each other, as behind NAT.

    A SIP proxy commands it by rtpengine's ng protocol: ours, or Kamailio with its module rtpengine. Prints
    "ready ng:HOST:PORT" when it can, and its figures at the end, which is SIGINT or SIGTERM.

    Example: wanderbus relay --address 192.0.2.1 --ports 30000-39999

    Example: wanderbus relay --address 192.0.2.1 --ng-listen 10.0.0.1:2223 --ng-from 10.0.0.2 --json --figures-s 60
    """
    log_to_stderr(verbose=verbose)
    # Every option that is a setting, or a limit, has the name of its key.
    given = {name: value for name, value in context.params.items() if value not in (None, [], ())}
    settings = {} if config is None else settings_in(RelaySettings, config)
    limits = {name: given[name] for name in RelayLimits.__struct_fields__ if name in given}
    try:
        settings["limits"] = msgspec.structs.replace(settings.get("limits") or RelayLimits(), **limits)
    except ValueError as error:
        raise ConfigurationError(f"--{str(error).replace('_', '-')}") from None
    settings |= {name: given[name] for name in RelaySettings.__struct_fields__ if name in given}
    settings["ng_from"] = tuple(settings.get("ng_from", ()))
    run_async(_serve(RelayServer(RelaySettings(**settings)), figures_s, json))


async def _serve(server: RelayServer, figures_s: float | None, json: bool) -> None:
    """Serve until a signal, which is the ordinary end."""
    async with server:
        ended = ended_by_signal()
        place = f"ng:{shown(server.ng_address)}"
        say_json({"ready": place}) if json else say(f"ready {place}")
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(figures_s):
                    await ended.wait()
            _say_figures(server.figures(), json)


def _say_figures(figures: dict[str, Any], json: bool) -> None:
    if json:
        say_json({"figures": figures})
        return
    streams, counters = figures["streams"], figures["counters"]
    dropped = ", ".join(f"{streams[name]} {name}" for name in ("unknown_source", "nowhere", "over_rate", "unsent"))
    say(
        f"{figures['calls']} calls now and {counters['calls']} in all, {figures['ports']} ports; "
        f"{streams['datagrams']} datagrams, {streams['bytes']} bytes; dropped: {dropped}"
    )
