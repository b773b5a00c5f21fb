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
from wanderbus.runtime.server_files import read_users
from wanderbus.runtime.sip_listening import shown


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
    sip_trace: Annotated[
        Path | None, typer.Option(help="Write every SIP message to this file, for 'wanderbus sip ladder'.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the ready line as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more than warnings.")] = False,
) -> None:
    """Run a server: SIP registrar and proxy, broker, event log.

    Prints "ready sip:HOST:PORT" when agents can connect, and "sips:HOST:PORT" after it where TLS is served. Ends at
    SIGINT or SIGTERM; killing it loses nothing.

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
        secure = None if server.tls_address is None else f"sips:{shown(server.tls_address)}"
        if json:
            say_json({"ready": place, "broker": server.broker_uri, **({"tls": secure} if secure else {})})
        else:
            say(" ".join(("ready", place, *([secure] if secure else []))))
        with contextlib.suppress(asyncio.CancelledError):
            await running
