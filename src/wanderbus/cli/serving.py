"""``wanderbus up``: the server."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Annotated

import typer

from wanderbus.api.server import Server
from wanderbus.cli.output import log_to_stderr, run_async, say, say_json
from wanderbus.machine import shown
from wanderbus.runtime.server_files import read_users


def up(
    users: Annotated[Path, typer.Option(help="File of name:password lines.", show_default=False)],
    data: Annotated[Path, typer.Option(help="Directory of log and state; made if need be.")] = Path("wanderbus-data"),
    host: Annotated[str, typer.Option(help="IP address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="UDP and TCP port of SIP; 0 takes a free one.")] = 5060,
    tcp: Annotated[bool, typer.Option(help="Serve TCP besides UDP.")] = True,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="PEM file of a certificate chain: serve TLS too.", show_default=False)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="PEM file of its key, unless that is in the same file.", show_default=False)
    ] = None,
    tls_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="TCP port of TLS; --port + 1 if not given.")
    ] = None,
    domain: Annotated[str, typer.Option(help="SIP domain to serve.")] = "localhost",
    no_encryption: Annotated[
        bool, typer.Option("--no-encryption", help="Send events in the clear; agents have to say so too.")
    ] = False,
    eci_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="UDP port for the original ECI: plain, and without any authentication. Not served unless given.",
        ),
    ] = None,
    eci_host: Annotated[str, typer.Option(help="IP address of --eci-port, wherever --host is.")] = "127.0.0.1",
    sip_trace: Annotated[
        Path | None, typer.Option(help="Write every SIP message to this file, for 'wanderbus sip ladder'.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the ready line as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more than warnings.")] = False,
) -> None:
    """Run a server: SIP registrar and proxy, broker, event log.

    Prints "ready sip:HOST:PORT" when agents can connect, and after it "sips:HOST:PORT" where TLS is served and
    "eci://HOST:PORT" where the original ECI is. Ends at SIGINT or SIGTERM; killing it loses nothing.

    Example: wanderbus up --users users.txt --domain example.org --host 192.0.2.1
    """
    log_to_stderr(verbose=verbose)
    server = Server(
        domain=domain,
        data_dir=data,
        users=read_users(users),
        host=host,
        port=port,
        tcp=tcp,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        tls_port=tls_port,
        encryption=not no_encryption,
        eci_port=eci_port,
        eci_host=eci_host,
        sip_trace=sip_trace,
    )
    run_async(_serve(server, json))


async def _serve(server: Server, json: bool) -> None:
    """Serve until a signal or a broken disk; a signal is the ordinary end."""
    loop = asyncio.get_running_loop()
    async with server:
        running = loop.create_task(server.run())
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, running.cancel)
        place = f"sip:{shown(server.address)}"
        others = {}
        if server.tls_address is not None:
            others["tls"] = f"sips:{shown(server.tls_address)}"
        if server.eci_address is not None:
            others["eci"] = f"eci://{shown(server.eci_address)}"
        if json:
            say_json({"ready": place, "broker": server.broker_uri, **others})
        else:
            say(" ".join(("ready", place, *others.values())))
        with contextlib.suppress(asyncio.CancelledError):
            await running
